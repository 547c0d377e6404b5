// Who this process is, for people who read it later and elsewhere.
#pragma once

#include <string>
#include <string_view>

namespace leaf::sys {

// This machine's name; "" if it has none.
std::string HostName();

// "leafctl COMMAND, process 77 on db1".
std::string ProcessName(std::string_view command);

}  // namespace leaf::sys
