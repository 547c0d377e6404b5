// What can be seen on this machine of how leafctl is set up here. Changes nothing: no file is made, locked or
// written, no port is bound.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/core/diagnosis.h"

namespace leaf::sys {

// The configuration file: that nobody but its owner, who is root or us, can change it.
core::Diagnosis InspectConfigFile(const std::string& path);

// A secret file, by the rules of ReadSecretFile. `check`: "mysql-password".
core::Diagnosis InspectSecretFile(std::string check, const std::string& path);

// That the directory exists (a missing one is made at the first start), is its owner's alone and writable for
// us, and has room.
std::vector<core::Diagnosis> InspectStateDir(const std::string& path);

// The process that holds the state directory's lock, seen from outside. Nothing if nobody does.
struct LockHolder {
  std::string pid;
};
std::optional<LockHolder> FindLockHolder(const std::string& state_dir);

// Whether some program listens on the TCP port on this machine.
bool IsPortInUse(std::uint16_t port);

// Room for `connections` and what leafctl itself has open, by the hard limit.
core::Diagnosis InspectOpenFileLimit(std::int64_t connections);

// Whether the kernel believes that the clock is kept in step with others.
core::Diagnosis InspectClockSync();

// What the unit file says to what the configuration says. `text`: of the file, with its drop-ins behind it.
struct UnitExpectation {
  std::string state_dir;
  std::string config_file;  // "" for none
  std::int64_t connections = 0;
};
std::vector<core::Diagnosis> InspectUnitText(const std::string& path, std::string_view text,
                                             const UnitExpectation& expectation);
// The unit leafctl.service where systemd looks for it; one that is ok if there is none.
std::vector<core::Diagnosis> InspectUnit(const UnitExpectation& expectation);

}  // namespace leaf::sys
