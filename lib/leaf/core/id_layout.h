// How a snowflake ID is put together: time since an epoch, worker and sequence, from the most significant bit
// down. Leaf's own split is 41-10-12 with the epoch of Twitter's snowflake (SnowflakeIDGenImpl).
//
// Nothing is masked: a field that does not fit is an error. No ID is negative, or another node's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/result.h"
#include "leaf/base/time.h"

namespace leaf::core {

// 9999-12-31T23:59:59.999Z: no later time zero, so that arithmetic on times cannot overflow.
inline constexpr std::int64_t kEpochMillisMax = 253402300799999;

// A snowflake ID, taken apart.
struct IdFields {
  WallTime time;
  std::uint64_t worker = 0;
  std::uint64_t sequence = 0;
  friend bool operator==(const IdFields&, const IdFields&) = default;
};

// Immutable, cheap to copy.
class IdLayout {
 public:
  // Leaf's.
  constexpr IdLayout() = default;

  // Each width at least 1, together 63; epoch in 0..kEpochMillisMax. Errors: kInvalidArgument.
  static Result<IdLayout> Make(int time_bits, int worker_bits, int sequence_bits, std::int64_t epoch_ms);
  // `bits` as "41-10-12". Errors: kInvalidArgument.
  static Result<IdLayout> Parse(std::string_view bits, std::int64_t epoch_ms);

  // The same widths from another time zero. Errors: kInvalidArgument.
  Result<IdLayout> WithEpoch(std::int64_t epoch_ms) const;

  // "41-10-12".
  std::string Bits() const;

  int time_bits() const { return time_bits_; }
  int worker_bits() const { return worker_bits_; }
  int sequence_bits() const { return sequence_bits_; }
  std::int64_t epoch_ms() const { return epoch_ms_; }

  // Exclusive ends of the fields; time in milliseconds since the epoch.
  std::int64_t time_end() const { return std::int64_t{1} << time_bits_; }
  std::uint64_t worker_end() const { return std::uint64_t{1} << worker_bits_; }
  std::uint64_t sequence_end() const { return std::uint64_t{1} << sequence_bits_; }

  // The last millisecond that has IDs: the exhaustion date.
  WallTime LastTime() const { return WallTimeOf(epoch_ms_ + time_end() - 1); }

  // Errors: kInvalidArgument that names the field which is out of range, and its range.
  Result<std::uint64_t> Compose(const IdFields& fields) const;
  // The same for fields that are known to fit. `time`: milliseconds since the epoch.
  std::uint64_t ComposeChecked(std::int64_t time, std::uint64_t worker, std::uint64_t sequence) const;

  // Every ID in [0, 2^63) has fields. Requires: id < kIdEnd.
  IdFields Decompose(std::uint64_t id) const;

  // For the text forms with a time (base/id_text.h).
  IdTimeSplit TimeSplit() const { return {epoch_ms_, worker_bits_ + sequence_bits_}; }

  friend bool operator==(const IdLayout&, const IdLayout&) = default;

 private:
  int time_bits_ = 41;
  int worker_bits_ = 10;
  int sequence_bits_ = 12;
  std::int64_t epoch_ms_ = kLeafEpochMillis;
};

}  // namespace leaf::core
