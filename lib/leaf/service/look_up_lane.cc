#include "leaf/service/look_up_lane.h"

#include <utility>

namespace leaf::service {

void LookUpLane::Post(Executor::Task task) {
  {
    const MutexLock lock(mutex_);
    if (running_ == at_once_) {
      waiting_.push_back(std::move(task));
      return;
    }
    ++running_;
  }
  executor_.Post([this, task = std::move(task)] { Run(task); });
}

std::size_t LookUpLane::size() const {
  const MutexLock lock(mutex_);
  return running_ + waiting_.size();
}

// The next one is posted, not run: what others have posted to the executor meanwhile comes first.
void LookUpLane::Run(const Executor::Task& task) {
  task();
  Executor::Task next;
  {
    const MutexLock lock(mutex_);
    if (waiting_.empty()) {
      --running_;
      return;
    }
    next = std::move(waiting_.front());
    waiting_.pop_front();
  }
  executor_.Post([this, next = std::move(next)] { Run(next); });
}

}  // namespace leaf::service
