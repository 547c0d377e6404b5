#pragma once

#include <string>

namespace leaf::sys {

// Identifies this boot of the machine: boot times of one boot can be compared. "" if the system does not
// tell.
std::string ReadBootId();

// Identifies a folder where it is: by systemd's machine-id, the folder's inode and the time at which it was
// made, since folders of two file systems can have one inode number. Without a machine-id, as in most
// containers, by the latter two: a container that is made anew with the same volume finds the same place. A
// copy of the folder has another, whether it is here or elsewhere. "" if it cannot be told. Two of them are
// compared with core::IsSamePlace.
std::string ReadPlaceId(const std::string& folder, const char* machine_id_file = "/etc/machine-id");

}  // namespace leaf::sys
