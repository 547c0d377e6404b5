// What both registries are told, and the steps they share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "leaf/base/clock.h"
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
};

// Makes what is missing of the cluster's folders, and compares the cluster's properties with what is stored,
// or stores them. Anything may be repeated; an empty `forever` of ours is harmless to Java. Errors: kRefused
// (properties differ, or cannot be read), kConfig (no chroot), and those of Client.
Result<void> PrepareTree(Client& client, const Tree& tree, const PropertiesRecord& properties);

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
