// When the next grant of a strict tag begins: at once, or when the callers that were just answered have come
// back.
//
// Every request of a strict tag needs a grant that begins after it. Callers that were answered together ask
// again together, one after the other within moments. A grant that begins with the first of them leaves the
// others to the grant after it: two groups take turns from then on, each caller waits for the end of the
// other group's grant, and half of the IDs are granted in the same time. So a grant waits for callers that
// come back soon. Callers that do not come back, or not soon, are not waited for: what comes at random gains
// nothing.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>

#include "leaf/base/time.h"

namespace leaf::service {

// Pure; the tag's mutex guards it.
class Gathering {
 public:
  // A grant has answered so many requests, and took so long.
  void OnAnswered(std::size_t requests, std::chrono::nanoseconds latency, MonotonicTime now) {
    // What came before all of them were back.
    if (!back_) returned_in_a_row_ = 0;
    awaited_ = requests;
    back_ = requests == 0;
    answered_at_ = now;
    patience_ = std::min<std::chrono::nanoseconds>(latency * 3 / 4, kPatienceMax);
  }

  // A request has come that waits for a grant.
  void OnRequest(MonotonicTime now) {
    if (back_ || --awaited_ > 0) return;
    back_ = true;
    if (now - answered_at_ <= patience_) {
      returned_in_a_row_ = std::min(returned_in_a_row_ + 1, kConvinced);
    } else {
      returned_in_a_row_ = 0;
    }
  }

  // Until when the next grant waits, unless all are back before. Nothing: it begins now.
  std::optional<MonotonicTime> WaitsUntil(MonotonicTime now) const {
    const MonotonicTime until = answered_at_ + patience_;
    if (back_ || returned_in_a_row_ < kConvinced || now >= until) return std::nullopt;
    return until;
  }

 private:
  // More callers than come back in so long are no group.
  static constexpr std::chrono::milliseconds kPatienceMax{20};
  // Requests at random come back so soon in one of four rounds.
  static constexpr int kConvinced = 4;

  std::size_t awaited_ = 0;  // of those answered last, how many have not been followed by a request
  bool back_ = true;         // none is awaited
  int returned_in_a_row_ = 0;
  MonotonicTime answered_at_{};
  std::chrono::nanoseconds patience_{0};
};

}  // namespace leaf::service
