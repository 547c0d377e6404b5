#include "leaf/service/request_limit.h"

#include <algorithm>

namespace leaf::service {

using Rate = core::TokenBucket::Rate;

void RequestLimit::Set(std::uint64_t over_all, std::uint64_t of_one_tag) {
  over_all_.store(Rate::PerSecond(over_all).interval());
  of_one_tag_.store(Rate::PerSecond(of_one_tag).interval());
}

RequestLimit::Verdict RequestLimit::Admit(RequestShare& share) {
  const MonotonicTime now = clock_.Monotonic();
  const Rate of_one_tag = Rate::FromInterval(of_one_tag_.load(std::memory_order_relaxed));
  if (of_one_tag.is_limit() && !share.own.TryTake(now, of_one_tag)) return Verdict::kOfOneTag;
  return AdmitOverAll(share, now) ? Verdict::kAdmitted : Verdict::kOverAll;
}

RequestLimit::Verdict RequestLimit::AdmitOther() {
  return AdmitOverAll(other_, clock_.Monotonic()) ? Verdict::kAdmitted : Verdict::kOverAll;
}

RequestLimit::Verdict RequestLimit::AdmitSnowflake() {
  return AdmitOverAll(snowflake_, clock_.Monotonic()) ? Verdict::kAdmitted : Verdict::kOverAll;
}

bool RequestLimit::AdmitOverAll(RequestShare& share, MonotonicTime now) {
  const Rate over_all = Rate::FromInterval(over_all_.load(std::memory_order_relaxed));
  if (!over_all.is_limit()) return true;
  // Within its part a tag is served even if others have emptied the bucket: it may go as much below empty as
  // it holds, so that no number of new tags gets beyond the limit for long.
  constexpr std::uint64_t kFairBursts = 2;
  if (share.fair.TryTake(now, over_all.Share(CountInUse(share, now))))
    return all_.TryTake(now, over_all.WithBursts(kFairBursts));
  return all_.TryTake(now, over_all);
}

std::uint64_t RequestLimit::CountInUse(RequestShare& share, MonotonicTime now) {
  constexpr std::uint64_t kCountMask = 0xFFFFFFFF;
  const auto second = static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count() + 1);
  std::uint64_t seen = in_use_.load(std::memory_order_relaxed);
  if (share.last_seen.load(std::memory_order_relaxed) != second &&
      share.last_seen.exchange(second, std::memory_order_relaxed) != second) {
    while (true) {
      const auto counted = static_cast<std::uint32_t>(seen >> 32);
      const bool is_new = counted != second;
      const std::uint64_t next = is_new ? (std::uint64_t{second} << 32) + 1 : seen + 1;
      if (!in_use_.compare_exchange_weak(seen, next, std::memory_order_relaxed)) continue;
      if (is_new)
        in_use_before_.store(counted + 1 == second ? seen & kCountMask : 0, std::memory_order_relaxed);
      seen = next;
      break;
    }
  }
  return std::max({seen & kCountMask, in_use_before_.load(std::memory_order_relaxed), std::uint64_t{1}});
}

}  // namespace leaf::service
