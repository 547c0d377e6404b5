#include "leaf/server/http/shared_workers.h"

#include <fmt/format.h>

#include <utility>

#include "leaf/base/duration.h"

namespace leaf::server {

std::function<void()> SharedWorkers::Ask(const Done& done) {
  std::optional<Result<std::string>> at_once;
  std::uint64_t caller = 0;
  std::uint64_t begun = 0;  // number of the reading that this call begins
  MonotonicTime deadline;
  {
    const MutexLock lock(mutex_);
    const MonotonicTime now = clock_.Monotonic();
    if (last_ && now - last_at_ < kMaxAge) {
      at_once = last_;
    } else if (is_reading_ && now - reading_since_ >= reading_.patience) {
      // A registry that hangs is not waited for again.
      at_once = TooSlow();
    } else {
      caller = ++callers_;
      waiting_.emplace(caller, done);
      if (!is_reading_) {
        is_reading_ = true;
        reading_since_ = now;
        begun = ++readings_;
        deadline = now + reading_.patience;
      }
    }
  }
  if (at_once) {
    done(*at_once);
    return nullptr;
  }
  if (begun != 0) {
    reading_.lane->Post([this] { Read(); });
    reading_.timers->PostAt(deadline, [this, begun] { Expire(begun); });
  }
  return [this, caller] {
    Done given_up;
    {
      const MutexLock lock(mutex_);
      const auto found = waiting_.find(caller);
      if (found == waiting_.end()) return;
      given_up = std::move(found->second);
      waiting_.erase(found);
    }
    given_up(Error{ErrorCode::kUnavailable, "the client hung up while the registry was read", ""});
  };
}

void SharedWorkers::Read() {
  const Result<std::string> workers = reading_.read();
  std::map<std::uint64_t, Done> served;
  {
    const MutexLock lock(mutex_);
    last_ = workers;
    // From its end on: were it to take a second, each request would take another one.
    last_at_ = clock_.Monotonic();
    is_reading_ = false;
    served.swap(waiting_);
  }
  for (const auto& [caller, done] : served) done(workers);
}

void SharedWorkers::Expire(std::uint64_t number) {
  std::map<std::uint64_t, Done> expired;
  {
    const MutexLock lock(mutex_);
    if (!is_reading_ || number != readings_) return;
    expired.swap(waiting_);
  }
  for (const auto& [caller, done] : expired) done(TooSlow());
}

Error SharedWorkers::TooSlow() const {
  return {ErrorCode::kUnavailable,
          fmt::format("the registry of worker numbers has not answered within {}",
                      FormatDuration(reading_.patience)),
          ""};
}

}  // namespace leaf::server
