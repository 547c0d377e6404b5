// Snowflake mode, live: claims a worker number, keeps the ceiling ahead of what is issued, and parks requests
// that the clock has to catch up with.
//
// The ceiling is extended beside the request path, by one task at a time: check the clock for a jump, make
// the new ceiling durable in the state file (and, for a lease, in the registry), and only then let IDs up to
// it be issued. Whatever fails there, issuing goes on up to the ceiling that is durable, and stops.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>

#include "leaf/base/clock.h"
#include "leaf/base/executor.h"
#include "leaf/base/logger.h"
#include "leaf/base/random.h"
#include "leaf/base/result.h"
#include "leaf/core/clock_guard.h"
#include "leaf/core/snowflake.h"
#include "leaf/core/worker_ports.h"

namespace leaf::service {

struct SnowflakeOptions {
  // name "" for a private cluster, local-<uuid of the state directory>; registry is taken from the registry.
  core::ClusterProperties cluster;
  std::string address;             // "ip:port" of this node, or ""
  std::uint64_t worker_begin = 0;  // numbers that may be claimed, half-open
  std::uint64_t worker_end = 1024;
  std::chrono::milliseconds window{3000};
  std::chrono::milliseconds start_wait{10'000};
  // Looked at whenever the ceiling is raised: a jump that the ceiling covers already is followed.
  std::chrono::milliseconds clock_jump_max{10'000};
  std::string boot_id;  // of this boot of the machine; "" if not known
  // What an operator has accepted as right in this boot (ClockGuard::OffsetOf), if anything; may block.
  std::function<std::optional<core::ClockGuard::Offset>()> accepted_offset;
};

struct SnowflakeStatus {
  bool started = false;
  // "starting" (waits for the clock to pass what was issued before), "issuing", "stopped".
  std::string_view state;
  core::ClusterProperties cluster;
  std::string node_uuid;
  std::uint64_t worker = 0;
  WallTime ceiling;                       // exclusive, durable
  std::chrono::milliseconds lead{};       // of issued IDs over the wall clock
  WallTime exhausted_at;                  // the last millisecond of the layout
  std::optional<Error> problem;           // why the ceiling could not be extended
  std::optional<Error> registry_problem;  // the registry could not be told; a fixed number goes on
  bool exhaustion_near = false;           // less than two years
};

// Thread-safe, but for Start. Adapters, clock and executors outlive it; stop the executors before destroying
// it.
class SnowflakeService {
 public:
  using NextCallback = std::function<void(Result<core::SnowflakeRun>)>;

  SnowflakeService(SnowflakeOptions options, core::WorkerRegistry& registry, core::StateFile& state_file,
                   const Clock& clock, Random& random, Executor& timers, Executor& workers, Logger& log);

  // Claims a number and makes the first ceiling durable; blocks meanwhile. If the clock has to pass what an
  // earlier process may have issued, that is waited for after the return (see CanIssue). Once, and before
  // anything else. Errors: kClock (too far behind or ahead, with the figures), kOverflow (the layout has
  // ended), kRefused (state or cluster properties do not fit), and those of StateFile and WorkerRegistry.
  Result<void> Start();
  // Closes, fails everything parked, waits (a window at most) until the wall clock has passed the last ID,
  // and writes the exact end, so that the next start can begin at once. Blocks. Idempotent.
  void Stop();
  // In the child of a fork: nothing is issued or written from now on. Async-signal-safe.
  void Abandon();

  // Takes `count` IDs, or none. Never blocks, never allocates on the way of an ID.
  bool TryNext(std::uint64_t count, core::SnowflakeRun& out) {
    if (parked_count_.load(std::memory_order_relaxed) != 0) [[unlikely]]
      return false;
    return TakeNow(count, out).outcome == core::Snowflake::Outcome::kTaken;
  }

  // Serves what TryNext turned away: at once if it can be by now, else when the clock or the ceiling has gone
  // on, in order of arrival, else with an error after `wait`. What cannot come in time fails at once. `done`
  // is called exactly once, with no lock held. Returns a ticket for Withdraw if the request is still waiting,
  // else 0. Errors: kTooLarge, kExhausted (the lead over the clock is used up), kClock (with the figures),
  // kOverflow, kNotOwner, kUnavailable (state file or registry, or stopped).
  std::uint64_t Next(std::uint64_t count, std::chrono::milliseconds wait, NextCallback done);
  // The asker has left. Completes with kExhausted on this thread, unless it was completed already.
  void Withdraw(std::uint64_t ticket);

  // Whether an ID can be issued right now. The error says why not.
  Result<void> CanIssue() const;
  SnowflakeStatus Status() const;

  // Requires: Start() succeeded.
  const core::Snowflake& generator() const { return *generator_; }

 private:
  struct Waiter {
    std::uint64_t ticket = 0;
    std::uint64_t count = 0;
    MonotonicTime deadline;
    NextCallback done;
  };

  core::Snowflake::TakeResult TakeNow(std::uint64_t count, core::SnowflakeRun& out) {
    const auto result = generator_->Take(count, clock_.Wall(), out);
    if (result.extend_wanted && !extending_.load(std::memory_order_relaxed)) [[unlikely]]
      RequestExtension();
    return result;
  }
  // No ceiling beyond what may have been issued before this start has been made durable yet.
  bool starting() const { return generator_->ceiling() <= begin_; }
  Error ErrorOf(const core::Snowflake::TakeResult& result, WallTime now) const;
  // Whether waiting up to `wait` can help.
  bool MayComeWithin(const core::Snowflake::TakeResult& result, WallTime now,
                     std::chrono::milliseconds wait) const;
  void RequestExtension();
  void PostExtension();
  void RunExtension();
  Result<void> Extend();
  Result<void> MakeDurable(WallTime ceiling);
  Result<void> CheckClock(WallTime now);
  // True if this is the first of a row of failures.
  bool SetProblem(const Result<void>& result);
  void Tick();
  void SchedulePump(std::chrono::milliseconds after);
  void Pump();

  const SnowflakeOptions options_;
  core::WorkerRegistry& registry_;
  core::StateFile& state_file_;
  const Clock& clock_;
  Random& random_;
  Executor& timers_;
  Executor& workers_;
  Logger& log_;
  const std::chrono::milliseconds tick_;          // how often the ceiling is looked at
  const std::chrono::milliseconds extend_least_;  // at saturation: by how much it is raised at least

  // Set by Start, constant afterwards.
  std::optional<core::Snowflake> generator_;
  core::WorkerClaim claim_;
  WallTime begin_;  // where this start begins; nothing is issued before the wall clock has reached it

  std::atomic<bool> stopped_{false};
  std::atomic<bool> abandoned_{false};
  std::atomic<bool> extending_{false};    // an extension is on its way
  std::atomic<bool> has_problem_{false};  // problem_ is set
  std::atomic<std::size_t> parked_count_{0};

  // One extension, or the last write, at a time. Held across calls to the outside.
  std::mutex extend_mutex_;
  // Guarded by extend_mutex_:
  core::WorkerState state_;
  std::optional<core::ClockGuard> guard_;

  mutable std::mutex mutex_;
  // Guarded by mutex_:
  std::optional<Error> problem_;
  std::optional<Error> registry_problem_;
  std::list<Waiter> parked_;
  std::uint64_t next_ticket_ = 1;
  bool pump_scheduled_ = false;
  std::uint64_t pump_id_ = 0;  // of the newest scheduled pump
};

}  // namespace leaf::service
