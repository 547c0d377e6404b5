#pragma once

#include <string>

namespace leaf::sys {

// Identifies this boot of the machine: boot times of one boot can be compared. "" if the system does not
// tell.
std::string ReadBootId();

// Identifies a folder on this machine, or in this container: systemd's machine-id, else the host's name, and
// the folder's inode. A copy of the folder has another, whether it is here or elsewhere. "" if it cannot be
// told.
std::string ReadPlaceId(const std::string& folder);

}  // namespace leaf::sys
