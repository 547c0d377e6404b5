#pragma once

#include <string>

namespace leaf::sys {

// Identifies this boot of the machine: boot times of one boot can be compared. "" if the system does not
// tell.
std::string ReadBootId();

// Identifies this machine, or this container: systemd's machine-id, else the host's name; "" if there is
// neither.
std::string ReadMachineId();

}  // namespace leaf::sys
