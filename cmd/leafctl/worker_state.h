// What the state directory knows of its worker, for commands.
#pragma once

#include <fmt/format.h>

#include <string>

#include "leaf/base/result.h"
#include "leaf/core/worker_ports.h"
#include "leaf/sys/worker_state_file.h"

namespace leaf::cmd {

inline Error NoWorkerState(const std::string& state_dir) {
  return {ErrorCode::kNotFound, fmt::format("no worker has its state in {}", state_dir),
          "name the daemon's state directory with --state-dir"};
}

// The state of a directory whose worker has a number. Errors: kNotFound, and those of the file.
inline Result<core::WorkerState> LoadWorkerState(sys::WorkerStateFile& file, const std::string& state_dir) {
  LEAF_ASSIGN_OR_RETURN(auto state, file.Load());
  if (state && state->worker) return *std::move(state);
  return NoWorkerState(state_dir);
}

}  // namespace leaf::cmd
