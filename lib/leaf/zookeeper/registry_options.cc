#include "leaf/zookeeper/registry_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "leaf/base/duration.h"
#include "leaf/base/text.h"
#include "leaf/zookeeper/folders.h"
#include "leaf/zookeeper/session.h"

namespace leaf::zookeeper {
namespace {

// Numbers that are passed over in one transaction, which has a limit of 1 MB by default.
constexpr std::uint64_t kPassedOverMax = 1024;

}  // namespace

std::chrono::milliseconds RegistryOptions::WatchTime() const {
  return claim_watch.value_or(std::max(kStaleMax, window) + kOwnerMargin);
}

Error UnusableNode(std::string_view path, const Error& why) {
  return {ErrorCode::kRefused, fmt::format("cannot use {} in ZooKeeper: {}", Quoted(path), why.message),
          "run `leafctl worker check`: the record decides which IDs may have been issued"};
}

Error InterruptedClaim() {
  return {ErrorCode::kUnavailable, "interrupted while a worker number was claimed", ""};
}

bool WaitTowards(const Clock& clock, BootTime end, const std::atomic<bool>& interrupted) {
  const BootTime now = clock.Boot();
  if (now >= end || interrupted.load()) return false;
  clock.WaitUntil(clock.Monotonic() + std::min<std::chrono::nanoseconds>(end - now, kWatchPoll));
  return true;
}

Result<void> PrepareTree(Client& client, const Tree& tree, const PropertiesRecord& properties,
                         bool make_properties) {
  LEAF_RETURN_IF_ERROR(EnsureFolders(client, tree, tree.Folders()));

  const std::string path = tree.Properties();
  const auto check = [&](const NodeData& node) -> Result<void> {
    const auto stored = ParseProperties(node.data);
    if (!stored.ok()) return UnusableNode(path, stored.error());
    return CheckSameProperties(*stored, properties, fmt::format("{} in ZooKeeper", Quoted(path)));
  };
  LEAF_ASSIGN_OR_RETURN(const auto stored, client.Get(path));
  if (stored) return check(*stored);
  if (!make_properties) return {};
  LEAF_ASSIGN_OR_RETURN(const WriteOutcome made,
                        client.Write({Operation::CreateOwn(path, FormatProperties(properties))}));
  if (made.done()) return {};
  // Another node was first.
  LEAF_ASSIGN_OR_RETURN(const auto theirs, client.Get(path));
  if (!theirs) return Error{ErrorCode::kUnavailable, "the cluster's nodes are being removed", "retry"};
  return check(*theirs);
}

Result<void> WatchForOwners(Client& client, const Tree& tree, const RegistryOptions& options,
                            const Clock& clock, Logger& log, const std::atomic<bool>& interrupted,
                            std::string_view why) {
  const std::int64_t session = client.session_id();
  const std::chrono::milliseconds time = options.WatchTime();
  log.Warning(
      "{}: watching ZooKeeper for {} first, in case it was restored from a backup, or wiped, and the number "
      "is another node's",
      why, FormatDuration(time));
  const BootTime end = clock.Boot() + time;
  while (WaitTowards(clock, end, interrupted)) {
    // While the servers do not answer, owners cannot come back either.
    LEAF_RETURN_IF_ERROR(client.Exists(tree.Own()));
  }
  if (interrupted.load()) return InterruptedClaim();
  if (session == 0 || client.session_id() != session) {
    return Error{ErrorCode::kUnavailable,
                 "the session with ZooKeeper changed while a worker number was watched", "retry"};
  }
  return {};
}

std::vector<Operation> RecreateNumber(const Tree& tree, const NodeStat& forever, std::string_view address,
                                      std::uint64_t worker, WallTime now) {
  const std::string path = tree.ForeverNode(FormatForeverName(address, worker));
  const std::string data = FormatForeverData(address, now);
  std::vector<Operation> operations;
  // Each node that is made counts, and one that is removed in the same transaction was never seen.
  const std::uint64_t next = NextForeverNumber(forever.child_version, forever.children);
  const std::uint64_t passed_over = worker > next ? std::min(worker - next, kPassedOverMax) : 0;
  for (std::uint64_t i = 0; i < passed_over; ++i) {
    operations.push_back(Operation::Create(path, data));
    operations.push_back(Operation::Delete(path, Operation::kAnyVersion));
  }
  if (next + passed_over >= worker) operations.push_back(Operation::Create(path, data));
  return operations;
}

}  // namespace leaf::zookeeper
