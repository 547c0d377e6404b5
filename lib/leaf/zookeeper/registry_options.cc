#include "leaf/zookeeper/registry_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "leaf/base/text.h"
#include "leaf/zookeeper/folders.h"

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
  LEAF_RETURN_IF_ERROR(EnsureFolders(client, tree, tree.Folders()));

  const std::string path = tree.Properties();
  const auto check = [&](const NodeData& node) -> Result<void> {
    const auto stored = ParseProperties(node.data);
    if (!stored.ok()) return UnusableNode(path, stored.error());
    return CheckSameProperties(*stored, properties, fmt::format("{} in ZooKeeper", Quoted(path)));
  };
  LEAF_ASSIGN_OR_RETURN(const auto stored, client.Get(path));
  if (stored) return check(*stored);
  LEAF_ASSIGN_OR_RETURN(const WriteOutcome made,
                        client.Write({Operation::CreateOwn(path, FormatProperties(properties))}));
  if (made.done()) return {};
  // Another node was first.
  LEAF_ASSIGN_OR_RETURN(const auto theirs, client.Get(path));
  if (!theirs) return Error{ErrorCode::kUnavailable, "the cluster's nodes are being removed", "retry"};
  return check(*theirs);
}

}  // namespace leaf::zookeeper
