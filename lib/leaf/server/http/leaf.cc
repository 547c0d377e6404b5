// Java Leaf's routes, as it answers them; leafctl(7) lists what is different on purpose.
#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/base/time.h"
#include "leaf/java/pages.h"
#include "leaf/server/error_meaning.h"
#include "leaf/server/http/errors.h"
#include "leaf/server/http/handlers.h"
#include "leaf/server/http/report.h"
#include "leaf/server/http/take.h"

namespace leaf::server {
namespace {

using Json = nlohmann::ordered_json;

// A page that is text only.
constexpr std::string_view kNothingActive =
    "Content-Security-Policy: default-src 'none'; base-uri 'none'; form-action 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n";

Withdraw LeafTake(const Backend& backend, IdSource source, const Call& call, Respond respond) {
  const Take take{
      .dialect = Dialect::kLeaf,
      .ids = {.source = source,
              .tag = source == IdSource::kSegment ? std::string_view(call.target.segments[3]) : "",
              .patience = {backend.options.request_timeout, backend.options.leaf_wait}},
      .type = IdsType::kLines,
      .raw_path = call.target.raw_path};
  return ServeTake(backend, take, call.request, std::move(respond));
}

// What Java's Long.parseLong makes of a text in ASCII; nothing where it throws.
std::optional<std::int64_t> ParseJavaLong(std::string_view text) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  return ParseWhole<std::int64_t>(text);
}

Response LeafPage(std::string body) {
  Response response;
  response.content_type = kHtml;
  response.headers = kNothingActive;
  response.body = std::move(body);
  return response;
}

// Why one of the pages cannot be told; nothing if it can.
std::optional<Response> RefuseLeafPage(const Backend& backend, const Call& call) {
  if (backend.issuer.Disabled(IdSource::kSegment)) {
    return LeafPlainError(backend, 500, "You should config leaf.segment.enable=true first",
                          call.target.raw_path, "java.lang.IllegalArgumentException");
  }
  if (backend.unread.reports.full()) return V1Error(backend, TooManyUnread());
  return std::nullopt;
}

}  // namespace

Withdraw LeafSegment(Backend& backend, const Call& call, Respond respond) {
  // A name that cannot be a tag is an unknown tag to Leaf's clients.
  if (!ValidateTag(call.target.segments[3]).ok())
    return AtOnce(respond, LeafError(backend, kLeafUnknownTag, call.target.raw_path));
  return LeafTake(backend, IdSource::kSegment, call, std::move(respond));
}

// Any name will do: Java Leaf does not look at it.
Withdraw LeafSnowflake(Backend& backend, const Call& call, Respond respond) {
  return LeafTake(backend, IdSource::kSnowflake, call, std::move(respond));
}

Withdraw LeafDecode(Backend& backend, const Call& call, Respond respond) {
  const Request& request = call.request;
  if (const auto over = backend.issuer.RefuseOther())
    return AtOnce(respond, LeafPlainError(backend, 429, over->message, call.target.raw_path));
  // A servlet's parameters are those of the query and those of a posted form, together.
  const bool has_query = request.target.find('?') != std::string_view::npos;
  const std::string text = fmt::format("{}{}{}", request.target, has_query ? '&' : '?', request.form);
  const auto with_form = ParseTarget(text);
  const auto parameter = (with_form.ok() ? *with_form : call.target).Parameter("snowflakeId");
  if (parameter.ok() && !*parameter) {
    return AtOnce(respond,
                  LeafPlainError(backend, 400, "Required String parameter 'snowflakeId' is not present",
                                 call.target.raw_path,
                                 "org.springframework.web.bind.MissingServletRequestParameterException"));
  }
  // One that is there twice is joined by a comma in Java, which is no number either.
  const auto id = parameter.ok() ? ParseJavaLong(**parameter) : std::nullopt;
  if (!id) return AtOnce(respond, JsonResponse(200, Json{{"errorMsg", "snowflake Id反解析发生异常!"}}));
  // Signed, as in Java: a negative number has a time before the epoch.
  const core::IdLayout& layout = backend.options.layout;
  const std::int64_t time = *id >> (layout.worker_bits() + layout.sequence_bits());
  const core::IdFields fields = layout.Decompose(static_cast<std::uint64_t>(*id) & kMaxIdLimit);
  const WallTime wall = WallTimeOf(time + layout.epoch_ms());
  return AtOnce(
      respond,
      JsonResponse(200, Json{{"workerId", std::to_string(fields.worker)},
                             {"sequenceId", std::to_string(fields.sequence)},
                             {"timestamp", fmt::format("{}({})", UnixMillis(wall), FormatLocal(wall))}}));
}

Withdraw LeafCache(Backend& backend, const Call& call, Respond respond) {
  if (auto refused = RefuseLeafPage(backend, call)) return AtOnce(respond, std::move(*refused));
  return PostReport(
      backend, ReportLane(backend, call), backend.unread.reports, std::move(respond),
      [segment = backend.issuer.ids().segment(), language = std::string(call.request.accept_language)] {
        std::vector<java::LeafView> tags;
        for (service::TagRanges& tag : segment->Ranges())
          tags.push_back(java::LeafViewOf(std::move(tag.tag), tag.granted, tag.held, tag.recent));
        return LeafPage(java::CachePage(std::move(tags), language));
      });
}

Withdraw LeafDb(Backend& backend, const Call& call, Respond respond) {
  if (auto refused = RefuseLeafPage(backend, call)) return AtOnce(respond, std::move(*refused));
  backend.issuer.ids().segment()->ReadTable(
      [&backend, language = std::string(call.request.accept_language),
       path = std::string(call.target.raw_path),
       respond = std::move(respond)](Result<std::vector<core::TagRow>> table) {
        if (!table.ok()) {
          const int status = table.error().code == ErrorCode::kLimited ? 429 : 500;
          return respond(LeafPlainError(backend, status, table.error().message, path));
        }
        respond(LeafPage(java::DbPage(std::move(*table), language)));
      });
  return nullptr;
}

}  // namespace leaf::server
