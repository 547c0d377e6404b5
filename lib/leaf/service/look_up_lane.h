// What clients have read from the database: names that no refresh has seen yet, marks, the table. Any client
// may ask for any name, so these reads are few at once: they share the slow workers with tags in trouble,
// whose grants must not wait behind them.
#pragma once

#include <cstddef>
#include <deque>

#include "leaf/base/executor.h"
#include "leaf/base/mutex.h"

namespace leaf::service {

// Thread-safe. Outlives the tasks on its executor.
class LookUpLane {
 public:
  // Runs tasks on `executor`, up to `at_once` at the same time. Requires: at_once > 0.
  LookUpLane(Executor& executor, std::size_t at_once) : executor_(executor), at_once_(at_once) {}

  // Runs `task` after those that have come before it have begun, never inside this call. It may block.
  // Dropped once the executor is stopped.
  void Post(Executor::Task task);

  // Tasks that wait or run.
  std::size_t size() const;

 private:
  void Run(const Executor::Task& task);

  Executor& executor_;
  const std::size_t at_once_;
  mutable Mutex mutex_;
  std::size_t running_ LEAF_GUARDED_BY(mutex_) = 0;  // on the executor
  std::deque<Executor::Task> waiting_ LEAF_GUARDED_BY(mutex_);
};

}  // namespace leaf::service
