#include "leaf/zookeeper/registry_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "leaf/base/text.h"

namespace leaf::zookeeper {

Error UnusableNode(std::string_view path, const Error& why) {
  return {ErrorCode::kRefused, fmt::format("cannot use {} in ZooKeeper: {}", Quoted(path), why.message),
          "look at it with `leafctl worker check`: what it says decides which IDs may have been issued"};
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

Result<void> PrepareTree(Client& client, const Tree& tree, const PropertiesRecord& properties) {
  const std::vector<std::string> folders = tree.Folders();
  LEAF_ASSIGN_OR_RETURN(const auto found, client.GetAll(folders));
  for (std::size_t i = 0; i < folders.size(); ++i) {
    if (found[i]) continue;
    LEAF_ASSIGN_OR_RETURN(const WriteOutcome made, client.Write({Operation::Create(folders[i], "")}));
    if (made.conflict == WriteOutcome::Conflict::kMissing) {
      if (i > 0) return Error{ErrorCode::kUnavailable, "the cluster's nodes are being removed", "retry"};
      // Made by us, a mistyped one would be a universe of its own, with all the numbers of the real one.
      return Error{ErrorCode::kConfig, "the chroot of zookeeper.connect does not exist",
                   "correct it, or create it in ZooKeeper"};
    }
  }

  const std::string path = tree.Properties();
  const auto check = [&](const NodeData& node) -> Result<void> {
    const auto stored = ParseProperties(node.data);
    if (!stored.ok()) return UnusableNode(path, stored.error());
    return CheckSameProperties(*stored, properties, fmt::format("{} in ZooKeeper", Quoted(path)));
  };
  LEAF_ASSIGN_OR_RETURN(const auto stored, client.Get(path));
  if (stored) return check(*stored);
  LEAF_ASSIGN_OR_RETURN(const WriteOutcome made,
                        client.Write({Operation::Create(path, FormatProperties(properties))}));
  if (made.done()) return {};
  // Another node was first.
  LEAF_ASSIGN_OR_RETURN(const auto theirs, client.Get(path));
  if (!theirs) return Error{ErrorCode::kUnavailable, "the cluster's nodes are being removed", "retry"};
  return check(*theirs);
}

}  // namespace leaf::zookeeper
