#include "tag_order.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "leaf/base/text.h"
#include "leaf/sys/process_name.h"

namespace leaf::cmd {
namespace {

constexpr std::chrono::milliseconds kPoll{50};
// For a tag that is strict already: nodes look every 2 s, and a short --timeout was enough before they were
// asked.
constexpr std::chrono::seconds kSecondLook{5};
constexpr std::string_view kOlder =
    "an older version, or it may not write to leafctl_nodes, or it has not looked since the table was made";

bool IsIn(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The database, or ZooKeeper, may answer the next time.
bool MayPass(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kOutcomeUnknown;
}

std::string NodeText(const core::OrderNode& node) {
  return fmt::format("{} ({})", node.id, Printable(node.process));
}

bool IsNodeId(std::string_view text) {
  constexpr std::size_t kDigits = 16;
  return text.size() == kDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

Result<void> TagOrderDesk::Check(const std::string& tag, const std::vector<std::string>& gone) {
  LEAF_ASSIGN_OR_RETURN(const auto nodes, ports_.orders.Nodes());
  for (const std::string& name : gone) {
    const bool listed =
        std::any_of(nodes.begin(), nodes.end(), [&](const core::OrderNode& node) { return node.id == name; });
    // One that is not listed any more was confirmed before, or has left by itself.
    if (listed || IsNodeId(name)) continue;
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

Result<core::WitnessState> TagOrderDesk::Witnessed(const std::string& tag) {
  if (ports_.fence == nullptr) return core::WitnessState{};
  return ports_.fence->StateOf(tag);
}

Result<void> TagOrderDesk::Note(const core::OrderRow& row) {
  if (ports_.fence == nullptr) return {};
  LEAF_ASSIGN_OR_RETURN(auto seen, Witnessed(row.tag));
  return ports_.fence->NoteOrder(row, std::move(seen));
}

Result<std::uint64_t> TagOrderDesk::Complete(const std::string& tag, const sql::SqlTagOrders::Begun& begun) {
  if (begun.since) {
    // Nothing is written here that another command's change, while this one waited, would refuse.
    LEAF_ASSIGN_OR_RETURN(const bool stands, Stands(tag, begun));
    if (stands) return *begun.since;
    return Error{ErrorCode::kRefused,
                 fmt::format("cannot make tag {} strict: another command has changed its order meanwhile",
                             Quoted(tag)),
                 TagCommand("show", tag)};
  }
  // The database may have lost grants: IDs below what the witness has seen may have been issued before.
  LEAF_ASSIGN_OR_RETURN(const core::WitnessState witnessed, Witnessed(tag));
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t since, ports_.orders.Complete(tag, begun.version, witnessed.end));
  // That the tag is strict is remembered already. Nodes add from which ID on, if this cannot.
  (void)Note({tag, core::TagOrder::kStrict, since, begun.version});
  return since;
}

Result<bool> TagOrderDesk::End(const std::string& tag, bool listed) {
  // Where the witness cannot be read, nodes tell it later. Only if the table has lost the order at the same
  // time, and counts lower, is the change taken for an older one.
  const auto witnessed = Witnessed(tag);
  const bool remembered = witnessed.ok() && witnessed->strict;
  if (!listed && !remembered) return false;
  LEAF_ASSIGN_OR_RETURN(const auto version,
                        ports_.orders.End(tag, remembered ? witnessed->strict->version : 0));
  if (version) (void)Note({tag, core::TagOrder::kTrend, std::nullopt, *version});
  return version.has_value();
}

Result<bool> TagOrderDesk::Stands(const std::string& tag, const sql::SqlTagOrders::Begun& begun) {
  LEAF_ASSIGN_OR_RETURN(const auto table, ports_.orders.Read());
  return table && std::any_of(table->rows.begin(), table->rows.end(), [&](const core::OrderRow& row) {
           return row.tag == tag && row.order == core::TagOrder::kStrict && row.version == begun.version;
         });
}

// What the table may have lost, and what the witness remembers, is put back first: a change that fails must
// not end an order that holds.
Result<void> TagOrderDesk::PutBack(const std::string& tag) {
  LEAF_ASSIGN_OR_RETURN(const core::WitnessState witnessed, Witnessed(tag));
  if (!witnessed.strict) return {};
  return ports_.orders.Restore(
      {tag, core::TagOrder::kStrict, witnessed.strict->since, witnessed.strict->version});
}

bool TagOrderDesk::IsLate(MonotonicTime deadline) const {
  return ports_.clock.Monotonic() >= deadline || IsEnding();
}

Result<void> TagOrderDesk::AwaitAll(const core::OrderRow& row, std::uint64_t awaited,
                                    MonotonicTime deadline) {
  bool noted = ports_.fence == nullptr;
  while (true) {
    const bool late = IsLate(deadline);
    const auto missing = Missing(awaited);
    if (missing.ok() && missing->empty() && noted) return {};
    std::optional<Error> problem;
    if (!missing.ok()) {
      problem = missing.error();
    } else if (missing->empty()) {
      // Before the promise begins: from now on a failover may lose the row. A node that has started
      // meanwhile, and saw no note, is waited for.
      const auto note = Note(row);
      noted = note.ok();
      if (noted) continue;
      problem = note.error();
    } else if (late) {
      return Error{
          ErrorCode::kRefused,
          fmt::format("{}: not acknowledged by {}{}",
                      row.since ? fmt::format("tag {} is strict, but not on all nodes", Quoted(row.tag))
                                : fmt::format("cannot make tag {} strict", Quoted(row.tag)),
                      fmt::join(*missing, ", "), IsEnding() ? ", and this process ends" : ""),
          "start these nodes, or stop them; leafctl tag set --order strict --gone ID confirms that one has "
          "ended for good and issues no more IDs"};
    }
    if (problem && (late || !MayPass(*problem))) return *problem;
    ports_.clock.WaitUntil(ports_.clock.Monotonic() + kPoll);
  }
}

Result<sql::SqlTagOrders::Begun> TagOrderDesk::Await(const std::string& tag,
                                                     const std::vector<std::string>& gone,
                                                     const std::function<Result<void>()>& on_begun) {
  LEAF_RETURN_IF_ERROR(Check(tag, gone));
  const MonotonicTime deadline = ports_.clock.Monotonic() + ports_.patience;
  auto put_back = PutBack(tag);
  while (!put_back.ok() && MayPass(put_back.error()) && !IsLate(deadline)) {
    ports_.clock.WaitUntil(ports_.clock.Monotonic() + kPoll);
    put_back = PutBack(tag);
  }
  if (!put_back.ok()) return std::move(put_back).error();
  // One that is not gone after all enters itself again, before it acknowledges.
  for (const std::string& name : gone) LEAF_RETURN_IF_ERROR(ports_.orders.Leave(name));
  while (true) {
    LEAF_ASSIGN_OR_RETURN(const sql::SqlTagOrders::Begun begun, ports_.orders.Begin(tag));
    if (on_begun) {
      if (auto goes_on = on_begun(); !goes_on.ok()) return GiveUp(tag, begun, std::move(goes_on).error());
    }
    const core::OrderRow row{tag, core::TagOrder::kStrict, begun.since, begun.version};
    if (ports_.look) ports_.look();
    auto awaited =
        AwaitAll(row, begun.awaited,
                 begun.was_strict ? std::max(deadline, ports_.clock.Monotonic() + kSecondLook) : deadline);
    if (!awaited.ok()) return GiveUp(tag, begun, std::move(awaited).error());
    if (!begun.was_strict || begun.since || IsLate(deadline)) return begun;
    // The command whose change this one has joined may have given up meanwhile.
    LEAF_ASSIGN_OR_RETURN(const bool stands, Stands(tag, begun));
    if (stands) return begun;
  }
}

Error TagOrderDesk::GiveUp(const std::string& tag, const sql::SqlTagOrders::Begun& begun, Error error) {
  // Another command waits for it, or has ended before it could; or it is promised, and the table has lost
  // since when.
  if (begun.was_strict) return error;
  // Another command may have promised it, and the table have lost that.
  const auto put_back = PutBack(tag);
  const auto abandoned =
      put_back.ok() ? ports_.orders.Abandon(tag, begun.version) : Result<bool>(put_back.error());
  if (!abandoned.ok()) {
    error.message += fmt::format(" (and the tag may still be to be strict: {})", abandoned.error().message);
  } else if (*abandoned) {
    error.message +=
        " (and the tag is to be strict all the same: another command, or a node, has written that)";
  }
  return error;
}

}  // namespace leaf::cmd
