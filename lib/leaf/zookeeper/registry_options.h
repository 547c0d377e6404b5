// What both registries are told, and the steps they share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/base/result.h"
#include "leaf/zookeeper/client.h"
#include "leaf/zookeeper/tree.h"

namespace leaf::zookeeper {

inline constexpr std::string_view kRegistryKind = "zookeeper";

struct RegistryOptions {
  std::string root{kLeafRoot};
  std::string advertise;  // URL where peers reach this node
  std::string host;       // name of this machine, for people
  // Numbers that may be claimed, half-open; the layout may allow fewer.
  std::uint64_t worker_begin = 0;
  std::uint64_t worker_end = 1024;
  std::chrono::milliseconds lease_time{30'000};  // of recycled numbers
  // How long this node's session lasts without a connection; 0 for one that is not told to other nodes.
  std::chrono::milliseconds session_timeout{0};
  // How long a number that is new to this node is watched before its first ID; nothing for ClaimWatch().
  std::optional<std::chrono::milliseconds> claim_watch{0};
  bool watches_claims() const { return claim_watch != std::chrono::milliseconds{0}; }
};

// For how long a number has to be watched that may be another node's, where ZooKeeper has forgotten that (it
// was restored or wiped): longer than the owner needs to come back. It is refused by servers that know less
// than it has seen, so it begins a new session after two time-outs (session.cc); then it reports, within
// seconds.
constexpr std::chrono::milliseconds ClaimWatch(std::chrono::milliseconds longest_session_timeout) {
  return 2 * longest_session_timeout + std::chrono::milliseconds{10'000};
}

// Makes what is missing of the cluster's folders, notes `session_timeout` there, and compares the cluster's
// properties with what is stored, or stores them. Anything may be repeated; an empty `forever` of ours is
// harmless to Java. Errors: kRefused (properties differ, or cannot be read), kConfig (no chroot), and those
// of Client.
Result<void> PrepareTree(Client& client, const Tree& tree, const PropertiesRecord& properties,
                         std::chrono::milliseconds session_timeout);

// Waits until the servers have answered for as long as options.claim_watch, or ClaimWatch of the longest
// session time-out that any node noted: whatever owns a number has put its records back by then, or is cut
// off. Errors: kUnavailable (they did not answer all the time, or the session changed; interrupted).
Result<void> WatchForOwners(Client& client, const Tree& tree, const RegistryOptions& options,
                            const Clock& clock, Logger& log, const std::atomic<bool>& interrupted);

// What it takes to make the number `worker` of `address` anew under `forever` where it was forgotten, as part
// of one transaction: Leaf's counter of numbers, as `forever` has it, is moved beyond it.
std::vector<Operation> RecreateNumber(const Tree& tree, const NodeStat& forever, std::string_view address,
                                      std::uint64_t worker, WallTime now);

// A record that cannot be read is never guessed at. kRefused that names the node.
Error UnusableNode(std::string_view path, const Error& why);

// How far apart a wait looks at what it waits for.
inline constexpr std::chrono::milliseconds kWatchPoll{500};

// Waits one step towards `end` of boot time, which goes on in suspend. False if it has been reached already,
// or `interrupted` is set.
bool WaitTowards(const Clock& clock, BootTime end, const std::atomic<bool>& interrupted);

// What a claim that was interrupted ends with.
Error InterruptedClaim();

}  // namespace leaf::zookeeper
