#include "leaf/sys/process_file.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "leaf/base/check.h"
#include "leaf/base/mutex.h"

namespace leaf::sys {
namespace {

bool AreSameFile(const std::string& a, const std::string& b) {
  std::error_code failed;
  return a == b || (std::filesystem::equivalent(a, b, failed) && !failed);
}

}  // namespace

struct ProcessFile::Entry {
  std::string path;
  bool is_of_parent = false;
};

// Its mutex is held over every fork, so that the child finds a table that is whole and a mutex that it can
// take. Never destroyed: objects that are static use it until the end.
class ProcessFile::Table {
 public:
  static Table& Of() {
    static Table& table = *new Table;
    return table;
  }

  Result<std::unique_ptr<Entry>> Add(const std::string& path) {
    auto entry = std::make_unique<Entry>(Entry{.path = path});
    const MutexLock lock(mutex_);
    for (const Entry* const other : entries_) {
      if (!other->is_of_parent || !AreSameFile(other->path, path)) continue;
      return Error{ErrorCode::kRefused,
                   fmt::format("cannot use {}: the process that this one was forked from had it open", path),
                   "fork before the parent opens it, or name another file"};
    }
    entries_.push_back(entry.get());
    return entry;
  }

  void Remove(const Entry& entry) {
    const MutexLock lock(mutex_);
    std::erase(entries_, &entry);
  }

 private:
  Table() { LEAF_CHECK(pthread_atfork(BeforeFork, InParent, InChild) == 0); }

  // The mutex is locked in one and unlocked in the other, which clang cannot follow.
  static void BeforeFork() LEAF_THREAD_ATTRIBUTE(no_thread_safety_analysis) { Of().mutex_.lock(); }
  static void InParent() LEAF_THREAD_ATTRIBUTE(no_thread_safety_analysis) { Of().mutex_.unlock(); }
  static void InChild() LEAF_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
    for (Entry* const entry : Of().entries_) entry->is_of_parent = true;
    Of().mutex_.unlock();
  }

  Mutex mutex_;
  std::vector<Entry*> entries_ LEAF_GUARDED_BY(mutex_);
};

Result<ProcessFile> ProcessFile::Note(const std::string& path) {
  LEAF_ASSIGN_OR_RETURN(auto entry, Table::Of().Add(path));
  return ProcessFile(std::move(entry));
}

ProcessFile::ProcessFile(std::unique_ptr<Entry> entry) : entry_(std::move(entry)) {}
ProcessFile::ProcessFile(ProcessFile&&) noexcept = default;

ProcessFile::~ProcessFile() {
  // What was noted before a fork stays noted in the child: SQLite's table has it still.
  if (entry_ == nullptr) return;
  if (entry_->is_of_parent) {
    static_cast<void>(entry_.release());
    return;
  }
  Table::Of().Remove(*entry_);
}

}  // namespace leaf::sys
