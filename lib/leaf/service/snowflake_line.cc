#include "leaf/service/snowflake_line.h"

#include <algorithm>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "leaf/service/tallies.h"

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
      failure = Failure(result, now);
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
    const bool was_first = !line_.empty() && line_.front().ticket == ticket;
    left = line_.Remove(ticket);
    if (!left) return;
    size_.store(line_.size());
    source_.CountError(kWithdrawnSlot);
    // The next one may want less.
    if (was_first && !line_.empty()) ScheduleLookLocked(milliseconds{1});
  }
  left->done(Error{ErrorCode::kExhausted, "the request was withdrawn", ""});
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
    for (std::size_t i = 0; i < dropped.size(); ++i) source_.CountError(SlotOf(why.code));
  }
  for (const Request& request : dropped) request.done(why);
}

Error SnowflakeLine::Failure(const TakeResult& result, WallTime now) {
  Error error = source_.ErrorOf(result, now);
  source_.CountError(SlotOf(error.code));
  return error;
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
      const auto has_to_go = [&](const Request& request) {
        const auto left = std::chrono::ceil<milliseconds>(request.deadline - now);
        return left <= milliseconds{0} || !source_.MayComeWithin(result, wall, left);
      };
      // That one cannot be served says nothing of the next, which may want less.
      if (has_to_go(line_.front())) {
        completed.emplace_back(std::move(line_.RemoveFront().done), Failure(result, wall));
        continue;
      }
      MonotonicTime next_deadline = line_.front().deadline;
      for (auto place = line_.begin(); place != line_.end();) {
        if (has_to_go(*place)) {
          auto [request, next] = line_.Remove(place);
          completed.emplace_back(std::move(request.done), Failure(result, wall));
          place = next;
        } else {
          next_deadline = std::min(next_deadline, place->deadline);
          ++place;
        }
      }
      after = std::min(LookAfter(result),
                       std::max(std::chrono::ceil<milliseconds>(next_deadline - now), milliseconds{1}));
      break;
    }
    size_.store(line_.size());
    if (!line_.empty()) ScheduleLookLocked(after);
  }
  for (auto& [done, result] : completed) done(std::move(result));
}

}  // namespace leaf::service
