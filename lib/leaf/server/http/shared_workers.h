// One reading of the registry for all requests for /v1/workers: one at a time and at most one a second. A
// request waits for the reading under way, and for no other.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "leaf/base/clock.h"
#include "leaf/base/executor.h"
#include "leaf/base/mutex.h"
#include "leaf/base/result.h"
#include "leaf/base/time.h"

namespace leaf::server {

// How the registry is read. All of it outlives the router.
struct WorkersReading {
  // The worker numbers as JSON. Blocks on ZooKeeper or the database.
  std::function<Result<std::string>()> read;
  Executor* lane = nullptr;    // where `read` is called
  Executor* timers = nullptr;  // never blocks
  // A reading that takes longer is given up by those who wait for it.
  std::chrono::milliseconds patience{4000};
};

// Thread-safe. The clock outlives it, and it outlives what runs on the executors.
class SharedWorkers {
 public:
  static constexpr std::chrono::milliseconds kMaxAge{1000};

  SharedWorkers(const Clock& clock, WorkersReading reading) : clock_(clock), reading_(std::move(reading)) {}

  // Calls `done` once, with a reading that ended within the last kMaxAge, or with the next one, or with
  // kUnavailable once that has taken `patience`. A failure is shared like a list, so that an outage is not
  // asked about by every caller. Never blocks; `done` runs on any thread. What is returned gives the request
  // up: then `done` gets kUnavailable, unless it was called.
  using Done = std::function<void(const Result<std::string>&)>;
  std::function<void()> Ask(const Done& done);

 private:
  void Read();
  void Expire(std::uint64_t number);
  Error TooSlow() const;

  const Clock& clock_;
  const WorkersReading reading_;
  Mutex mutex_;
  std::optional<Result<std::string>> last_ LEAF_GUARDED_BY(mutex_);
  MonotonicTime last_at_ LEAF_GUARDED_BY(mutex_);
  bool is_reading_ LEAF_GUARDED_BY(mutex_) = false;
  MonotonicTime reading_since_ LEAF_GUARDED_BY(mutex_);
  std::uint64_t readings_ LEAF_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, Done> waiting_ LEAF_GUARDED_BY(mutex_);  // by order of arrival
  std::uint64_t callers_ LEAF_GUARDED_BY(mutex_) = 0;
};

}  // namespace leaf::server
