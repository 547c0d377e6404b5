#include "tag_book.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "cli.h"
#include "daemon_book.h"
#include "daemons.h"
#include "leaf/base/foreign_json.h"
#include "leaf/base/text.h"
#include "leaf/client/daemon_client.h"
#include "leaf/sys/process_name.h"
#include "leaf/sys/state_dir.h"
#include "tag_output.h"
#include "universe.h"

namespace leaf::cmd {
namespace {

// How long nodes are waited for that have to keep to another order, if the caller does not say.
constexpr std::chrono::milliseconds kOrderPatience{20'000};

// The store that a command opens by itself.
class OwnStoreBook final : public TagBook {
 public:
  OwnStoreBook(CommandContext& context, std::unique_ptr<Store> store, std::string_view command)
      : context_(context),
        log_(context),
        store_(std::move(store)),
        command_(command),
        book_({.environment = context,
               .database = store_->database(),
               .cluster = [this] { return Cluster(); },
               .author = AuthorOfCommand(command),
               .command = command_,
               .changed = WarnOfGaps(context),
               .warn = [&context](const std::string& text) { context.Note("leafctl: warning: " + text); }}) {}

  Result<std::vector<core::TagRow>> List() override { return book_.List(); }
  Result<std::vector<ListedTag>> ListWithDays() override { return book_.ListWithDays(); }
  Result<core::TagRow> Describe(const std::string& tag) override { return book_.Describe(tag); }
  Result<TagDetails> Show(const std::string& tag) override { return book_.Show(tag); }
  Result<std::uint64_t> KnownMark(const std::string& tag) override { return book_.KnownMark(tag); }
  Result<std::vector<core::AuditLine>> History(const std::string& tag, std::uint64_t limit) override {
    return book_.History(tag, limit);
  }
  Result<core::TagRow> Add(const core::NewTag& tag, core::WriteMode mode) override {
    return book_.Add(tag, mode);
  }
  Result<core::TagRow> Change(const std::string& tag, const core::TagChange& change,
                              core::WriteMode mode) override {
    return book_.Change(tag, change, mode);
  }
  Result<core::TagRow> Advance(const std::string& tag, std::uint64_t to, core::WriteMode mode) override {
    return book_.Advance(tag, to, mode);
  }
  Result<core::TagRow> Remove(const core::TagRow& row, core::WriteMode mode) override {
    return book_.Remove(row, mode);
  }

 private:
  Result<embed::ClusterLink*> Cluster() {
    if (!cluster_opened_) {
      LEAF_ASSIGN_OR_RETURN(cluster_, embed::ClusterLink::Open(context_, log_, sys::ProcessName(command_)));
      cluster_opened_ = true;
    }
    return cluster_.get();
  }

  CommandContext& context_;
  ContextLogger log_;
  const std::unique_ptr<Store> store_;
  const std::string command_;
  bool cluster_opened_ = false;
  std::unique_ptr<embed::ClusterLink> cluster_;
  StoreBook book_;
};

// The daemon that answers on this configuration's socket and serves its database; "" if there is none.
std::string DaemonOfStore(CommandContext& context, const config::Config& config) {
  const std::string& socket = config.server.socket;
  // For other users than its owner and root the daemon changes nothing over its socket.
  struct stat status {};
  if (socket.empty() || stat(socket.c_str(), &status) != 0) return "";
  if (geteuid() != 0 && geteuid() != status.st_uid) return "";
  std::string server = "unix:" + socket;
  client::DaemonClient daemon({server}, context.flags.timeout.value_or(kAskTimeout), nullptr);
  const auto body = daemon.Status(client::DaemonClient::StatusTags::kNone);
  if (!body.ok()) {
    context.Detail(fmt::format("not through the daemon at {}: {}", server, body.error().message));
    return "";
  }
  // A daemon of an earlier version says nothing of it. One of another database is none of this store's.
  const Json json = ParseForeignJson<Json>(*body);
  const auto segment = json.is_object() ? json.find("segment") : json.end();
  const bool serves = json.is_object() && segment != json.end() && segment->is_object() &&
                      segment->value("enabled", Json()) == Json(true) &&
                      json.value("store_at", Json()) == Json(StoreAt(config));
  if (!serves) return "";
  context.Detail(fmt::format("through the daemon at {}", server));
  return server;
}

// The daemon, or the program with the library, that has this state directory; 0 for none.
pid_t HolderOfReserves(const std::string& state_dir) {
  const auto lock = sys::StateDirLock::Take(state_dir, sys::StateDirUse::kCommand);
  if (lock.ok() || lock.error().code != ErrorCode::kRefused) return 0;
  const auto holder = sys::StateDirLock::HolderOf(state_dir);
  return holder && holder->is_seen && holder->use != sys::StateDirUse::kCommand ? holder->pid : 0;
}

std::optional<core::CodesLeft> CodesLeftOf(const core::CodeEnds& ends, const core::TagRow& row,
                                           const core::Mark& mark, WallTime now) {
  const auto end = ends.find(row.tag);
  if (end == ends.end()) return std::nullopt;
  core::CodesLeft left{.end = end->second};
  const bool has_ended = row.max_id >= 0 && static_cast<std::uint64_t>(row.max_id) >= left.end;
  if (mark.end > 0 || has_ended) left.days = core::DaysUntil(left.end, row.max_id, mark.base, now);
  return left;
}

std::string UserName() {
  const passwd* const entry = getpwuid(geteuid());
  return entry != nullptr ? entry->pw_name : fmt::format("user {}", geteuid());
}

}  // namespace

Result<void> StoreBook::FillOrders(const std::vector<core::TagRow*>& rows) {
  LEAF_ASSIGN_OR_RETURN(const auto table, orders_.Read());
  if (!table) return {};
  std::unordered_map<std::string_view, const core::OrderRow*> strict;
  for (const core::OrderRow& row : table->rows) {
    if (row.order == core::TagOrder::kStrict) strict.emplace(row.tag, &row);
  }
  for (core::TagRow* const row : rows) {
    if (const auto found = strict.find(row->tag); found != strict.end()) row->strict = *found->second;
  }
  return {};
}

Result<std::vector<core::TagRow>> StoreBook::List() {
  LEAF_ASSIGN_OR_RETURN(auto rows, segments_.List());
  std::vector<core::TagRow*> all;
  all.reserve(rows.size());
  for (core::TagRow& row : rows) all.push_back(&row);
  LEAF_RETURN_IF_ERROR(FillOrders(all));
  return rows;
}

Result<core::TagRow> StoreBook::Describe(const std::string& tag) {
  LEAF_ASSIGN_OR_RETURN(core::TagRow row, segments_.Describe(tag));
  LEAF_RETURN_IF_ERROR(FillOrders({&row}));
  return row;
}

// Tags are shown also where this cannot be known.
core::CodeEnds StoreBook::CodeEnds() {
  const auto read = [&]() -> Result<core::CodeEnds> {
    if (ports_.code_ends) return ports_.code_ends();
    LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, ports_.environment.Config());
    return ReadCodeEnds(ports_.database, resolved->config.codes);
  };
  auto ends = read();
  if (ends.ok()) return *std::move(ends);
  // A user who may not read that table makes no codes.
  if (ends.error().code != ErrorCode::kPermission)
    ports_.warn("it is not known how long codes last: " + ends.error().message);
  return {};
}

Result<std::vector<ListedTag>> StoreBook::ListWithDays() {
  LEAF_ASSIGN_OR_RETURN(auto rows, List());
  LEAF_ASSIGN_OR_RETURN(const auto mark_list, LocalMarks(ports_.environment));
  std::unordered_map<std::string_view, const core::Mark*> marks;
  for (const core::Mark& mark : mark_list) marks.emplace(mark.tag, &mark);
  const core::Mark none;
  const core::CodeEnds ends = CodeEnds();
  const WallTime now = ports_.environment.ClockInUse().Wall();
  std::vector<ListedTag> tags;
  tags.reserve(rows.size());
  for (core::TagRow& row : rows) {
    const auto mark = marks.find(row.tag);
    const core::Mark& known = mark == marks.end() ? none : *mark->second;
    const auto days = DaysLeft(row, known, now);
    const auto codes = CodesLeftOf(ends, row, known, now);
    tags.push_back({std::move(row), days, codes});
  }
  return tags;
}

Result<TagDetails> StoreBook::Show(const std::string& tag) {
  TagDetails details;
  LEAF_ASSIGN_OR_RETURN(details.row, Describe(tag));
  LEAF_ASSIGN_OR_RETURN(details.mark, LocalMark(ports_.environment, tag));
  const WallTime now = ports_.environment.ClockInUse().Wall();
  details.days_left = DaysLeft(details.row, details.mark, now);
  const core::CodeEnds ends = CodeEnds();
  details.codes_left = CodesLeftOf(ends, details.row, details.mark, now);
  return details;
}

Result<std::uint64_t> StoreBook::KnownMark(const std::string& tag) {
  LEAF_ASSIGN_OR_RETURN(const core::Mark mark, LocalMark(ports_.environment, tag));
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t removed, segments_.RemovedMark(tag));
  core::NewTag probe;
  probe.tag = tag;
  probe.mark = std::max(mark.end, removed);
  LEAF_ASSIGN_OR_RETURN(embed::ClusterLink* const cluster, ports_.cluster());
  if (cluster == nullptr) return probe.mark;
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t witness, cluster->RaiseMark(probe));
  return std::max(probe.mark, witness);
}

Result<std::vector<core::AuditLine>> StoreBook::History(const std::string& tag, std::uint64_t limit) {
  LEAF_ASSIGN_OR_RETURN(auto lines, segments_.History(tag, limit));
  if (lines.empty()) LEAF_RETURN_IF_ERROR(segments_.Describe(tag));
  return lines;
}

Result<TagOrderDesk> StoreBook::OrderDesk(std::optional<std::chrono::milliseconds> wait) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, ports_.environment.Config());
  LEAF_ASSIGN_OR_RETURN(embed::ClusterLink* const cluster, ports_.cluster());
  TagOrderDesk::Ports ports{.orders = orders_,
                            .clock = ports_.environment.ClockInUse(),
                            .daemons = nullptr,
                            .look = ports_.look_at_orders,
                            .patience = wait.value_or(kOrderPatience),
                            .ending = ports_.ending,
                            .fallback = cluster != nullptr && resolved->config.segment.witness_fallback};
  ports.holder = HolderOfReserves(resolved->config.state_dir);
  if (cluster != nullptr) {
    ports.daemons = [cluster] { return cluster->Daemons(); };
    ports.fence = &cluster->fence();
  }
  return TagOrderDesk(std::move(ports));
}

Result<bool> StoreBook::EndOrder(const std::string& tag, bool listed) {
  // Without the witness, too: nodes tell it later.
  const auto cluster = ports_.cluster();
  TagOrderDesk desk({.orders = orders_,
                     .clock = ports_.environment.ClockInUse(),
                     .daemons = nullptr,
                     .fence = cluster.ok() && *cluster != nullptr ? &(*cluster)->fence() : nullptr,
                     .look = nullptr});
  return desk.End(tag, listed);
}

// The change is made, and is no failure without its line.
void StoreBook::NoteOrder(const std::string& tag, std::string_view action) {
  const auto noted = segments_.Record(tag, action);
  if (!noted.ok())
    ports_.warn(
        fmt::format("the history of tag {} lacks this change: {}", Quoted(tag), noted.error().message));
}

void StoreBook::WarnOfJava(const std::string& tag) {
  if (ports_.database.connector() == nullptr) return;  // no Java Leaf on SQLite
  ports_.warn(
      fmt::format("Java Leaf does not know of it, nor does leafctl before this version: no such node may "
                  "serve tag {} from this table",
                  Quoted(tag)));
}

Result<void> StoreBook::SetOrder(core::TagRow& row, const core::TagChange& change, core::WriteMode mode) {
  const bool commits = mode == core::WriteMode::kCommit;
  if (*change.order == core::TagOrder::kTrend) {
    if (commits) {
      LEAF_ASSIGN_OR_RETURN(const bool ended, EndOrder(row.tag, row.strict.has_value()));
      if (ended && ports_.look_at_orders) ports_.look_at_orders();
      if (ended) NoteOrder(row.tag, core::kAuditTrend);
    }
    row.strict.reset();
    return {};
  }
  const bool was_strict = row.strict && row.strict->since;
  LEAF_ASSIGN_OR_RETURN(TagOrderDesk desk, OrderDesk(change.wait));
  LEAF_RETURN_IF_ERROR(desk.Check(row.tag, change.gone));
  core::OrderRow strict{row.tag, core::TagOrder::kStrict,
                        static_cast<std::uint64_t>(std::max<std::int64_t>(row.max_id, 0)), 0};
  if (commits) {
    LEAF_ASSIGN_OR_RETURN(const auto begun, desk.Await(row.tag, change.gone));
    strict.version = begun.version;
    LEAF_ASSIGN_OR_RETURN(strict.since, desk.Complete(row.tag, begun));
    if (!begun.since) NoteOrder(row.tag, core::kAuditStrict);
  }
  if (commits || !was_strict) row.strict = std::move(strict);
  if (!was_strict) WarnOfJava(row.tag);
  return {};
}

namespace {

// Its row is there, its order is not yet what was asked for.
Error AddedBut(const core::NewTag& tag, const Error& why) {
  return {why.code,
          fmt::format("tag {} was added, but its order is not {} yet: {}", Quoted(tag.tag),
                      core::TagOrderName(tag.order), why.message),
          TagCommand("set", tag.tag, fmt::format("--order {}", core::TagOrderName(tag.order)))};
}

}  // namespace

// The order comes first: a tag that was to be strict has no ID that is not.
Result<StoreBook::Added> StoreBook::AddAbove(const core::NewTag& tag, core::WriteMode mode) {
  if (tag.order == core::TagOrder::kTrend) {
    LEAF_ASSIGN_OR_RETURN(Added added, AddRow(tag, mode));
    // A tag of this name may have been strict once, which the witness remembers, and the table may not.
    if (mode == core::WriteMode::kCommit) {
      if (const auto ended = EndOrder(tag.tag, false); !ended.ok()) return AddedBut(tag, ended.error());
    }
    return added;
  }
  LEAF_ASSIGN_OR_RETURN(Added added, AddRow(tag, core::WriteMode::kDryRun));
  LEAF_ASSIGN_OR_RETURN(TagOrderDesk desk, OrderDesk(tag.wait));
  LEAF_RETURN_IF_ERROR(desk.Check(tag.tag, tag.gone));
  core::OrderRow strict{tag.tag, core::TagOrder::kStrict, static_cast<std::uint64_t>(added.row.max_id), 0};
  if (mode == core::WriteMode::kCommit) {
    // Looks again whether the tag is there by now, as another command has made it. One that comes later, and
    // is not to be strict, ends the order itself.
    const auto is_absent = [&]() -> Result<void> {
      LEAF_RETURN_IF_ERROR(AddRow(tag, core::WriteMode::kDryRun));
      return {};
    };
    LEAF_ASSIGN_OR_RETURN(const auto begun, desk.Await(tag.tag, tag.gone, is_absent));
    strict.version = begun.version;
    auto made = AddRow(tag, mode);
    if (!made.ok()) {
      const ErrorCode code = made.error().code;
      if (code == ErrorCode::kOutcomeUnknown || code == ErrorCode::kAlreadyExists)
        return std::move(made).error();
      return desk.GiveUp(tag.tag, begun, std::move(made).error());
    }
    added = *std::move(made);
    auto since = desk.Complete(tag.tag, begun);
    if (!since.ok()) return AddedBut(tag, since.error());
    strict.since = *since;
    NoteOrder(tag.tag, core::kAuditStrict);
  }
  WarnOfJava(tag.tag);
  added.row.strict = std::move(strict);
  return added;
}

Result<StoreBook::Added> StoreBook::AddRow(core::NewTag tag, core::WriteMode mode) {
  Added added;
  LEAF_ASSIGN_OR_RETURN(added.mark, LocalMark(ports_.environment, tag.tag));
  tag.mark = added.mark.end;
  LEAF_ASSIGN_OR_RETURN(embed::ClusterLink* const cluster, ports_.cluster());
  if (cluster != nullptr) {
    // What was granted under this name is known to the cluster, even if this machine never saw it.
    LEAF_ASSIGN_OR_RETURN(added.witness, cluster->RaiseMark(tag));
  }
  LEAF_ASSIGN_OR_RETURN(added.row, segments_.Add(tag, mode));
  return added;
}

Result<core::TagRow> StoreBook::Add(const core::NewTag& tag, core::WriteMode mode) {
  LEAF_ASSIGN_OR_RETURN(Added added, AddAbove(tag, mode));
  return std::move(added.row);
}

Result<core::TagRow> StoreBook::Change(const std::string& tag, const core::TagChange& change,
                                       core::WriteMode mode) {
  LEAF_ASSIGN_OR_RETURN(core::TagRow row, Describe(tag));
  // Two tables, two transactions: what the database refuses of the second is found before the first.
  if (change.order && change.changes_row() && mode == core::WriteMode::kCommit)
    LEAF_RETURN_IF_ERROR(segments_.Update(tag, change, core::WriteMode::kDryRun));
  if (change.order) LEAF_RETURN_IF_ERROR(SetOrder(row, change, mode));
  if (!change.changes_row()) return row;
  auto changed = segments_.Update(tag, change, mode);
  if (!changed.ok()) {
    Error error = std::move(changed).error();
    if (change.order && mode == core::WriteMode::kCommit) {
      error.message = fmt::format("the order of tag {} is {} now; {}", Quoted(tag),
                                  core::TagOrderName(*change.order), error.message);
    }
    return error;
  }
  changed->strict = std::move(row.strict);
  return changed;
}

Result<core::TagRow> StoreBook::Advance(const std::string& tag, std::uint64_t to, core::WriteMode mode) {
  return segments_.Advance(tag, to, mode);
}

Result<core::TagRow> StoreBook::Remove(const core::TagRow& row, core::WriteMode mode) {
  if (mode == core::WriteMode::kCommit) {
    // First, so that a crash between the two forgets nothing. Grants in between are the removal's own to
    // remember.
    LEAF_ASSIGN_OR_RETURN(const auto marks, OpenMarks(ports_.environment, ports_.command));
    const std::uint64_t end = row.max_id > 0 ? static_cast<std::uint64_t>(row.max_id) : 0;
    LEAF_RETURN_IF_ERROR(marks->Raise({row.tag, end, std::nullopt}));
  }
  LEAF_ASSIGN_OR_RETURN(core::TagAdmin::Removal removal, segments_.Remove(row.tag, mode));
  if (!removal.mark_remembered && mode == core::WriteMode::kCommit) {
    // What was granted since the row was read.
    LEAF_ASSIGN_OR_RETURN(const auto marks, OpenMarks(ports_.environment, ports_.command));
    const std::uint64_t end = removal.row.max_id > 0 ? static_cast<std::uint64_t>(removal.row.max_id) : 0;
    LEAF_RETURN_IF_ERROR(marks->Raise({row.tag, end, std::nullopt}));
    ports_.warn(
        fmt::format("the database has no table leafctl_removed_tags: only this state directory remembers "
                    "that the tag was "
                    "at {}",
                    removal.row.max_id));
  }
  return std::move(removal.row);
}

void AddTagServerFlag(CLI::App& app, TagPlace& place) {
  app.add_option("--server", place.servers,
                 "Work through this daemon, not on the store itself: unix:/PATH or http://HOST:PORT; the "
                 "first that answers is used")
      ->type_name("URL")
      ->check(NotEmpty)
      ->allow_extra_args(false);
}

void AddTagServerFlags(CLI::App& app, TagPlace& place) {
  AddTagServerFlag(app, place);
  place.changes = true;
  app.add_flag("--direct", place.direct, "Work on the store itself, also where a daemon serves it here");
}

core::Author AuthorOfCommand(std::string_view command) {
  return {.who = fmt::format("{}@{} ({})", UserName(), sys::HostName(), command),
          .origin = sys::ProcessName(command)};
}

core::AuditListener WarnOfGaps(CommandContext& context) {
  return [&context, told = false](const core::AuditLine&, const std::string& why_not) mutable {
    if (why_not.empty() || std::exchange(told, true)) return;
    context.Note(fmt::format("leafctl: warning: the change is not in the tag's history: {}", why_not));
  };
}

Result<std::unique_ptr<TagBook>> OpenTagBook(CommandContext& context, const TagPlace& place,
                                             Store::Access access, std::string_view command) {
  if (!place.servers.empty() && place.direct)
    return Error{ErrorCode::kInvalidArgument, "--direct and --server exclude each other", ""};
  // --timeout is how long the daemon waits for other nodes; its answer takes longer.
  const auto timeout = place.waits ? DaemonBook::kTimeoutWithNodes : DaemonBook::kTimeout;
  const auto more = place.waits ? DaemonBook::kTimeout : std::chrono::milliseconds{0};
  if (!place.servers.empty()) {
    LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
    LEAF_ASSIGN_OR_RETURN(std::string token, ClientToken(*resolved));
    return std::unique_ptr<TagBook>(std::make_unique<DaemonBook>(context, place.servers, TlsOf(*resolved),
                                                                 std::move(token), timeout, more));
  }
  LEAF_RETURN_IF_ERROR(CheckUniverse(context));
  if (place.changes && !place.direct) {
    LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
    if (const std::string server = DaemonOfStore(context, resolved->config); !server.empty())
      return std::unique_ptr<TagBook>(
          std::make_unique<DaemonBook>(context, std::vector{server}, nullptr, "", timeout, more));
  }
  LEAF_ASSIGN_OR_RETURN(auto store, Store::Open(context, access));
  return std::unique_ptr<TagBook>(std::make_unique<OwnStoreBook>(context, std::move(store), command));
}

}  // namespace leaf::cmd
