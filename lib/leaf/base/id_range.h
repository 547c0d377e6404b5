// Ranges of IDs, always half-open.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "leaf/base/limits.h"
#include "leaf/base/require.h"

namespace leaf {

// [begin, end). Valid: begin < end <= kMaxIdLimit + 1.
struct IdRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  std::uint64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  friend bool operator==(const IdRange&, const IdRange&) = default;
};

// What one request got: ascending, disjoint ranges. Never allocates.
class IdSpans {
 public:
  // Room for the most spans there can be, left as it is: clearing it would cost more than a take.
  IdSpans() {}  // NOLINT(modernize-use-equals-default): spans_ has a constructor that is not wanted

  // Appends [begin, end), joined to the last span where it continues it.
  // Requires: not empty, at or above everything already in here, at most kSpansMax spans.
  void Append(IdRange range) {
    internal::Require(!range.empty(), "the range has IDs");
    if (size_ > 0) {
      internal::Require(range.begin >= spans_[size_ - 1].end, "ranges ascend");
      if (spans_[size_ - 1].end == range.begin) {
        spans_[size_ - 1].end = range.end;
        total_ += range.size();
        return;
      }
    }
    internal::Require(size_ < spans_.size(), "one answer has so few ranges");
    spans_[size_++] = range;
    total_ += range.size();
  }

  std::span<const IdRange> ranges() const { return {spans_.data(), size_}; }
  std::uint64_t total() const { return total_; }
  bool empty() const { return size_ == 0; }

 private:
  union {
    std::array<IdRange, kSpansMax> spans_;
  };
  std::size_t size_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace leaf
