// What can be seen on this machine of how leafctl is set up here. Changes nothing: no file is made, locked or
// written, no port is bound.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/time.h"
#include "leaf/config/config.h"
#include "leaf/inspect/diagnosis.h"

namespace leaf::inspect {

// The configuration file: that only its owner can change it, and that the owner is root or us.
Diagnosis InspectConfigFile(const std::string& path);

// A secret file, by the rules of ReadSecretFile. `check`: "mysql-password".
Diagnosis InspectSecretFile(std::string check, const std::string& path);
// A file of tokens (auth.tokens_file), and whether each is still good. `is_needed`: callers without a token
// may do nothing.
Diagnosis InspectTokens(const std::string& path, WallTime now, bool is_needed);

// That the directory exists (a missing one is made at the first start), is its owner's alone and writable for
// us, and has room.
std::vector<Diagnosis> InspectStateDir(const std::string& path);

// The process that holds the state directory's lock, seen from outside. Nothing if no process does.
struct LockHolder {
  std::string pid;
};
std::optional<LockHolder> FindLockHolder(const std::string& state_dir);

// Whether some program listens on the TCP port on this machine.
bool IsPortInUse(std::uint16_t port);

// Room for `connections` and what leafctl itself has open, by the hard limit.
Diagnosis InspectOpenFileLimit(std::int64_t connections, std::uint64_t own_files);
// What a daemon has open beside connections, with room to spare: threads, listeners, the database, files, and
// connections that are told that there is no place.
std::uint64_t OwnFilesOf(const config::Config& config);

// Whether the kernel believes that the clock is kept in step with others.
Diagnosis InspectClockSync();

// What the unit file says to what the configuration says. `text`: of the file, with its drop-ins behind it.
struct UnitExpectation {
  std::string state_dir;
  std::string config_file;  // "" for none
  std::int64_t connections = 0;
  std::uint64_t own_files = 0;
};
std::vector<Diagnosis> InspectUnitText(const std::string& path, std::string_view text,
                                       const UnitExpectation& expectation);
// The unit leafctl.service where systemd looks for it; one that is ok if there is none.
std::vector<Diagnosis> InspectUnit(const UnitExpectation& expectation);

}  // namespace leaf::inspect
