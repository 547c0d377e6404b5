#include "repair_record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "leaf/sys/durable_file.h"
#include "leaf/sys/file.h"
#include "leaf/sys/file_ops.h"
#include "leaf/sys/state_dir.h"
#include "worker_output.h"

namespace leaf::cmd {
namespace {

// So that the folder itself outlives a crash, like the file in it.
Result<void> SyncDirectory(const std::string& path) {
  const sys::FileHandle directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.valid() && fsync(directory.get()) == 0) return {};
  return sys::FileError(fmt::format("sync {}", path), errno);
}

}  // namespace

Json StepJson(const inspect::RepairStep& step) {
  Json changes = Json::array();
  for (const inspect::RepairChange& change : step.changes) {
    Json json{{"change", inspect::RepairChangeName(change.kind)}};
    using Kind = inspect::RepairChange::Kind;
    if (change.kind == Kind::kWrite || change.kind == Kind::kRemove) {
      json["before"] = RecordJson(change.before);
    } else {
      json["name"] = change.before.name;
      for (const auto& [name, value] : change.before.facts) json[name] = value;
    }
    if (change.kind == Kind::kCreate || change.kind == Kind::kWrite) json["after"] = change.after;
    changes.push_back(std::move(json));
  }
  return {{"code", step.code}, {"what", step.what}, {"why", step.why}, {"changes", std::move(changes)}};
}

Result<std::string> WriteRepairRecord(CommandContext& context, const inspect::WorkerSource& source,
                                      const std::vector<inspect::RepairStep>& steps) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  const std::string& state_dir = resolved->config.state_dir;
  const std::string directory = state_dir + "/repairs";
  LEAF_RETURN_IF_ERROR(sys::EnsureStateDir(state_dir));
  LEAF_RETURN_IF_ERROR(sys::EnsureFolderIn(state_dir, "repairs"));
  LEAF_RETURN_IF_ERROR(SyncDirectory(state_dir));
  const WallTime now = context.clock.Wall();
  // A name that every file system takes.
  std::string name = FormatRfc3339(now);
  std::replace(name.begin(), name.end(), ':', '-');
  name += fmt::format("-{}.json", getpid());
  Json json = WorkerHeading(source);
  json["time"] = FormatRfc3339(now);
  json["steps"] = Json::array();
  for (const inspect::RepairStep& step : steps) json["steps"].push_back(StepJson(step));
  sys::FileOps file_ops;
  LEAF_RETURN_IF_ERROR(sys::ReplaceFile(file_ops, directory, name,
                                        json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"));
  return directory + "/" + name;
}

}  // namespace leaf::cmd
