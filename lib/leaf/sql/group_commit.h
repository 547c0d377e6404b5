// What many tasks want durable at the same time is written in one transaction, so that they share its flush.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "leaf/base/mutex.h"
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
    const MutexLock lock(mutex_);
    waiting_.push_back(&task);
    while (!task.result) {
      if (writing_) {
        written_.Wait(mutex_);
      } else {
        WriteGroup();
      }
    }
    return *std::move(task.result);
  }

  // Tasks whose item no write has taken up yet.
  std::size_t waiting() const {
    const MutexLock lock(mutex_);
    return waiting_.size();
  }

 private:
  struct Task {
    const Item* item;
    std::optional<Result<void>> result;
  };

  // An exception here would leave the others waiting for ever: it ends the process.
  void WriteGroup() noexcept LEAF_REQUIRES(mutex_) {
    writing_ = true;
    std::vector<Task*> group;
    group.swap(waiting_);
    const Result<void> result = WriteItems(group);
    for (Task* task : group) task->result = result;
    writing_ = false;
    written_.NotifyAll();
  }

  // The mutex is released meanwhile: other tasks may come.
  Result<void> WriteItems(const std::vector<Task*>& group) LEAF_REQUIRES(mutex_) {
    const MutexUnlock unlock(mutex_);
    std::vector<const Item*> items;
    items.reserve(group.size());
    for (const Task* task : group) items.push_back(task->item);
    return write_(items);
  }

  const Write write_;
  mutable Mutex mutex_;
  Condition written_;
  std::vector<Task*> waiting_ LEAF_GUARDED_BY(mutex_);
  bool writing_ LEAF_GUARDED_BY(mutex_) = false;
};

}  // namespace leaf::sql
