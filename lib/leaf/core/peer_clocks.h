// Comparing this node's clock with those of its peers: the check at start that Leaf's authors published and
// never built (leaf-compat §7), with a median instead of their average, which one wild clock can move
// anywhere.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/core/peer_directory.h"

namespace leaf::core {

// What one peer answered.
struct PeerClock {
  std::string address;
  std::chrono::milliseconds ahead{};  // of the peer's wall clock over ours; negative if it is behind
  // Half the time that the answer took: `ahead` is right to within this.
  std::chrono::milliseconds uncertainty{};
  bool is_older = false;  // of a version before 0.2, which puts nothing back that the registry has forgotten
};

// Port: thread-safe; blocks for as long as the slowest peer may take.
class PeerClocks {
 public:
  virtual ~PeerClocks() = default;
  // Those of `peers` that answered.
  virtual std::vector<PeerClock> Ask(std::span<const Peer> peers) = 0;
};

// Of the median answer, what is certain: nearer to zero by its uncertainty. Of two middle ones the one nearer
// to zero. Zero without answers.
std::chrono::milliseconds MedianAhead(std::span<const PeerClock> answers);

// Whether a node may start: the median is within `threshold`. No answer is no objection.
// Errors: kClock that names what each said.
Result<void> JudgeAtStart(std::span<const PeerClock> answers, std::chrono::milliseconds threshold);

// Whether a node that runs may go on: stopped only if at least two peers, and more than half of all clocks
// including its own, are off to the same side. One bad peer then stops no node, and neither do two that
// disagree.
Result<void> JudgeRunning(std::span<const PeerClock> answers, std::chrono::milliseconds threshold);

}  // namespace leaf::core
