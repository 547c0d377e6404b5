// The files of dashboard/, as the build has put them into the program (dashboard/embed.cmake).
#pragma once

#include <string_view>

namespace leaf::server {

extern const std::string_view kDashboardHtml;
extern const std::string_view kDashboardCss;
extern const std::string_view kDashboardJs;

}  // namespace leaf::server
