// The dashboard's files, compiled in.
#pragma once

#include <string_view>

#include "leaf/server/http/message.h"

namespace leaf::server {

// `name`: "" for the page, "dashboard.css", "dashboard.js"; anything else is 404.
Response DashboardFile(std::string_view name);

}  // namespace leaf::server
