// The table of tags as the tag commands read and change it: the store itself, or a daemon in front of it. The
// daemon answers for others with the same: each rule has one place.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "context.h"
#include "leaf/base/result.h"
#include "leaf/core/audit.h"
#include "leaf/core/code_records.h"
#include "leaf/core/exhaustion.h"
#include "leaf/core/ports.h"
#include "leaf/embed/cluster_link.h"
#include "leaf/embed/environment.h"
#include "leaf/sql/database.h"
#include "leaf/sql/segment_store.h"
#include "stores.h"
#include "tag_order.h"

namespace leaf::cmd {

// A tag with what its node knows of how long its numbers last.
struct ListedTag {
  core::TagRow row;
  std::optional<double> days_left;
  std::optional<core::CodesLeft> codes_left{};  // nothing for a tag without codes
};

struct TagDetails {
  core::TagRow row;
  core::Mark mark;  // of the node whose state directory it is
  std::optional<double> days_left;
  std::optional<core::CodesLeft> codes_left{};
};

// Calls block. Errors: those of core::SegmentStore and core::TagAdmin, and of what stands between.
class TagBook {
 public:
  virtual ~TagBook() = default;

  virtual Result<std::vector<core::TagRow>> List() = 0;
  virtual Result<std::vector<ListedTag>> ListWithDays() = 0;
  virtual Result<core::TagRow> Describe(const std::string& tag) = 0;
  virtual Result<TagDetails> Show(const std::string& tag) = 0;
  // The end of all that is known to have been granted under this name, in the state directory, in the
  // database after a removal, and in the cluster; 0 for nothing.
  virtual Result<std::uint64_t> KnownMark(const std::string& tag) = 0;
  // The newest changes, the newest first. Errors: kNotFound for a tag that neither exists nor has any.
  virtual Result<std::vector<core::AuditLine>> History(const std::string& tag, std::uint64_t limit) = 0;

  // Adds the tag above all that is known of its name.
  virtual Result<core::TagRow> Add(const core::NewTag& tag, core::WriteMode mode) = 0;
  virtual Result<core::TagRow> Change(const std::string& tag, const core::TagChange& change,
                                      core::WriteMode mode) = 0;
  virtual Result<core::TagRow> Advance(const std::string& tag, std::uint64_t to, core::WriteMode mode) = 0;
  // Removes the tag and remembers where it had got to, first in the state directory. `row`: as it was seen.
  // Returns it as it was.
  virtual Result<core::TagRow> Remove(const core::TagRow& row, core::WriteMode mode) = 0;
};

// The store, its marks and, with the cluster's fence, the witness beside it.
class StoreBook final : public TagBook {
 public:
  // All of it outlives the book.
  struct Ports {
    embed::Environment& environment;
    sql::Database& database;
    // Null for the node fence. Called when it is needed first.
    std::function<Result<embed::ClusterLink*>()> cluster;
    core::Author author;
    std::string command;  // "tag add", for the records
    core::AuditListener changed;
    std::function<void(const std::string&)> warn;  // one line, without an end
    // Makes the caller's own node look at the orders of tags now; null for none.
    std::function<void()> look_at_orders{};
    // Whether the process is to end, so that nothing is waited for any more.
    std::function<bool()> ending{};
    // Where the codes of tags end; empty: as the environment's configuration says.
    std::function<Result<core::CodeEnds>()> code_ends{};
  };
  explicit StoreBook(Ports ports)
      : ports_(std::move(ports)),
        segments_(ports_.database, ports_.author, ports_.changed),
        orders_(ports_.database) {}

  Result<std::vector<core::TagRow>> List() override;
  Result<std::vector<ListedTag>> ListWithDays() override;
  Result<core::TagRow> Describe(const std::string& tag) override;
  Result<TagDetails> Show(const std::string& tag) override;
  Result<std::uint64_t> KnownMark(const std::string& tag) override;
  Result<std::vector<core::AuditLine>> History(const std::string& tag, std::uint64_t limit) override;
  Result<core::TagRow> Add(const core::NewTag& tag, core::WriteMode mode) override;
  Result<core::TagRow> Change(const std::string& tag, const core::TagChange& change,
                              core::WriteMode mode) override;
  Result<core::TagRow> Advance(const std::string& tag, std::uint64_t to, core::WriteMode mode) override;
  Result<core::TagRow> Remove(const core::TagRow& row, core::WriteMode mode) override;

  // A tag that was added, and what was known of its name before.
  struct Added {
    core::TagRow row;
    core::Mark mark;
    std::uint64_t witness = 0;
  };
  Result<Added> AddAbove(const core::NewTag& tag, core::WriteMode mode);

  sql::SqlSegmentStore& segments() { return segments_; }

 private:
  core::CodeEnds CodeEnds();
  Result<TagOrderDesk> OrderDesk(std::optional<std::chrono::milliseconds> wait);
  Result<Added> AddRow(core::NewTag tag, core::WriteMode mode);
  // The tag is not strict any more. `listed`: as of TagOrderDesk::End. Whether it was.
  Result<bool> EndOrder(const std::string& tag, bool listed);
  Result<void> SetOrder(core::TagRow& row, const core::TagChange& change, core::WriteMode mode);
  // Fills in core::TagRow::strict of all.
  Result<void> FillOrders(const std::vector<core::TagRow*>& rows);
  void NoteOrder(const std::string& tag, std::string_view action);
  void WarnOfJava(const std::string& tag);

  const Ports ports_;
  sql::SqlSegmentStore segments_;
  sql::SqlTagOrders orders_;
};

// Where the tag commands work.
struct TagPlace {
  std::vector<std::string> servers;  // --server: a daemon's, instead of the store itself
  bool direct = false;               // --direct: on the store itself, also beside a daemon
  bool changes = false;              // what changes something goes through the daemon that serves the store
  bool waits = false;                // for other nodes
};
// --server of the commands that read the store without it; and, of those that change it, also --direct.
void AddTagServerFlag(CLI::App& app, TagPlace& place);
void AddTagServerFlags(CLI::App& app, TagPlace& place);

// Who runs `command` ("tag add"), for the history.
core::Author AuthorOfCommand(std::string_view command);
// Warns, once, of changes that are not in the history.
core::AuditListener WarnOfGaps(CommandContext& context);

// What a command works on: the daemon that is named; for a change the one that answers on the socket of this
// configuration and serves this very database, so that it finds at once what was changed; else the store
// itself. `access`: of the store. Errors: those of Store::Open.
Result<std::unique_ptr<TagBook>> OpenTagBook(CommandContext& context, const TagPlace& place,
                                             Store::Access access, std::string_view command);

}  // namespace leaf::cmd
