// leafctl tag repair
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.h"
#include "confirm.h"
#include "daemons.h"
#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/client/daemon_client.h"
#include "leaf/embed/cluster_link.h"
#include "leaf/sys/process_name.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct TagRepairOptions {
  std::string tag;
  bool all = false;
  std::optional<std::string> to;
  ConfirmFlags confirm;
};

// What has to be typed for --all.
constexpr std::string_view kAll = "all";

// Where a mark is known from, how high it is (0: none there), and what else is known of it; "" where nothing
// is.
struct KnownMark {
  std::string where;
  std::uint64_t end = 0;
  std::string raised_at;
  std::string raised_by;
  std::string frozen_since;
  std::string max_id_seen;
};

// A node that may hold the highest mark of all, and could not be asked.
struct Missing {
  std::string whose;
  Error why;
};

// Everything that is known of a tag's grants.
struct Evidence {
  core::TagRow row;
  std::vector<KnownMark> known;
  std::vector<Missing> missing;

  std::uint64_t highest() const {
    std::uint64_t end = 0;
    for (const KnownMark& mark : known) end = std::max(end, mark.end);
    return end;
  }
  bool IsBelow(std::uint64_t target) const {
    return row.max_id < 0 || static_cast<std::uint64_t>(row.max_id) < target;
  }
};

// All that may hold a mark. Looked up once, then asked tag by tag.
class MarkSources {
 public:
  MarkSources(CommandContext& context, const config::Resolved& resolved, Store& store)
      : context_(context),
        resolved_(resolved),
        store_(store),
        daemons_(FindDaemons(resolved)),
        log_(context) {}

  Result<void> Open() {
    LEAF_ASSIGN_OR_RETURN(token_, ClientToken(resolved_));
    LEAF_ASSIGN_OR_RETURN(const auto marks, LocalMarks(context_));
    for (const core::Mark& mark : marks) local_.emplace(mark.tag, mark);
    LEAF_ASSIGN_OR_RETURN(cluster_, embed::ClusterLink::Open(context_, log_, sys::ProcessName("tag repair")));
    if (cluster_ && resolved_.config.segment.witness_fallback) {
      context_.Note(
          "leafctl: warning: with segment.witness_fallback, a daemon that is cut off from ZooKeeper is not "
          "listed there and may have grants that the witness does not know: name it with --server");
    }
    return {};
  }

  Result<Evidence> Collect(const core::TagRow& row) {
    Evidence evidence{row, {}, {}};
    KnownMark local{fmt::format("state directory {}", resolved_.config.state_dir), 0, "", "", "", ""};
    if (const auto found = local_.find(row.tag); found != local_.end()) {
      local.end = found->second.end;
      local.raised_at = FormatRfc3339(found->second.raised_at);
      local.raised_by = found->second.raised_by;
    }
    evidence.known.push_back(std::move(local));
    LEAF_ASSIGN_OR_RETURN(const std::uint64_t removed, store_.segments().RemovedMark(row.tag));
    evidence.known.push_back(
        {"table leafctl_removed_tags", removed, "", "a tag of this name that was removed", "", ""});
    asked_.clear();
    // A default socket at which no daemon answers holds no mark.
    for (const std::string& server : daemons_.servers) Ask(evidence, {server}, server, !daemons_.configured);
    if (cluster_) AskCluster(evidence);
    return evidence;
  }

 private:
  void AskCluster(Evidence& evidence) {
    const auto state = cluster_->witness().Load(evidence.row.tag);
    if (state.ok()) {
      evidence.known.push_back({fmt::format("witness in {}", cluster_->name()), state->end,
                                FormatRfc3339(state->raised_at), state->raised_by, "", ""});
    } else {
      evidence.missing.push_back({fmt::format("the witness in {}", cluster_->name()), state.error()});
    }
    if (!registered_) registered_ = cluster_->Daemons();
    if (!registered_->ok()) {
      evidence.missing.push_back({"the daemons of the cluster", registered_->error()});
      return;
    }
    for (const zookeeper::DaemonRecord& daemon : **registered_) AskRegistered(evidence, daemon);
  }

  void AskRegistered(Evidence& evidence, const zookeeper::DaemonRecord& daemon) {
    // A socket, or a loopback address, of another machine means another daemon here.
    const bool here = daemon.host == sys::HostName();
    std::vector<std::string> urls;
    for (const std::string& url : daemon.urls) {
      if (here || !IsLocal(url)) urls.push_back(url);
    }
    const std::string name = fmt::format("{} ({})", fmt::join(daemon.urls, ", "), daemon.process);
    if (urls.empty()) {
      evidence.missing.push_back({name, {ErrorCode::kUnreachable, "it answers on its own machine only", ""}});
      return;
    }
    if (std::any_of(urls.begin(), urls.end(), [&](const auto& url) { return asked_.count(url) > 0; })) return;
    Ask(evidence, urls, name, false);
  }

  static bool IsLocal(const std::string& url) {
    if (url.starts_with("unix:")) return true;
    const std::size_t scheme = url.find("://");
    const std::string_view host = std::string_view(url).substr(scheme == std::string::npos ? 0 : scheme + 3);
    return host.starts_with("127.") || host.starts_with("localhost") || host.starts_with("[::1]") ||
           host.starts_with("0.0.0.0") || host.starts_with("[::]");
  }

  void Ask(Evidence& evidence, const std::vector<std::string>& urls, const std::string& name,
           bool may_be_absent) {
    if (const auto silent = silent_.find(name); silent != silent_.end()) {
      if (!may_be_absent) evidence.missing.push_back({name, silent->second});
      return;
    }
    client::DaemonClient daemon(urls, context_.flags.timeout.value_or(kAskTimeout), TlsOf(resolved_), token_);
    const auto mark = daemon.Mark(evidence.row.tag);
    if (!mark.ok()) {
      // Not waited for again, tag by tag.
      if (mark.error().code == ErrorCode::kUnreachable) silent_.emplace(name, mark.error());
      if (!may_be_absent || mark.error().code != ErrorCode::kUnreachable)
        evidence.missing.push_back({name, mark.error()});
      return;
    }
    asked_.insert(urls.begin(), urls.end());
    evidence.known.push_back({fmt::format("daemon at {}", name), mark->end, mark->raised_at, mark->raised_by,
                              mark->frozen_since, mark->max_id_seen});
  }

  CommandContext& context_;
  const config::Resolved& resolved_;
  Store& store_;
  const Daemons daemons_;
  std::string token_;
  ContextLogger log_;
  std::map<std::string, core::Mark> local_;
  std::unique_ptr<embed::ClusterLink> cluster_;
  std::optional<Result<std::vector<zookeeper::DaemonRecord>>> registered_;
  std::map<std::string, Error> silent_;  // by name
  std::set<std::string> asked_;          // of the tag at hand
};

// ---- output

std::string MarkText(const KnownMark& mark) {
  if (mark.end == 0) return fmt::format("  {}: no mark", mark.where);
  std::string text = fmt::format("  {}: granted up to {}", mark.where, mark.end);
  if (!mark.raised_by.empty()) {
    text += mark.raised_at.empty() ? fmt::format(", by {}", mark.raised_by)
                                   : fmt::format(", at {} by {}", mark.raised_at, mark.raised_by);
  }
  if (!mark.frozen_since.empty()) {
    text += fmt::format("; frozen there since {}, when max_id was {}", mark.frozen_since, mark.max_id_seen);
  }
  return text;
}

// Text mode: a line of the plan. It is the result of a dry run, and else a message before the question.
void Explain(CommandContext& context, bool dry_run, const std::string& line) {
  if (context.flags.json) return;
  if (dry_run) {
    context.Report(line);
  } else {
    context.Note(line);
  }
}

void ExplainEvidence(CommandContext& context, bool dry_run, const Evidence& evidence) {
  Explain(context, dry_run,
          fmt::format("tag {}: the table says max_id {} (last changed {})", Quoted(evidence.row.tag),
                      evidence.row.max_id, FormatRfc3339(evidence.row.update_time)));
  for (const KnownMark& mark : evidence.known) Explain(context, dry_run, MarkText(mark));
}

Json MarksJson(const Evidence& evidence) {
  const auto text = [](const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); };
  Json marks = Json::array();
  for (const KnownMark& mark : evidence.known) {
    const bool known = mark.end > 0;
    marks.push_back({{"where", mark.where},
                     {"end", known ? Json(std::to_string(mark.end)) : Json(nullptr)},
                     {"raised_at", known ? text(mark.raised_at) : Json(nullptr)},
                     {"raised_by", known ? text(mark.raised_by) : Json(nullptr)},
                     {"frozen_since", text(mark.frozen_since)},
                     {"max_id_seen", text(mark.max_id_seen)}});
  }
  return marks;
}

// `row`: as it is now, or would be.
Json RepairJson(const Evidence& evidence, const core::TagRow& row) {
  Json json = TagJson(row);
  json["max_id_before"] = std::to_string(evidence.row.max_id);
  json["marks"] = MarksJson(evidence);
  json["unknown"] = Json::array();
  for (const Missing& missing : evidence.missing)
    json["unknown"].push_back({{"whose", missing.whose}, {"message", missing.why.message}});
  return json;
}

void WarnOf(CommandContext& context, const Missing& missing) {
  context.Note(
      fmt::format("leafctl: warning: the mark of {} is not known: {}", missing.whose, missing.why.message));
}

// Without one of the marks nothing is known to be safe.
Error RefusalOf(const std::string& what, const Missing& missing, const std::string& tag) {
  return {ErrorCode::kRefused,
          fmt::format("cannot repair {}: the mark of {} is not known: {}", what, missing.whose,
                      missing.why.message),
          "restore access to it, or name a value above everything it may hold: " +
              TagCommand("repair", tag, "--to N " + ConfirmFlag(tag))};
}

std::string MoveText(const Evidence& evidence, std::uint64_t target) {
  return fmt::format("move tag {} from {} to {}", Quoted(evidence.row.tag), evidence.row.max_id, target);
}

std::string RepairedText(const core::TagRow& row) {
  return fmt::format("repaired tag {}: the next grant begins at {}; daemons thaw at their next refresh",
                     Quoted(row.tag), row.max_id);
}

// ---- one tag

Result<void> RepairOne(CommandContext& context, const TagRepairOptions& options, Store& store,
                       MarkSources& sources) {
  const bool dry_run = options.confirm.dry_run;
  std::uint64_t target = 0;
  if (options.to) {
    LEAF_ASSIGN_OR_RETURN(target, ParseUnsigned("--to", *options.to, 0, kMaxIdLimit));
  }
  LEAF_ASSIGN_OR_RETURN(const core::TagRow row, store.segments().Describe(options.tag));
  LEAF_RETURN_IF_ERROR(sources.Open());
  LEAF_ASSIGN_OR_RETURN(const Evidence evidence, sources.Collect(row));
  ExplainEvidence(context, dry_run, evidence);
  for (const Missing& missing : evidence.missing) WarnOf(context, missing);
  if (!evidence.missing.empty() && !options.to)
    return RefusalOf("tag " + Quoted(options.tag), evidence.missing.front(), options.tag);
  target = std::max(target, evidence.highest());

  core::TagRow after = row;
  std::string text = fmt::format("{}: max_id {} is above every known mark",
                                 dry_run ? "would change nothing" : "nothing to repair", row.max_id);
  if (evidence.IsBelow(target)) {
    const std::string action = MoveText(evidence, target);
    LEAF_RETURN_IF_ERROR(Confirm(context, options.confirm, Severity::kSevere, action, options.tag));
    LEAF_ASSIGN_OR_RETURN(after, store.segments().Advance(options.tag, target, options.confirm.mode()));
    text = dry_run ? "would " + action : RepairedText(after);
  } else {
    LEAF_RETURN_IF_ERROR(CheckName(options.confirm, "repair tag " + Quoted(options.tag), options.tag));
  }
  if (context.flags.json) {
    Json json = RepairJson(evidence, after);
    json["dry_run"] = dry_run;
    WriteJson(context, json);
  } else {
    context.Report(text);
  }
  return {};
}

// ---- all tags

// Those whose max_id is below a mark. Errors: kRefused if a mark of any tag is not known.
Result<std::vector<Evidence>> PlanAll(CommandContext& context, const std::vector<core::TagRow>& rows,
                                      MarkSources& sources) {
  std::vector<Evidence> plan;
  std::map<std::string, Missing> missing;  // each once, not tag by tag
  std::string tag;                         // the first that one is missing of
  for (const core::TagRow& row : rows) {
    LEAF_ASSIGN_OR_RETURN(Evidence evidence, sources.Collect(row));
    if (!evidence.missing.empty() && tag.empty()) tag = row.tag;
    for (const Missing& one : evidence.missing) missing.emplace(one.whose, one);
    if (evidence.IsBelow(evidence.highest())) plan.push_back(std::move(evidence));
  }
  for (const auto& [whose, one] : missing) WarnOf(context, one);
  if (!missing.empty()) return RefusalOf("all tags", missing.begin()->second, tag);
  return plan;
}

void PrintAllJson(CommandContext& context, const std::vector<Evidence>& plan,
                  const std::vector<core::TagRow>& repaired, std::size_t examined, bool dry_run) {
  Json json{{"dry_run", dry_run}, {"examined", examined}, {"tags", Json::array()}};
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const bool done = i < repaired.size();
    Json tag = RepairJson(plan[i], done ? repaired[i] : plan[i].row);
    tag["to"] = std::to_string(plan[i].highest());
    tag["outcome"] = done && !dry_run ? "repaired" : "planned";
    json["tags"].push_back(std::move(tag));
  }
  WriteJson(context, json);
}

Result<void> RepairAll(CommandContext& context, const TagRepairOptions& options, Store& store,
                       MarkSources& sources) {
  const bool dry_run = options.confirm.dry_run;
  LEAF_ASSIGN_OR_RETURN(const std::vector<core::TagRow> rows, store.segments().List());
  LEAF_RETURN_IF_ERROR(sources.Open());
  LEAF_ASSIGN_OR_RETURN(const std::vector<Evidence> plan, PlanAll(context, rows, sources));
  const std::string count = fmt::format("{} tag{}", plan.size(), plan.size() == 1 ? "" : "s");
  for (const Evidence& evidence : plan) {
    ExplainEvidence(context, dry_run, evidence);
    Explain(context, dry_run, "  " + MoveText(evidence, evidence.highest()));
  }
  if (plan.empty()) {
    LEAF_RETURN_IF_ERROR(CheckName(options.confirm, "repair all tags", kAll));
    if (!context.flags.json) {
      context.Report(
          fmt::format("nothing to repair: none of {} tags has a max_id below a known mark", rows.size()));
    }
  }
  std::vector<core::TagRow> repaired;
  Result<void> result;
  if (!plan.empty()) {
    LEAF_RETURN_IF_ERROR(
        Confirm(context, options.confirm, Severity::kSevere, fmt::format("move {} up", count), kAll));
  }
  for (std::size_t i = 0; i < plan.size() && !dry_run; ++i) {
    auto row = store.segments().Advance(plan[i].row.tag, plan[i].highest(), options.confirm.mode());
    if (!row.ok()) {
      result = Error{row.error().code,
                     fmt::format("repair stopped at tag {}, {} of {}: {}", Quoted(plan[i].row.tag), i + 1,
                                 plan.size(), row.error().message),
                     "run it again: it continues where this run stopped"};
      break;
    }
    if (!context.flags.json) context.Report(RepairedText(*row));
    repaired.push_back(*std::move(row));
  }
  if (context.flags.json) PrintAllJson(context, plan, repaired, rows.size(), dry_run);
  return result;
}

Result<void> RunTagRepair(CommandContext& context, const TagRepairOptions& options) {
  if (options.all != options.tag.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 options.all ? "--all and a TAG exclude each other" : "no TAG is given",
                 "leafctl tag repair TAG, or leafctl tag repair --all"};
  }
  if (options.all && options.to)
    return Error{ErrorCode::kInvalidArgument, "--all and --to exclude each other", "--to is for one TAG"};
  if (!options.all) LEAF_RETURN_IF_ERROR(ValidateTag(options.tag));
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  LEAF_ASSIGN_OR_RETURN(const auto store, Store::Open(context, Store::AccessFor(options.confirm.dry_run)));
  MarkSources sources(context, *resolved, *store);
  return options.all ? RepairAll(context, options, *store, sources)
                     : RepairOne(context, options, *store, sources);
}

}  // namespace

Run AddTagRepair(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<TagRepairOptions>();
  app.add_option("TAG", options->tag, "The tag");
  app.add_flag("--all", options->all, "All tags that need repair, in one plan; the name to confirm is 'all'");
  app.add_option("--to", options->to, "Move max_id at least here, for a lost node that held a higher mark")
      ->type_name("N");
  AddServerFlag(app, context, "Daemon to ask for its marks");
  AddConfirmFlags(app, options->confirm);
  app.footer(
      "Marks are collected from this state directory, the database, every named (or found) daemon and, "
      "with segment.fence = cluster, the witness in ZooKeeper and all daemons that are registered there.\n"
      "Examples:\n"
      "  leafctl tag repair pay --dry-run\n"
      "  leafctl tag repair pay --server http://10.0.0.1:8080 --confirm pay");
  return [options](CommandContext& run_context) { return RunTagRepair(run_context, *options); };
}

}  // namespace leaf::cmd
