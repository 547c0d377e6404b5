// What a Java Leaf node that ran here before has left in its local file counts as a ceiling: it issued with
// the number that this node is now given, and may have done so for long without telling the registry.
//
// Invariant: no ID has a time below one that Java's file, for the same number, says was reached.
// Schedule that would break it: the fork's Java node runs on while ZooKeeper is away (it needs it for a start
// only) and writes its time to its file alone; it is stopped, the clock is set back, leafctl starts with its
// address. The registry's time is old, and so is the clock.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "leaf/base/logger.h"
#include "leaf/core/worker_ports.h"

namespace leaf::embed {

// How far IDs may be beyond what the file says: it is written every 3 s (the fork's holders).
inline constexpr std::chrono::milliseconds kJavaFileMargin{4000};

// A registry of fixed numbers, with that ceiling added to each claim. Passes everything else on; as
// thread-safe as what it stands for. `registry` and `log` outlive it.
class JavaCeilingRegistry final : public core::WorkerRegistry {
 public:
  JavaCeilingRegistry(core::WorkerRegistry& registry, std::string tmp_dir, Logger& log);

  std::string_view kind() const override { return registry_.kind(); }
  bool leased() const override { return registry_.leased(); }
  bool remote() const override { return registry_.remote(); }
  // The file is read after the claim, never written. One with another number, or without a time (Leaf's own),
  // says nothing about this claim.
  Result<core::WorkerClaim> Claim(const core::NodeIdentity& node,
                                  const core::ClusterProperties& cluster) override;
  Result<void> Renew(const core::WorkerClaim& claim, WallTime ceiling) override {
    return registry_.Renew(claim, ceiling);
  }
  Result<void> Release(const core::WorkerClaim& claim, WallTime end) override {
    return registry_.Release(claim, end);
  }
  void Interrupt() override { registry_.Interrupt(); }

 private:
  core::WorkerRegistry& registry_;
  const std::string tmp_dir_;
  Logger& log_;
};

}  // namespace leaf::embed
