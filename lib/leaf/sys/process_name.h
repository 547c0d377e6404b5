// What this process is called, for people that read it later and elsewhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace leaf::sys {

// This machine's name; "" if it has none.
std::string HostName();

// What this machine is called: its name, the first part of that, and what `hosts` (/etc/hosts) has for
// loopback addresses. Blocks on that file, but asks no name server.
std::vector<std::string> MachineNames(const std::string& hosts = "/etc/hosts");

// "leafctl COMMAND, process 77 on db1".
std::string ProcessName(std::string_view command);

}  // namespace leaf::sys
