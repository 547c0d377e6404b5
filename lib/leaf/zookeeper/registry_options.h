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
  // How far IDs of the cluster may be ahead of the clock.
  std::chrono::milliseconds window{0};
  // How long a number that is new to this node is watched before its first ID; nothing for the rule.
  std::optional<std::chrono::milliseconds> claim_watch{0};
  bool watches_claims() const { return claim_watch != std::chrono::milliseconds{0}; }
  std::chrono::milliseconds WatchTime() const;
};

// How much longer an owner whose number was forgotten needs than to notice that its connection is lost for
// good (kStaleMax): to reconnect, and to report, with calls that take their time; and how far clocks may
// differ.
inline constexpr std::chrono::milliseconds kOwnerMargin{10'000};

// Makes what is missing of the cluster's folders, and compares the cluster's properties with what is stored.
// Where there is none `make_properties` says whether they are stored. Anything may be repeated; an empty
// `forever` of ours is harmless to Java. Errors: kRefused (properties differ, or cannot be read), kConfig (no
// chroot), and those of Client.
Result<void> PrepareTree(Client& client, const Tree& tree, const PropertiesRecord& properties,
                         bool make_properties);

// Why a number is watched that is new to its node.
inline constexpr std::string_view kNewNumber =
    "this node needs a worker number that its state directory did not hold before";

// Logs `why`, and waits until the servers have answered for options.WatchTime(): each node that owns a number
// has put its records back by then, or is cut off. Errors: kUnavailable (they did not answer all the time, or
// the session changed; interrupted).
Result<void> WatchForOwners(Client& client, const Tree& tree, const RegistryOptions& options,
                            const Clock& clock, Logger& log, const std::atomic<bool>& interrupted,
                            std::string_view why = kNewNumber);

// What it takes to make the number `worker` of `address` anew under `forever` where it was forgotten, as part
// of one transaction: Leaf's counter of numbers, as `forever` has it, is moved beyond it. Where that is too
// much for one transaction, a part of it, which ends with a removal.
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
