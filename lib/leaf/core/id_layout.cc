#include "leaf/core/id_layout.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "leaf/base/check.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"

namespace leaf::core {
namespace {

constexpr int kIdBits = 63;
static_assert(kIdEnd == std::uint64_t{1} << kIdBits);

}  // namespace

Result<IdLayout> IdLayout::Make(int time_bits, int worker_bits, int sequence_bits, std::int64_t epoch_ms) {
  // Each is bounded by itself first: their sum must not overflow.
  const auto fits = [](int bits) { return bits >= 1 && bits < kIdBits; };
  if (!fits(time_bits) || !fits(worker_bits) || !fits(sequence_bits) ||
      time_bits + worker_bits + sequence_bits != kIdBits) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("bad layout {}-{}-{}: each width is at least 1, and they add up to {}",
                             time_bits, worker_bits, sequence_bits, kIdBits),
                 ""};
  }
  if (epoch_ms < 0 || epoch_ms > kEpochMillisMax) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("bad epoch {}: not in 0..{} milliseconds", epoch_ms, kEpochMillisMax), ""};
  }
  IdLayout layout;
  layout.time_bits_ = time_bits;
  layout.worker_bits_ = worker_bits;
  layout.sequence_bits_ = sequence_bits;
  layout.epoch_ms_ = epoch_ms;
  return layout;
}

Result<IdLayout> IdLayout::Parse(std::string_view bits, std::int64_t epoch_ms) {
  const Error error{
      ErrorCode::kInvalidArgument,
      fmt::format("bad layout {}: not TIME-WORKER-SEQUENCE bits such as 41-10-12", Quoted(bits)), ""};
  std::array<int, 3> widths{};
  const char* position = bits.data();
  const char* const end = bits.data() + bits.size();
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (i > 0 && (position == end || *position++ != '-')) return error;
    if (position == end || *position < '0' || *position > '9') return error;
    const auto [next, status] = std::from_chars(position, end, widths[i]);
    if (status != std::errc{}) return error;
    position = next;
  }
  if (position != end) return error;
  return Make(widths[0], widths[1], widths[2], epoch_ms);
}

Result<IdLayout> IdLayout::WithEpoch(std::int64_t epoch_ms) const {
  return Make(time_bits_, worker_bits_, sequence_bits_, epoch_ms);
}

std::string IdLayout::Bits() const {
  return fmt::format("{}-{}-{}", time_bits_, worker_bits_, sequence_bits_);
}

Result<std::uint64_t> IdLayout::Compose(const IdFields& fields) const {
  const auto outside = [&](std::string_view what, auto value, auto last) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} {} is not in 0..{} (layout {})", what, value, last, Bits()), ""};
  };
  // Compared, not subtracted: any time at all may be asked for.
  if (fields.time < WallTimeOf(epoch_ms_) || fields.time > LastTime()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} ({} ms) is outside of what layout {} with epoch {} can hold: {} to {} ms",
                             FormatRfc3339(fields.time), UnixMillis(fields.time), Bits(), epoch_ms_,
                             epoch_ms_, UnixMillis(LastTime())),
                 ""};
  }
  if (fields.worker >= worker_end()) return outside("worker", fields.worker, worker_end() - 1);
  if (fields.sequence >= sequence_end()) return outside("sequence", fields.sequence, sequence_end() - 1);
  return ComposeChecked(UnixMillis(fields.time) - epoch_ms_, fields.worker, fields.sequence);
}

std::uint64_t IdLayout::ComposeChecked(std::int64_t time, std::uint64_t worker,
                                       std::uint64_t sequence) const {
  LEAF_CHECK(time >= 0 && time < time_end());
  LEAF_CHECK(worker < worker_end() && sequence < sequence_end());
  return static_cast<std::uint64_t>(time) << (worker_bits_ + sequence_bits_) | worker << sequence_bits_ |
         sequence;
}

IdFields IdLayout::Decompose(std::uint64_t id) const {
  LEAF_CHECK(id < kIdEnd);
  const auto time = static_cast<std::int64_t>(id >> (worker_bits_ + sequence_bits_));
  return {WallTimeOf(epoch_ms_ + time), id >> sequence_bits_ & (worker_end() - 1), id & (sequence_end() - 1)};
}

}  // namespace leaf::core
