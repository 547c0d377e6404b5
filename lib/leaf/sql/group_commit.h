// What many tasks want durable at the same time is written in one transaction, so that they share its flush.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "leaf/base/result.h"

namespace leaf::sql {

// A task that finds no write under way writes its own item at once. Tasks that come during a write wait. One
// of them then writes the items of all of them, as one group; a failure is that of the whole group. So a file
// that takes long for a flush serves any number of tasks in the time of two flushes. Each with a transaction
// of its own, they would wait for one another in no order at all: SQLite asks for its lock again and again,
// and fails after its time-out.
//
// Thread-safe. `write` is called by one task at a time, makes all of its items durable or none, and throws
// nothing.
template <typename Item>
class GroupCommit {
 public:
  using Write = std::function<Result<void>(const std::vector<const Item*>& items)>;

  explicit GroupCommit(Write write) : write_(std::move(write)) {}
  GroupCommit(const GroupCommit&) = delete;
  GroupCommit& operator=(const GroupCommit&) = delete;

  // Returns what `write` said of the group that `item` was in. Blocks for two writes at most.
  Result<void> Run(const Item& item) {
    Task task{&item, std::nullopt};
    std::unique_lock lock(mutex_);
    waiting_.push_back(&task);
    while (!task.result) {
      if (writing_) {
        written_.wait(lock);
      } else {
        WriteGroup(lock);
      }
    }
    return *std::move(task.result);
  }

  // Tasks whose item no write has taken up yet.
  std::size_t waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_.size();
  }

 private:
  struct Task {
    const Item* item;
    std::optional<Result<void>> result;
  };

  // An exception here would leave the others waiting for ever: it ends the process.
  void WriteGroup(std::unique_lock<std::mutex>& lock) noexcept {
    writing_ = true;
    std::vector<Task*> group;
    group.swap(waiting_);
    lock.unlock();
    std::vector<const Item*> items;
    items.reserve(group.size());
    for (const Task* task : group) items.push_back(task->item);
    const Result<void> result = write_(items);
    lock.lock();
    for (Task* task : group) task->result = result;
    writing_ = false;
    written_.notify_all();
  }

  const Write write_;
  mutable std::mutex mutex_;
  std::condition_variable written_;
  std::vector<Task*> waiting_;
  bool writing_ = false;
};

}  // namespace leaf::sql
