// What a Java Leaf node has left in its local file counts as a ceiling: it issued with the number that this
// node is now given, and may have done so for long without telling the registry. A file that is being written
// is a node that runs.
//
// Invariants
//  I1  No ID has a time below one that Java's file, for the same number, says was reached.
//  I2  Nothing is issued with a number while a Java node writes its file for that number.
//
// Schedules that would break them
//  S1  The fork's Java node runs on while ZooKeeper is away (it needs it for a start only) and writes its
//      time to its file alone; it is stopped, the clock is set back, leafctl starts with its address. The
//      registry's time is old, and so is the clock. → I1
//  S2  The fork runs in its mode "local", which asks no registry, and leafctl starts with the same map of
//      numbers. → a file that was written a short while ago is watched before the first ID.
//  S3  leafctl runs, and the fork is started. → each renewal looks at the file. What is issued until then is
//      not prevented: up to one renewal (3 s), and the fork's first write.
//  S4  leafctl is stopped, the fork runs in its place, with the same number; the registry goes away, and
//  leafctl
//      starts with the number of its state directory. → the files are looked at although the claim failed.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/core/worker_ports.h"
#include "leaf/java/worker_file.h"

namespace leaf::java {

// A file that was written longer ago is not watched before the first ID.
inline constexpr std::chrono::milliseconds kJavaFileRecent{15'000};

// A registry of fixed numbers, with that ceiling added to each claim. Passes everything else on; as
// thread-safe as `registry`. `registry`, `clock` and `log` outlive it.
class JavaCeilingRegistry final : public core::WorkerRegistry {
 public:
  JavaCeilingRegistry(core::WorkerRegistry& registry, std::string tmp_dir, const Clock& clock, Logger& log);

  std::string_view kind() const override { return registry_.kind(); }
  bool leased() const override { return registry_.leased(); }
  bool remote() const override { return registry_.remote(); }
  // The file is read after the claim, never written. One with another number, or without a time (Leaf's own),
  // says nothing about this claim. Blocks for core::kJavaWatch where a file has to be watched. Errors, beside
  // the registry's: kRefused (a Java node writes to a file of this number). Where the registry is away, the
  // files of the number that the node held are looked at all the same, since it may go on with that one:
  // kRefused, too, or kClock (one of them tells a later time than the clock).
  Result<core::WorkerClaim> Claim(const core::NodeIdentity& node,
                                  const core::ClusterProperties& cluster) override;
  // Errors, beside the registry's: kRefused (as of Claim).
  Result<void> Renew(const core::WorkerClaim& claim, WallTime ceiling) override;
  Result<void> Release(const core::WorkerClaim& claim, WallTime end) override {
    return registry_.Release(claim, end);
  }
  std::uint64_t times_put_back() const override { return registry_.times_put_back(); }
  void Interrupt() override {
    interrupted_.store(true);
    registry_.Interrupt();
  }

 private:
  // The files as they were at the claim: whose, and what was in them.
  struct Seen {
    std::string cluster;
    std::string address;
    std::uint64_t worker = 0;
    std::vector<JavaWorkerFile> files;
  };
  // That a number may be used which the registry, for this reason, has not confirmed.
  Result<void> CheckHeld(const Error& why, const core::NodeIdentity& node,
                         const core::ClusterProperties& cluster) const;
  // Those of Java's files that speak of this number.
  std::vector<JavaWorkerFile> FilesOf(const Seen& seen) const;
  // Errors: kRefused if a file is not as it was.
  Result<void> CheckUnmoved(const Seen& seen) const;
  // Until it is certain that no Java node writes to `seen`. Errors: kRefused, kUnavailable (interrupted).
  Result<void> Watch(const Seen& seen) const;

  core::WorkerRegistry& registry_;
  const std::string tmp_dir_;
  const Clock& clock_;
  Logger& log_;
  std::atomic<bool> interrupted_{false};
  Mutex mutex_;
  std::optional<Seen> seen_ LEAF_GUARDED_BY(mutex_);  // of the claim that is in force
};

}  // namespace leaf::java
