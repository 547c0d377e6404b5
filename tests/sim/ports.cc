#include "sim/ports.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace leaf::sim {

void Machine::WaitUntil(MonotonicTime time) const {
  World& world = world_;
  while (Monotonic() < time) {
    Task* const task = world.current();
    const Nanos left = NanosOf(time - Monotonic());
    if (task == nullptr || task->process == nullptr) return;
    world.Block(*task->process, left);
  }
}

void Threads::Post(Task task) {
  if (stopped_ || process_.dead) return;
  ready_.push_back(std::move(task));
  if (idle_ == 0) return;
  --idle_;
  world_.Spawn(&process_, [this] { Work(); });
}

void Threads::Work() {
  while (!ready_.empty() && !stopped_) {
    const Task task = std::move(ready_.front());
    ready_.pop_front();
    task();
  }
  ++idle_;
}

void Threads::PostAt(MonotonicTime time, Task task) {
  if (stopped_ || process_.dead) return;
  timers_.emplace(time, std::move(task));
  if (watcher_ == nullptr) {
    world_.Spawn(&process_, [this] { WatchTimers(); });
  } else if (time < watching_for_) {
    watching_for_ = time;
    world_.Wake(watcher_);
  }
}

void Threads::WatchTimers() {
  if (watcher_ != nullptr) return;
  watcher_ = world_.current();
  while (!timers_.empty() && !stopped_) {
    watching_for_ = timers_.begin()->first;
    const MonotonicTime now = clock_.Monotonic();
    if (now < watching_for_) {
      world_.Block(process_, NanosOf(watching_for_ - now));
      continue;
    }
    Task task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    Post(std::move(task));
  }
  watcher_ = nullptr;
}

void Threads::Stop() {
  stopped_ = true;
  ready_.clear();
  timers_.clear();
  if (watcher_ != nullptr) world_.Wake(watcher_);
  while ((idle_ < count_ || watcher_ != nullptr) && !process_.dead) world_.Block(process_, kMilli);
}

void Journal::Write(LogLevel level, std::string_view message) {
  if (!loud_ || level == LogLevel::kDebug) return;
  static constexpr std::string_view kLevels[] = {"debug", "info", "warning", "error"};
  fmt::print("{:12.6f} {}#{} {}: {}\n", static_cast<double>(world_.now()) / 1e9, process_.name,
             process_.number, kLevels[static_cast<int>(level)], message);
}

}  // namespace leaf::sim
