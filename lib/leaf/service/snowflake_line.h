// Snowflake requests that wait: for the clock to go on, or for the next ceiling.
//
// One timer serves the line, however long it is: it looks when the first request can be served at the
// earliest, and when a deadline is due. Requests are served in order of arrival; one that cannot be served in
// time fails at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "leaf/base/clock.h"
#include "leaf/base/executor.h"
#include "leaf/base/mutex.h"
#include "leaf/base/result.h"
#include "leaf/core/snowflake.h"
#include "leaf/service/waiting_line.h"

namespace leaf::service {

// Thread-safe. Callbacks are called exactly once, with no lock held.
class SnowflakeLine {
 public:
  using Request = WaitingRequest<core::SnowflakeRun>;
  using Callback = Request::Callback;
  using TakeResult = core::Snowflake::TakeResult;

  // What IDs come from. Called with the line's mutex held; never blocks.
  class Source {
   public:
    virtual TakeResult TakeNow(std::uint64_t count, core::SnowflakeRun& out) = 0;
    // What TakeNow would say, without taking.
    virtual TakeResult Probe(std::uint64_t count, WallTime now) const = 0;
    // Whether waiting up to `wait` can help after that result.
    virtual bool MayComeWithin(const TakeResult& result, WallTime now,
                               std::chrono::milliseconds wait) const = 0;
    virtual Error ErrorOf(const TakeResult& result, WallTime now) const = 0;
    // A request ends with an error: its slot (tallies.h), or that of those that are withdrawn.
    virtual void CountError(std::size_t slot) = 0;

   protected:
    ~Source() = default;
  };

  // All outlive it. `look_max`: the line is checked at least this often while a request waits.
  SnowflakeLine(Source& source, const Clock& clock, Executor& timers, std::chrono::milliseconds look_max)
      : source_(source), clock_(clock), timers_(timers), look_max_(look_max) {}

  // Whether a request waits, before which no other may take.
  bool busy() const { return size_.load(std::memory_order_relaxed) != 0; }
  // Requests that had to wait, since the start.
  std::uint64_t waits() const { return waits_.load(std::memory_order_relaxed); }

  // Serves a request at once if it can be, else within `wait`, else with the source's error. Returns a ticket
  // for Withdraw if it still waits, else 0.
  std::uint64_t Enter(std::uint64_t count, std::chrono::milliseconds wait, Callback done);
  // The asker has left: completes the request with kExhausted on this thread, unless it was completed
  // already.
  void Withdraw(std::uint64_t ticket);
  // Something has changed that may help: the line is looked at soon, on a timer.
  void Wake();
  // Completes everything that waits with `why`, on this thread.
  void FailAll(const Error& why);

 private:
  // How long to leave the line alone after that result, if no deadline comes first.
  std::chrono::milliseconds LookAfter(const TakeResult& result) const;
  Error Failure(const TakeResult& result, WallTime now);
  // Unless an earlier look is due.
  void ScheduleLookLocked(std::chrono::milliseconds after) LEAF_REQUIRES(mutex_);
  void Look();

  Source& source_;
  const Clock& clock_;
  Executor& timers_;
  const std::chrono::milliseconds look_max_;
  std::atomic<std::size_t> size_{0};  // of line_
  std::atomic<std::uint64_t> waits_{0};

  Mutex mutex_;
  WaitingLine<Request> line_ LEAF_GUARDED_BY(mutex_);
  std::optional<MonotonicTime> look_at_ LEAF_GUARDED_BY(mutex_);  // when the newest scheduled look is due
  std::uint64_t look_id_ LEAF_GUARDED_BY(mutex_) = 0;             // of the newest scheduled look
};

}  // namespace leaf::service
