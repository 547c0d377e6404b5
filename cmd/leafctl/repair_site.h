// Where `tag repair` works: on the store itself, or through a daemon that is named and serves another one.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "context.h"
#include "leaf/base/result.h"
#include "leaf/config/loader.h"
#include "leaf/core/ports.h"
#include "tag_marks.h"

namespace leaf::cmd {

// Calls block. Not thread-safe. Errors: those of the database or of the daemon.
class RepairSite {
 public:
  virtual ~RepairSite() = default;

  virtual Result<std::vector<core::TagRow>> List() = 0;
  virtual Result<core::TagRow> Describe(const std::string& tag) = 0;
  // Finds out whose marks are to be asked for. Errors: also those of the state directory and of the cluster.
  virtual Result<void> Open() = 0;
  // What cannot be asked is in `missing`. Requires: Open.
  virtual Result<Evidence> Collect(const core::TagRow& row) = 0;
  // Moves max_id up to `to` at least.
  virtual Result<core::TagRow> Move(const std::string& tag, std::uint64_t to, core::WriteMode mode) = 0;
};

// Daemons that are named with --server are asked for their marks, as ever. If the first of them that answers
// says that it serves another store than this configuration names, the repair is made through it, and no
// access to its store is needed here; else on the store itself, which needs no role on any daemon.
// Errors: those of Store::Open, and of the file with the token.
Result<std::unique_ptr<RepairSite>> OpenRepairSite(CommandContext& context, bool dry_run);

}  // namespace leaf::cmd
