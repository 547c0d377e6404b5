// Builds the adapters that the configuration names, for commands that work on the store themselves.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/logger.h"
#include "leaf/core/code_records.h"
#include "leaf/embed/environment.h"
#include "leaf/service/granter.h"
#include "leaf/service/segment_service.h"
#include "leaf/service/tallies.h"
#include "leaf/sql/database.h"
#include "leaf/sql/mark_store.h"
#include "leaf/sql/segment_store.h"

namespace leaf::embed {

// The store of segment.store. The embedded SQLite gets its directory now and its tables at the first use;
// nothing is connected before that. Errors: kConfig, kPermission (password file, state directory).
class Store {
 public:
  // A look, or a dry run, leaves no file behind: an embedded database that does not exist is an empty one,
  // and one where nothing can be written (a read-only disk, no right to write) is read as it stands.
  // Making tables may take a minute each, or more if --timeout says so: on a server with a busy disk, or
  // where another client holds the table, that takes far longer than any other statement. An examination
  // changes nothing at all, not even SQLite's own files.
  enum class Access { kLook, kWrite, kMakeTables, kExamine };
  // `log` hears of every change of the database server; null for none. Outlives the store.
  static Result<std::unique_ptr<Store>> Open(Environment& environment, Access access, Logger* log = nullptr);
  static Access AccessFor(bool dry_run) { return dry_run ? Access::kLook : Access::kWrite; }

  sql::Database& database() { return *database_; }
  sql::SqlSegmentStore& segments() { return segments_; }

 private:
  explicit Store(std::unique_ptr<sql::Database> database)
      : database_(std::move(database)), segments_(*database_) {}

  const std::unique_ptr<sql::Database> database_;
  sql::SqlSegmentStore segments_;
};

// The same database, and the same server of it, over the same connections.
Result<std::unique_ptr<sql::Database>> OpenDatabase(Environment& environment, Store::Access access,
                                                    Logger* log = nullptr,
                                                    sql::Use use = sql::Use::kOrdinary);

// What is known of it, for metrics and status. `name`: what it is for.
service::Dependency DependencyOf(const sql::Database& database, std::string name);

// The marks of the state directory, which is made if it is missing. `command`: the one that raises them.
Result<std::unique_ptr<sql::SqliteMarkStore>> OpenMarks(Environment& environment, std::string_view command);

// The same of another node's state directory, which has to be there. Errors: kConfig where it has no marks,
// kPermission.
Result<std::unique_ptr<sql::SqliteMarkStore>> OpenMarksOf(Environment& environment,
                                                          const std::string& state_dir,
                                                          std::string_view command);

// This state directory's mark of `tag`; its end is 0 if it has none. Makes nothing.
Result<core::Mark> LocalMark(Environment& environment, std::string_view tag);
// All of them. Makes nothing.
Result<std::vector<core::Mark>> LocalMarks(Environment& environment);
// The same for Access::kExamine.
Result<std::vector<core::Mark>> ExamineMarks(Environment& environment);

// The files of SQLite that a node with this configuration works with.
std::vector<std::string> SqliteFilesOf(const config::Config& config);

// Where the codes of each tag end: those that have made any, and those to which `config` gives a shape of
// their own.
Result<core::CodeEnds> ReadCodeEnds(sql::Database& database, const config::Config::Codes& config);

// How long a grant may take at most before it is dropped.
std::chrono::milliseconds ReplyTimeout(const Environment& environment, const config::Config& config);

// [segment], for segment mode that is to last. `paused` outlives the service.
service::SegmentOptions SegmentOptionsOf(const Environment& environment, const config::Config& config,
                                         service::PausedTags& paused);

}  // namespace leaf::embed
