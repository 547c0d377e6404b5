// What the service counts, for metrics and status.
//
// Taking an ID from the reserve counts nothing: what a tag has issued is what it was granted less what it
// still holds or has dropped, and is reckoned when it is asked for. Waits, errors and refills are counted
// where the tag's mutex is held already.
//
// Totals never go back although tags come and go: what happens (a wait, an error, a refill) is counted at
// once for its tag and in SegmentCounters, which outlive all tags; what is only reckoned (issued, lost) is
// kept of a tag at the moment it leaves, under the lock under which the totals are reckoned
// (SegmentService::Visit). Otherwise a tag that leaves while they are would count twice, or not at all.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "leaf/base/error.h"
#include "leaf/base/id_range.h"

namespace leaf::service {

// Room for every ErrorCode and more to come.
inline constexpr std::size_t kErrorSlots = 32;
// The slot of errors that no client read: the client hung up while its request waited.
inline constexpr std::size_t kWithdrawnSlot = kErrorSlots - 1;
using ErrorTally = std::array<std::uint64_t, kErrorSlots>;

// "not_found", ..., "withdrawn"; for slots of codes that exist.
std::string CauseName(std::size_t slot);
std::size_t SlotOf(ErrorCode code);

// Durations, counted by their upper bounds.
struct LatencyTally {
  static constexpr std::array<double, 13> kBoundsSeconds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                         0.25,  0.5,    1,     2.5,  5,     10};
  std::array<std::uint64_t, kBoundsSeconds.size() + 1> counts{};  // the last: above every bound
  std::uint64_t sum_ns = 0;

  static std::size_t BucketOf(std::chrono::nanoseconds latency);
  void Add(std::chrono::nanoseconds latency) {
    ++counts[BucketOf(latency)];
    sum_ns += static_cast<std::uint64_t>(latency.count());
  }
};

// Of one tag, since it is here. Made when there is something to count: an idle tag has none.
struct TagTallies {
  std::uint64_t issued = 0;          // as told last, so that what is told never goes back
  std::uint64_t waits = 0;           // requests that had to wait
  std::uint64_t refills_failed = 0;  // grants asked for and not got
  ErrorTally errors{};               // answers to requests, by cause
  LatencyTally refills;              // grants, by how long they took
  std::array<IdRange, 2> recent{};   // the last two grants, the newer one last
};

// Of all tags there ever were, since start. Thread-safe.
class SegmentCounters {
 public:
  void AddWait() { waits_.fetch_add(1, kRelaxed); }
  void AddError(std::size_t slot) { errors_[slot].fetch_add(1, kRelaxed); }
  void AddRefill(std::chrono::nanoseconds latency);
  void AddFailedRefill() { refills_failed_.fetch_add(1, kRelaxed); }
  void AddGranted(std::uint64_t ids) { granted_.fetch_add(ids, kRelaxed); }
  void AddDropped(std::uint64_t ids) { dropped_.fetch_add(ids, kRelaxed); }

  TagTallies Tallies() const;
  std::uint64_t granted() const { return granted_.load(kRelaxed); }
  std::uint64_t dropped() const { return dropped_.load(kRelaxed); }

 private:
  static constexpr auto kRelaxed = std::memory_order_relaxed;
  std::atomic<std::uint64_t> waits_{0};
  std::atomic<std::uint64_t> refills_failed_{0};
  std::atomic<std::uint64_t> granted_{0};
  std::atomic<std::uint64_t> dropped_{0};
  std::array<std::atomic<std::uint64_t>, kErrorSlots> errors_{};
  std::array<std::atomic<std::uint64_t>, LatencyTally::kBoundsSeconds.size() + 1> refill_counts_{};
  std::atomic<std::uint64_t> refill_sum_ns_{0};
};

// What was counted of all tags, gone ones included.
struct SegmentTotals {
  std::uint64_t issued = 0;
  std::uint64_t granted = 0;
  std::uint64_t wasted = 0;
  TagTallies tallies;
};

// What was counted of a snowflake worker since start.
struct SnowflakeTallies {
  std::uint64_t issued = 0;
  std::uint64_t waits = 0;
  ErrorTally errors{};
};

// One outside service that this node works with, as far as it is known here: the database of the tags, and
// whatever worker numbers and leases come from.
struct Dependency {
  std::string name;                    // what it is for: "database", "registry"
  std::string kind;                    // what it is: "mysql", "sqlite", "zookeeper"
  bool up = false;                     // whether it answered when it was asked last
  std::string identity;                // which server it is, as it says itself; "" if not known yet
  std::optional<std::size_t> open;     // connections that are open now, where they are several
  std::uint64_t connections = 0;       // made, since start
  std::uint64_t reconnects = 0;        // of those, after one was lost or could not be made
  std::uint64_t failures = 0;          // times it could not be reached
  std::uint64_t identity_changes = 0;  // times another server answered than before
  std::uint64_t went_back = 0;         // times it had forgotten what it had acknowledged
  std::optional<Error> problem;        // why it is not up
  // Of the lease that is held through it, if there is one.
  std::optional<std::chrono::milliseconds> lease_left;
};

}  // namespace leaf::service
