// Compares this node's clock with those of its peers, at the start and from then on. Its verdict keeps the
// ceiling from being raised: a node whose clock is wrong stops at the ceiling it has.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

#include "leaf/base/clock.h"
#include "leaf/base/executor.h"
#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/base/result.h"
#include "leaf/core/peer_clocks.h"

namespace leaf::service {

struct PeerClockOptions {
  std::chrono::milliseconds threshold{5000};
  std::chrono::milliseconds interval{5000};  // between two rounds
};

struct PeerClockStatus {
  std::size_t peers = 0;                     // that the registry knew of in the last round
  std::size_t answered = 0;                  // of those
  std::size_t older = 0;                     // of those: of a version before 0.2
  std::chrono::milliseconds median_ahead{};  // of the answers over our clock
  std::optional<Error> problem;              // why this clock is not trusted
};

// Thread-safe. What it is given outlives it; stop the executors before destroying it.
class PeerClockWatch {
 public:
  PeerClockWatch(const PeerClockOptions& options, core::PeerDirectory& directory, core::PeerClocks& clocks,
                 const Clock& clock, Executor& timers, Executor& worker, Logger& log);

  // Asks all peers; blocks. A registry that cannot be asked, or no peer that answers, is a warning.
  // Errors: kClock that names what they said.
  Result<void> CheckAtStart();
  // Goes on asking, every interval, on the worker.
  void Start();
  void Stop() { stopped_.store(true); }
  // Of the last round. Never blocks. Errors: kClock.
  Result<void> Verdict() const;
  PeerClockStatus Status() const;

 private:
  // Nothing if the registry could not be asked.
  std::optional<std::vector<core::PeerClock>> AskAll();
  void Round();

  const PeerClockOptions options_;
  core::PeerDirectory& directory_;
  core::PeerClocks& clocks_;
  const Clock& clock_;
  Executor& timers_;
  Executor& worker_;
  Logger& log_;
  std::atomic<bool> stopped_{false};
  mutable Mutex mutex_;
  PeerClockStatus status_ LEAF_GUARDED_BY(mutex_);
};

}  // namespace leaf::service
