// Every limit of the program that is not configuration, with its unit and its source.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace leaf {

// IDs are in [0, kIdEnd): 63 bits, so that a signed BIGINT column and a Java long hold them.
inline constexpr std::uint64_t kIdEnd = std::uint64_t{1} << 63;
// The largest value of `max_id`: the exclusive end of the last range must itself fit a signed BIGINT.
inline constexpr std::uint64_t kMaxIdLimit = kIdEnd - 1;

// Column width of leaf_alloc.biz_tag (Leaf's scripts/leaf_alloc.sql), in characters.
inline constexpr std::size_t kTagCharactersMax = 128;
inline constexpr std::size_t kTagBytesMax = kTagCharactersMax * 4;
inline constexpr std::size_t kDescriptionCharactersMax = 256;

// Java Leaf doubles the step as a 32-bit int: from 2^30 on its max_id goes back (leaf-compat S10).
inline constexpr std::int64_t kStepMax = (std::int64_t{1} << 30) - 1;
inline constexpr std::int64_t kStepDefault = 2000;

// Time zero of Leaf's snowflake IDs, twepoch of SnowflakeIDGenImpl: 2010-11-04T01:42:54.657Z.
inline constexpr std::int64_t kLeafEpochMillis = 1288834974657;

// Leaf's dynamic step (SegmentIDGenImpl): doubled under 15 minutes, halved from 30 on.
inline constexpr std::chrono::minutes kStepDoubleUnder{15};
inline constexpr std::chrono::minutes kStepHalveFrom{30};

// IDs of one `leafctl next`.
inline constexpr std::uint64_t kNextCountMax = 100'000'000;

// Installed ranges a tag can hold at once. Leaf holds two; small steps want a few more under load.
#ifdef LEAF_SEGMENT_SLOTS  // fewer for a model checker, and for every source of an executable alike
inline constexpr std::size_t kSegmentSlots = LEAF_SEGMENT_SLOTS;
#else
inline constexpr std::size_t kSegmentSlots = 16;
#endif
// Ranges that one answer can consist of: all slots, and the grant that completes it.
inline constexpr std::size_t kSpansMax = kSegmentSlots + 2;

// The reserve beyond Leaf's rule (core/reserve_policy): how many times the seen grant latency it covers, how
// far apart the rate is looked at (for bursts, and in general), and how slowly all forget.
inline constexpr int kGrantLatencyMargin = 3;
inline constexpr std::chrono::milliseconds kBurstSampleMin{20};
inline constexpr std::chrono::milliseconds kRateSampleMin{1000};
inline constexpr std::chrono::seconds kRateDecay{10};
inline constexpr int kLatencyDecayGrants = 8;

// When the end of a tag's numbers becomes an operator's business, and how long its use must have been watched
// to be judged by. A baseline is kept for one to two of its ages.
inline constexpr std::uint64_t kFewIdsLeft = 1'000'000'000'000;
inline constexpr double kFewDaysLeft = 365;
inline constexpr std::chrono::minutes kExhaustionWatchMin{1};
inline constexpr std::chrono::hours kBaselineAge{24 * 7};

// Parked requests of one tag; beyond it newcomers are turned away rather than remembered.
inline constexpr std::size_t kWaitersMax = 100'000;

// Unknown names: how long a "no" is remembered, for how many names, how many questions a second all unknown
// names together may put to the database, how many of these may wait there, and how many are asked at once:
// of kSlowRefillWorkers, some are left for tags in trouble. On SQLite, with one such worker, they take turns.
inline constexpr std::chrono::milliseconds kNegativeTtl{1000};
inline constexpr std::size_t kNegativeNamesMax = 10'000;
inline constexpr std::uint32_t kMissesPerSecondMax = 200;
inline constexpr std::size_t kLookUpsWaitingMax = 200;
inline constexpr std::size_t kLookUpsAtOnce = 4;
// The same for names that health checks ask for, which need no right: they must not use up what requests
// have.
inline constexpr std::uint32_t kProbedMissesPerSecondMax = 20;
inline constexpr std::size_t kProbesWaitingMax = 20;

// Reads of a tag's mark and of the whole table that clients ask for: a second, in line, and at once.
inline constexpr std::uint32_t kReadsPerSecondMax = 200;
inline constexpr std::size_t kReadsWaitingMax = 100;
inline constexpr std::size_t kReadsAtOnce = 1;

// Back-off after a failed grant or refresh: doubled from min to max, with up to half of it taken off at
// random.
inline constexpr std::chrono::milliseconds kBackoffMin{50};
inline constexpr std::chrono::milliseconds kBackoffMax{2000};

// Threads of a daemon that talk to a database server. Tags whose last grant failed share the slow ones, so
// that rows which other clients hold, however many, leave room for the others.
inline constexpr std::size_t kRefillWorkers = 24;
inline constexpr std::size_t kSlowRefillWorkers = 8;
// The same for SQLite, which has one writer at a time.
inline constexpr std::size_t kSqliteRefillWorkers = 2;
inline constexpr std::size_t kSqliteSlowRefillWorkers = 1;
// Connections to a database server that are kept when they are not used, and how long the others rest before
// they are closed. Of an SQLite file there is no limit to those that are used, and a larger one to those that
// are not.
inline constexpr std::size_t kIdleConnectionsKept = 2;
inline constexpr std::chrono::seconds kIdleConnectionTime{10};
inline constexpr std::size_t kIdleSqliteConnectionsKept = 8;

// Tags that operators have cut off at once: more is a node to stop.
inline constexpr std::size_t kPausedTagsMax = 10'000;

// How long a grant should last at the peak rate: Leaf's advice for the step (its README: 600 times the peak).
inline constexpr std::chrono::minutes kAdvisedGrantTime{10};

static_assert(kStepMax < (std::int64_t{1} << 30));
static_assert(kNextCountMax < kIdEnd);
static_assert(kBackoffMin < kBackoffMax);

}  // namespace leaf
