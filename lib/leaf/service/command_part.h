// The part of a command in the segment mode of a cluster: one grant, beside the daemons and other commands of
// its state directory.
//
// Schedule (M6 in zookeeper/membership.h): the command claims a range; the witness goes back, and a daemon of
// the directory makes its marks known again; then the command's mark is written, which was not among them. So
// the command looks once more between its mark and its first ID, however long it was stopped.
#pragma once

#include <chrono>
#include <functional>

#include "leaf/base/clock.h"
#include "leaf/base/result.h"
#include "leaf/core/membership.h"
#include "leaf/core/ports.h"
#include "leaf/service/cluster_fence.h"

namespace leaf::service {

// What a process with these marks knows to have been granted, and of orders. `marks` outlives it.
ClusterFence::Known KnownFrom(core::MarkStore& marks);

// For one thread, once. Blocks.
class CommandPart {
 public:
  // All of them outlive it. The fence is that of the membership.
  struct Ports {
    ClusterFence& fence;
    core::Membership& membership;
    core::MarkStore& marks;
    const Clock& clock;
  };
  // `watch`: how long a node that is new waits, as its membership has it.
  CommandPart(const Ports& ports, std::chrono::milliseconds watch) : ports_(ports), watch_(watch) {}

  // The grant that `obtain` makes, in the cluster: waits first until ranges can be claimed, `patience` at
  // most, or as long as a node that is new has to wait. Errors: kUnavailable that says why no range can be
  // claimed, or why this one may not be issued; those of `obtain`.
  Result<core::Grant> Obtain(std::chrono::milliseconds patience,
                             const std::function<Result<core::Grant>()>& obtain);

 private:
  Result<void> Await(std::chrono::milliseconds patience);

  const Ports ports_;
  const std::chrono::milliseconds watch_;
};

}  // namespace leaf::service
