// When a tag runs out of numbers, at the rate at which its max_id was seen to move.
#pragma once

#include <cstdint>
#include <optional>

#include "leaf/base/time.h"

namespace leaf::core {

// Where a tag's max_id stood at some time in the past; all its users together have moved it since.
struct Baseline {
  std::uint64_t max_id = 0;
  WallTime at;
};

// IDs left above `max_id`, which may be what an operator wrote into the column; 0 if it is no ID.
std::uint64_t IdsLeft(std::int64_t max_id);

// Days until `max_id` arrives at the end of the numbers, at the mean rate since `base`. Nullopt if nothing
// can be told: less than a minute was watched, or max_id has not moved.
std::optional<double> DaysToExhaustion(std::int64_t max_id, const Baseline& base, WallTime now);

// The same until `max_id` arrives at `end`, beyond which there are no codes, say: 0 once it is there.
std::optional<double> DaysUntil(std::uint64_t end, std::int64_t max_id, const Baseline& base, WallTime now);

// How long the codes of a tag last (core/code_records.h).
struct CodesLeft {
  std::uint64_t end = 0;         // the first ID that has no code; kIdEnd if each has one
  std::optional<double> days{};  // until max_id arrives there, as above
};

// Whether an operator should hear of it by now: a tenth of the codes, or fewer than kFewDaysLeft days are
// left.
bool IsNearCodesEnd(std::int64_t max_id, const CodesLeft& codes);

// Whether an operator should hear of it by now: fewer than kFewIdsLeft IDs or kFewDaysLeft days are left.
bool IsNearExhaustion(std::int64_t max_id, std::optional<double> days);

}  // namespace leaf::core
