#pragma once

#include <string>

namespace leaf::sys {

// Identifies this boot of the machine: boot times of one boot can be compared. "" if the system does not
// tell.
std::string ReadBootId();

}  // namespace leaf::sys
