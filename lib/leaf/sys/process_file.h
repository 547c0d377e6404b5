// Files that a child of fork must not open while its parent works with them: those of SQLite.
//
// SQLite keeps a table of the files that a process has open, with the locks that it holds on them, since
// POSIX takes a process's locks away when it closes any descriptor of the file. A child inherits the table,
// but no lock. The schedule that breaks without this: the parent has leaf.db open when it forks, and the
// child opens leaf.db, too. SQLite finds it in its table and takes the parent's locks for the child's: both
// write at once. Or the parent closes it, sees no lock of the child, and removes the log that holds the
// child's commits: ranges that were granted are granted again. (https://sqlite.org/howtocorrupt.html,
// "Carrying an open database connection across a fork".)
#pragma once

#include <memory>
#include <string>

#include "leaf/base/result.h"

namespace leaf::sys {

// Says that this process works with a file, until destroyed. Thread-safe.
class ProcessFile {
 public:
  // `path`, which may be missing. Errors: kRefused if a process that this one was forked from was working
  // with the same file at that time.
  static Result<ProcessFile> Note(const std::string& path);

  ProcessFile(ProcessFile&&) noexcept;
  ProcessFile& operator=(ProcessFile&&) = delete;
  ~ProcessFile();

 private:
  struct Entry;
  class Table;
  explicit ProcessFile(std::unique_ptr<Entry> entry);
  std::unique_ptr<Entry> entry_;
};

}  // namespace leaf::sys
