#include "leaf/server/http/dashboard.h"

#include "leaf/server/http/dashboard_files.h"
#include "leaf/server/http/message.h"

namespace leaf::server {
namespace {

// Nothing comes from elsewhere, nothing goes elsewhere, and no text can become a script or a style.
constexpr std::string_view kPolicy =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n";

Response File(std::string_view content_type, std::string_view body) {
  Response response;
  response.content_type = content_type;
  response.headers = kPolicy;
  response.body = body;
  return response;
}

}  // namespace

Response DashboardFile(std::string_view name) {
  if (name.empty()) return File(kHtml, kDashboardHtml);
  if (name == "dashboard.css") return File("text/css;charset=UTF-8", kDashboardCss);
  if (name == "dashboard.js") return File("text/javascript;charset=UTF-8", kDashboardJs);
  Response response;
  response.status = 404;
  return response;
}

}  // namespace leaf::server
