#include "tag_order.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "leaf/base/text.h"
#include "leaf/sys/process_name.h"

namespace leaf::cmd {
namespace {

constexpr std::chrono::milliseconds kPoll{50};
constexpr std::string_view kOlder = "an older version, or it may not write to leafctl_nodes";

bool IsIn(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string NodeText(const core::OrderNode& node) {
  return fmt::format("{} ({})", node.id, Printable(node.process));
}

}  // namespace

Result<void> TagOrderDesk::Check(const std::string& tag, const std::vector<std::string>& gone) {
  LEAF_ASSIGN_OR_RETURN(const auto nodes, ports_.orders.Nodes());
  for (const std::string& name : gone) {
    const bool listed =
        std::any_of(nodes.begin(), nodes.end(), [&](const core::OrderNode& node) { return node.id == name; });
    if (listed) continue;
    std::vector<std::string> there;
    there.reserve(nodes.size());
    for (const core::OrderNode& node : nodes) there.push_back(NodeText(node));
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("bad --gone {}: no such node is listed", Quoted(name)),
                 there.empty() ? "no node is listed" : fmt::format("listed: {}", fmt::join(there, ", "))};
  }
  std::vector<std::string> falling_back;
  for (const core::OrderNode& node : nodes) {
    if (node.fallback && !IsIn(gone, node.id)) falling_back.push_back(NodeText(node));
  }
  if (!falling_back.empty() || ports_.fallback) {
    return Error{
        ErrorCode::kRefused,
        fmt::format("cannot make tag {} strict: segment.witness_fallback is true {}", Quoted(tag),
                    falling_back.empty() ? "here" : fmt::format("on {}", fmt::join(falling_back, ", "))),
        "a strict tag must not go on without the witness: set segment.witness_fallback = false"};
  }
  return {};
}

Result<std::vector<std::string>> TagOrderDesk::Missing(std::uint64_t version) {
  LEAF_ASSIGN_OR_RETURN(const auto nodes, ports_.orders.Nodes());
  std::vector<std::string> missing;
  for (const core::OrderNode& node : nodes) {
    if (node.acknowledged < version) missing.push_back(NodeText(node));
  }
  if (ports_.holder != 0) {
    const std::string process = fmt::format(", process {} on {}", ports_.holder, sys::HostName());
    if (std::none_of(nodes.begin(), nodes.end(),
                     [&](const core::OrderNode& node) { return node.process.ends_with(process); })) {
      missing.push_back(fmt::format("process {}, which has the state directory of this command ({})",
                                    ports_.holder, kOlder));
    }
  }
  if (!ports_.daemons) return missing;
  // A daemon of an older version is known to ZooKeeper, and not on the table's list.
  LEAF_ASSIGN_OR_RETURN(const auto daemons, ports_.daemons());
  for (const zookeeper::DaemonRecord& daemon : daemons) {
    const bool listed = std::any_of(nodes.begin(), nodes.end(), [&](const core::OrderNode& node) {
      return node.process == daemon.process;
    });
    if (!listed) missing.push_back(fmt::format("{} ({})", Printable(daemon.process), kOlder));
  }
  return missing;
}

Result<sql::SqlTagOrders::Begun> TagOrderDesk::Await(const std::string& tag,
                                                     const std::vector<std::string>& gone) {
  LEAF_RETURN_IF_ERROR(Check(tag, gone));
  // One that is not gone after all enters itself again, before it acknowledges.
  for (const std::string& name : gone) LEAF_RETURN_IF_ERROR(ports_.orders.Leave(name));
  LEAF_ASSIGN_OR_RETURN(const sql::SqlTagOrders::Begun begun, ports_.orders.Begin(tag));
  if (begun.since) return begun;
  if (ports_.look) ports_.look();
  const MonotonicTime deadline = ports_.clock.Monotonic() + ports_.patience;
  const auto await = [&]() -> Result<void> {
    while (true) {
      const bool late = ports_.clock.Monotonic() >= deadline;
      const auto missing = Missing(begun.version);
      if (missing.ok() && missing->empty()) return {};
      // The database, or ZooKeeper, may answer the next time.
      if (!missing.ok() && (late || missing.error().code != ErrorCode::kUnavailable)) return missing.error();
      if (late) {
        return Error{ErrorCode::kRefused,
                     fmt::format("cannot make tag {} strict: not acknowledged by {}", Quoted(tag),
                                 fmt::join(*missing, ", ")),
                     "start these nodes, or stop them; --gone ID confirms that one has ended for good and "
                     "issues no more IDs"};
      }
      ports_.clock.WaitUntil(ports_.clock.Monotonic() + kPoll);
    }
  };
  if (auto awaited = await(); !awaited.ok()) {
    Error error = std::move(awaited).error();
    if (const auto abandoned = ports_.orders.Abandon(tag, begun.version); !abandoned.ok())
      error.message += fmt::format(" (and the tag is still to be strict: {})", abandoned.error().message);
    return error;
  }
  return begun;
}

}  // namespace leaf::cmd
