// The worker state of a state directory: `<state_dir>/snowflake.state`.
//
// Text, one "name value" a line in a fixed order, begun by the format's name and version, ended by a checksum
// of everything before it. It is read strictly: a file that is not exactly what Store wrote is refused, since
// a ceiling that is guessed too low repeats IDs.
#pragma once

#include <string>
#include <string_view>

#include "leaf/core/worker_ports.h"
#include "leaf/sys/file_ops.h"

namespace leaf::sys {

// Thread-safe as far as one Store runs at a time. `ops` outlives it.
class WorkerStateFile final : public core::StateFile {
 public:
  WorkerStateFile(std::string state_dir, FileOps& ops);

  Result<std::optional<core::WorkerState>> Load() override;
  Result<void> Store(const core::WorkerState& state) override;

  const std::string& path() const { return path_; }

  static constexpr std::string_view kName = "snowflake.state";

 private:
  const std::string state_dir_;
  const std::string path_;
  FileOps& ops_;
};

}  // namespace leaf::sys
