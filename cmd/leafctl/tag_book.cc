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
#include "leaf/base/text.h"
#include "leaf/client/daemon_client.h"
#include "leaf/sys/process_name.h"
#include "tag_output.h"
#include "universe.h"

namespace leaf::cmd {
namespace {

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
  const Json json = Json::parse(*body, nullptr, false);
  const auto segment = json.is_object() ? json.find("segment") : json.end();
  const bool serves = json.is_object() && segment != json.end() && segment->is_object() &&
                      segment->value("enabled", false) &&
                      json.value("store_at", Json()) == Json(StoreAt(config));
  if (!serves) return "";
  context.Detail(fmt::format("through the daemon at {}", server));
  return server;
}

std::string UserName() {
  const passwd* const entry = getpwuid(geteuid());
  return entry != nullptr ? entry->pw_name : fmt::format("user {}", geteuid());
}

}  // namespace

Result<std::vector<ListedTag>> StoreBook::ListWithDays() {
  LEAF_ASSIGN_OR_RETURN(auto rows, segments_.List());
  LEAF_ASSIGN_OR_RETURN(const auto mark_list, LocalMarks(ports_.environment));
  std::unordered_map<std::string_view, const core::Mark*> marks;
  for (const core::Mark& mark : mark_list) marks.emplace(mark.tag, &mark);
  const WallTime now = ports_.environment.ClockInUse().Wall();
  std::vector<ListedTag> tags;
  tags.reserve(rows.size());
  for (core::TagRow& row : rows) {
    const auto mark = marks.find(row.tag);
    const auto days = mark == marks.end() ? std::nullopt : DaysLeft(row, *mark->second, now);
    tags.push_back({std::move(row), days});
  }
  return tags;
}

Result<TagDetails> StoreBook::Show(const std::string& tag) {
  TagDetails details;
  LEAF_ASSIGN_OR_RETURN(details.row, segments_.Describe(tag));
  LEAF_ASSIGN_OR_RETURN(details.mark, LocalMark(ports_.environment, tag));
  details.days_left = DaysLeft(details.row, details.mark, ports_.environment.ClockInUse().Wall());
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

Result<StoreBook::Added> StoreBook::AddAbove(core::NewTag tag, core::WriteMode mode) {
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
  return segments_.Update(tag, change, mode);
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
  if (!place.servers.empty()) {
    LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
    LEAF_ASSIGN_OR_RETURN(std::string token, ClientToken(*resolved));
    return std::unique_ptr<TagBook>(
        std::make_unique<DaemonBook>(context, place.servers, TlsOf(*resolved), std::move(token)));
  }
  LEAF_RETURN_IF_ERROR(CheckUniverse(context));
  if (place.changes && !place.direct) {
    LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
    if (const std::string server = DaemonOfStore(context, resolved->config); !server.empty())
      return std::unique_ptr<TagBook>(
          std::make_unique<DaemonBook>(context, std::vector{server}, nullptr, ""));
  }
  LEAF_ASSIGN_OR_RETURN(auto store, Store::Open(context, access));
  return std::unique_ptr<TagBook>(std::make_unique<OwnStoreBook>(context, std::move(store), command));
}

}  // namespace leaf::cmd
