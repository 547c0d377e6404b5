#include "leaf/service/snowflake_line.h"

#include <algorithm>
#include <list>
#include <optional>
#include <utility>
#include <vector>

namespace leaf::service {

using Outcome = core::Snowflake::Outcome;
using std::chrono::milliseconds;

std::uint64_t SnowflakeLine::Enter(std::uint64_t count, milliseconds wait, Callback done) {
  core::SnowflakeRun run;
  std::optional<Error> failure;
  {
    const MutexLock lock(mutex_);
    const WallTime now = clock_.Wall();
    // Behind others that wait, even what could be served has to wait.
    const bool is_first = line_.empty();
    const TakeResult result = is_first ? source_.TakeNow(count, run) : source_.Probe(count, now);
    if (result.outcome != Outcome::kTaken && !source_.MayComeWithin(result, now, wait)) {
      failure = source_.ErrorOf(result, now);
    } else if (result.outcome != Outcome::kTaken || !is_first) {
      const std::uint64_t ticket = line_.Add(
          {.ticket = 0, .count = count, .deadline = clock_.Monotonic() + wait, .done = std::move(done)});
      size_.store(line_.size());
      waits_.fetch_add(1, std::memory_order_relaxed);
      ScheduleLookLocked(std::min(LookAfter(result), std::max(wait, milliseconds{1})));
      return ticket;
    }
  }
  if (failure) {
    done(*std::move(failure));
  } else {
    done(run);
  }
  return 0;
}

void SnowflakeLine::Withdraw(std::uint64_t ticket) {
  std::optional<Request> left;
  {
    const MutexLock lock(mutex_);
    left = line_.Remove(ticket);
    size_.store(line_.size());
  }
  if (left) left->done(Error{ErrorCode::kExhausted, "the request was withdrawn", ""});
}

void SnowflakeLine::Wake() {
  const MutexLock lock(mutex_);
  if (!line_.empty()) timers_.Post([this] { Look(); });
}

void SnowflakeLine::FailAll(const Error& why) {
  std::list<Request> dropped;
  {
    const MutexLock lock(mutex_);
    dropped = line_.RemoveAll();
    size_.store(0);
  }
  for (const Request& request : dropped) request.done(why);
}

milliseconds SnowflakeLine::LookAfter(const TakeResult& result) const {
  // Woken as well when the ceiling is raised, which is all that helps at the ceiling.
  if (result.outcome == Outcome::kAtCeiling) return look_max_;
  // The clock may be set, so that it helps to wait for less.
  return std::clamp(result.wait, milliseconds{1}, look_max_);
}

void SnowflakeLine::ScheduleLookLocked(milliseconds after) {
  const MonotonicTime at = clock_.Monotonic() + after;
  if (look_at_ && *look_at_ <= at) return;
  look_at_ = at;
  timers_.PostAt(at, [this, id = ++look_id_] {
    {
      const MutexLock lock(mutex_);
      // A look that came earlier has scheduled its own successor: one chain of timers, however often it is
      // woken.
      if (id != look_id_) return;
    }
    Look();
  });
}

void SnowflakeLine::Look() {
  std::vector<std::pair<Callback, Result<core::SnowflakeRun>>> completed;
  {
    const MutexLock lock(mutex_);
    ++look_id_;  // what is scheduled has no say any more
    look_at_.reset();
    const MonotonicTime now = clock_.Monotonic();
    milliseconds after{1};
    while (!line_.empty()) {
      core::SnowflakeRun run;
      const TakeResult result = source_.TakeNow(line_.front().count, run);
      if (result.outcome == Outcome::kTaken) {
        completed.emplace_back(std::move(line_.RemoveFront().done), run);
        continue;
      }
      const WallTime wall = clock_.Wall();
      std::optional<MonotonicTime> next_deadline;
      for (auto place = line_.begin(); place != line_.end();) {
        const auto left = std::chrono::ceil<milliseconds>(place->deadline - now);
        if (left <= milliseconds{0} || !source_.MayComeWithin(result, wall, left)) {
          auto [request, next] = line_.Remove(place);
          completed.emplace_back(std::move(request.done), source_.ErrorOf(result, wall));
          place = next;
        } else {
          next_deadline = std::min(next_deadline.value_or(place->deadline), place->deadline);
          ++place;
        }
      }
      after = LookAfter(result);
      if (next_deadline)
        after =
            std::min(after, std::max(std::chrono::ceil<milliseconds>(*next_deadline - now), milliseconds{1}));
      break;
    }
    size_.store(line_.size());
    if (!line_.empty()) ScheduleLookLocked(after);
  }
  for (auto& [done, result] : completed) done(std::move(result));
}

}  // namespace leaf::service
