#include "tag_desk.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "confirm.h"
#include "daemons.h"
#include "leaf/base/text.h"
#include "leaf/sys/process_name.h"
#include "tag_changes.h"
#include "tag_marks.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

using DeskJson = server::TagDesk::Json;

// What a command tells on stderr.
void AddWarnings(DeskJson& json, const std::vector<std::string>& warnings) {
  if (!warnings.empty()) json["warnings"] = warnings;
}

// Whether the caller's confirmation names the tag, if it names anything.
Result<void> CheckCallersName(const std::string& confirm, std::string_view action, const std::string& tag) {
  return CheckConfirmedName("confirm", confirm, action, tag);
}

bool Commits(const server::TagDesk::Caller& caller) { return caller.mode == core::WriteMode::kCommit; }

}  // namespace

core::AuditListener NodeTagDesk::Listener() {
  return [this](const core::AuditLine& line, const std::string& why_not) {
    // The service has told of a pause already, which needs no database.
    if (line.before || line.after) log_.Info("{}", AuditText(line));
    if (why_not.empty() || gap_told_.exchange(true)) return;
    log_.Warning("changes of tags are in this log, and not in their history: {}", why_not);
  };
}

template <typename Done>
Result<Done> NodeTagDesk::Watched(Result<Done> done, const std::string& who) {
  if (!done.ok() && done.error().code == ErrorCode::kOutcomeUnknown)
    log_.Warning("unknown whether it was done, for {}: {}", who, done.error().message);
  return done;
}

StoreBook NodeTagDesk::BookFor(const std::string& who, Warnings& warnings) {
  return StoreBook({.environment = context_,
                    .database = node_.segment_adapters().store().database(),
                    .cluster = [this]() -> Result<embed::ClusterLink*> { return node_.cluster(); },
                    .author = {.who = who, .origin = sys::ProcessName("serve")},
                    .command = "serve",
                    .changed = Listener(),
                    .warn = [&warnings](const std::string& text) { warnings.push_back(text); },
                    .look_at_orders = [this] { node_.segment()->RefreshNow(); },
                    .ending = [this] { return ending_.load(); },
                    .code_ends = [this] { return node_.segment_adapters().CodeEnds(); }});
}

Result<DeskJson> NodeTagDesk::List(const Listing& listing) {
  Warnings warnings;
  StoreBook book = BookFor("", warnings);
  LEAF_ASSIGN_OR_RETURN(std::vector<ListedTag> tags, book.ListWithDays());
  if (const std::string wanted = LowerCase(listing.search); !wanted.empty()) {
    std::erase_if(
        tags, [&](const ListedTag& tag) { return LowerCase(tag.row.tag).find(wanted) == std::string::npos; });
  }
  LEAF_RETURN_IF_ERROR(SortTags("sort", listing.sort, listing.reverse, tags));
  const std::uint64_t begin = std::min<std::uint64_t>(listing.offset, tags.size());
  const std::uint64_t end = begin + std::min<std::uint64_t>(listing.limit, tags.size() - begin);
  DeskJson list = DeskJson::array();
  for (std::uint64_t i = begin; i < end; ++i) list.push_back(ListedJson(tags[i]));
  return DeskJson{{"tags_matching", tags.size()}, {"tags", std::move(list)}};
}

Result<DeskJson> NodeTagDesk::Show(const std::string& tag) {
  Warnings warnings;
  LEAF_ASSIGN_OR_RETURN(const TagDetails details, BookFor("", warnings).Show(tag));
  return DetailsJson(details);
}

Result<DeskJson> NodeTagDesk::History(const std::string& tag, std::uint64_t limit) {
  Warnings warnings;
  LEAF_ASSIGN_OR_RETURN(const auto lines, BookFor("", warnings).History(tag, limit));
  return HistoryJson(tag, lines);
}

Result<DeskJson> NodeTagDesk::Add(const core::NewTag& tag, const Caller& caller) {
  Warnings warnings;
  StoreBook book = BookFor(caller.who, warnings);
  LEAF_ASSIGN_OR_RETURN(const StoreBook::Added added, Watched(book.AddAbove(tag, caller.mode), caller.who));
  DeskJson json = TagJson(added.row);
  json["dry_run"] = !Commits(caller);
  if (Commits(caller)) {
    node_.segment()->Adopt(added.row, added.mark, added.witness);
  } else {
    LEAF_ASSIGN_OR_RETURN(const std::uint64_t mark, book.KnownMark(tag.tag));
    json["known_mark"] = std::to_string(mark);
  }
  AddWarnings(json, warnings);
  return json;
}

Result<server::TagDesk::Outcome<DeskJson>> NodeTagDesk::Change(const std::string& tag,
                                                               const core::TagChange& change,
                                                               const std::string& confirm,
                                                               const Caller& caller) {
  LEAF_RETURN_IF_ERROR(CheckCallersName(confirm, fmt::format("change tag {}", Quoted(tag)), tag));
  Warnings warnings;
  StoreBook book = BookFor(caller.who, warnings);
  if (change.max_id) {
    LEAF_ASSIGN_OR_RETURN(const core::TagRow before, book.Describe(tag));
    if (!WhyFar(before, *change.max_id).empty() && confirm.empty() && Commits(caller))
      return Outcome<DeskJson>{.unconfirmed = Unconfirmed{AdvanceText(before, *change.max_id)}};
  }
  const bool only_advances = change.max_id && !change.step && !change.description && !change.order;
  LEAF_ASSIGN_OR_RETURN(const core::TagRow row,
                        Watched(only_advances ? book.Advance(tag, *change.max_id, caller.mode)
                                              : book.Change(tag, change, caller.mode),
                                caller.who));
  if (Commits(caller)) node_.segment()->RefreshNow();
  DeskJson json = TagJson(row);
  json["dry_run"] = !Commits(caller);
  AddWarnings(json, warnings);
  return Outcome<DeskJson>{.done = std::move(json)};
}

Result<server::TagDesk::Outcome<DeskJson>> NodeTagDesk::Remove(const std::string& tag,
                                                               const std::string& confirm,
                                                               const Caller& caller) {
  LEAF_RETURN_IF_ERROR(CheckCallersName(confirm, fmt::format("remove tag {}", Quoted(tag)), tag));
  Warnings warnings;
  StoreBook book = BookFor(caller.who, warnings);
  LEAF_ASSIGN_OR_RETURN(const core::TagRow before, book.Describe(tag));
  if (confirm.empty() && Commits(caller)) {
    return Outcome<DeskJson>{
        .unconfirmed = Unconfirmed{fmt::format("remove tag {} (max_id {})", Quoted(tag), before.max_id)}};
  }
  LEAF_ASSIGN_OR_RETURN(const core::TagRow removed, Watched(book.Remove(before, caller.mode), caller.who));
  if (Commits(caller)) node_.segment()->Forget(tag);
  DeskJson json = TagJson(removed);
  json["removed"] = Commits(caller);
  json["dry_run"] = !Commits(caller);
  AddWarnings(json, warnings);
  return Outcome<DeskJson>{.done = std::move(json)};
}

Result<DeskJson> NodeTagDesk::Repair(const std::string& tag, std::optional<std::uint64_t> to,
                                     const std::string& confirm, const Caller& caller) {
  LEAF_RETURN_IF_ERROR(CheckCallersName(confirm, fmt::format("repair tag {}", Quoted(tag)), tag));
  // It may wait for other daemons, and there are few threads.
  if (repairing_.exchange(true))
    return Error{ErrorCode::kUnavailable, "another repair is under way; nothing was done", "retry later"};
  auto json = DoRepair(tag, to.value_or(0), to.has_value(), confirm, caller);
  repairing_.store(false);
  return json;
}

Result<DeskJson> NodeTagDesk::DoRepair(const std::string& tag, std::uint64_t to, bool has_to,
                                       const std::string& confirm, const Caller& caller) {
  Warnings warnings;
  StoreBook book = BookFor(caller.who, warnings);
  MarkSources sources({.environment = context_,
                       .resolved = resolved_,
                       .segments = book.segments(),
                       .cluster = [this]() -> Result<embed::ClusterLink*> { return node_.cluster(); },
                       .ask_timeout = kAskTimeout,
                       .warn = [&](const std::string& text) { warnings.push_back(text); },
                       .ending = [this] { return ending_.load(); }});
  LEAF_ASSIGN_OR_RETURN(const core::TagRow row, book.Describe(tag));
  LEAF_RETURN_IF_ERROR(sources.Open());
  LEAF_ASSIGN_OR_RETURN(const Evidence evidence, sources.Collect(row));
  for (const Missing& missing : evidence.missing) warnings.push_back(MissingText(missing));
  if (!evidence.missing.empty() && !has_to)
    return RefusalOf("tag " + Quoted(tag), evidence.missing.front(), tag);
  const std::uint64_t target = std::max(to, evidence.highest());
  const core::WriteMode mode = confirm.empty() ? core::WriteMode::kDryRun : caller.mode;
  core::TagRow after = row;
  if (evidence.IsBelow(target)) {
    LEAF_ASSIGN_OR_RETURN(
        after, Watched(book.segments().Advance(tag, target, mode, core::kAuditRepair), caller.who));
    if (mode == core::WriteMode::kCommit) node_.segment()->RefreshNow();
  }
  DeskJson json = RepairJson(evidence, after);
  json["dry_run"] = mode == core::WriteMode::kDryRun;
  AddWarnings(json, warnings);
  return json;
}

void NodeTagDesk::Paused(const std::string& tag, bool paused, const Caller& caller) {
  Warnings warnings;
  StoreBook book = BookFor(caller.who, warnings);
  const std::string_view action = paused ? core::kAuditPause : core::kAuditResume;
  const auto recorded = book.segments().Record(tag, action);
  if (recorded.ok()) return;
  log_.Warning("the {} of tag {} is not in its history: {}", action, Quoted(tag), recorded.error().message);
}

}  // namespace leaf::cmd
