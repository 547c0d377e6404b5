#include "tag_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/sys/process_name.h"

namespace leaf::cmd {
namespace {

// A move over more steps than this is more often a slip than meant.
constexpr std::uint64_t kStepsMax = 1000;

bool IsInLastPercent(std::uint64_t to) { return to > kMaxIdLimit - kMaxIdLimit / 100; }

}  // namespace

Result<std::unique_ptr<TagAdder>> TagAdder::Open(CommandContext& context, Store& store,
                                                 std::string_view command) {
  std::unique_ptr<TagAdder> adder(new TagAdder(context, store));
  LEAF_ASSIGN_OR_RETURN(adder->cluster_, embed::ClusterLink::Open(context, adder->log_,
                                                                  sys::ProcessName(std::string(command))));
  return adder;
}

Result<std::uint64_t> TagAdder::KnownMark(const std::string& tag) {
  LEAF_ASSIGN_OR_RETURN(const core::Mark mark, LocalMark(context_, tag));
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t removed, store_.segments().RemovedMark(tag));
  core::NewTag probe;
  probe.tag = tag;
  probe.mark = std::max(mark.end, removed);
  if (!cluster_) return probe.mark;
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t witness, cluster_->RaiseMark(probe));
  return std::max(probe.mark, witness);
}

Result<core::TagRow> TagAdder::Add(core::NewTag tag, core::WriteMode mode) {
  LEAF_ASSIGN_OR_RETURN(const core::Mark mark, LocalMark(context_, tag.tag));
  tag.mark = mark.end;
  if (cluster_) {
    // What was granted under this name is known to the cluster, even if this machine never saw it.
    const auto raised = cluster_->RaiseMark(tag);
    if (!raised.ok()) return raised.error();
  }
  return store_.segments().Add(tag, mode);
}

Result<core::TagAdmin::Removal> RemoveTag(CommandContext& context, Store& store, const core::TagRow& row,
                                          core::WriteMode mode) {
  if (mode == core::WriteMode::kCommit) {
    // First, so that a crash between the two forgets nothing. Grants in between are the removal's own to
    // remember.
    LEAF_ASSIGN_OR_RETURN(const auto marks, OpenMarks(context, "tag remove"));
    const std::uint64_t end = row.max_id > 0 ? static_cast<std::uint64_t>(row.max_id) : 0;
    LEAF_RETURN_IF_ERROR(marks->Raise({row.tag, end, std::nullopt}));
  }
  auto removal = store.segments().Remove(row.tag, mode);
  if (removal.ok() && !removal->mark_remembered && mode == core::WriteMode::kCommit) {
    context.Note(
        fmt::format("leafctl: warning: the database has no table leafctl_removed_tags: only this state "
                    "directory remembers that the tag was at {}",
                    removal->row.max_id));
  }
  return removal;
}

std::string WhyFarAbove(std::uint64_t begin) {
  if (!IsInLastPercent(begin)) return "";
  const std::uint64_t left = kMaxIdLimit - begin;
  return fmt::format(", where {} {} left", left, left == 1 ? "ID is" : "IDs are");
}

std::string WhyFar(const core::TagRow& row, std::uint64_t to) {
  if (std::string few = WhyFarAbove(to); !few.empty()) return few;
  const auto from = static_cast<std::uint64_t>(std::max<std::int64_t>(row.max_id, 0));
  const auto step = static_cast<std::uint64_t>(std::clamp<std::int64_t>(row.step, 1, kStepMax));
  if (to <= from || to - from <= kStepsMax * step) return "";
  return fmt::format(", over more than {} steps of {}", kStepsMax, row.step);
}

Result<void> ValidateTags(const std::vector<std::string>& tags) {
  std::set<std::string_view> seen;
  for (const std::string& tag : tags) {
    LEAF_RETURN_IF_ERROR(ValidateTag(tag));
    if (!seen.insert(tag).second)
      return Error{ErrorCode::kInvalidArgument, fmt::format("tag {} is given twice", Quoted(tag)), ""};
  }
  return {};
}

std::string QuotedList(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += Quoted(names[i]);
  }
  return text;
}

std::string ConfirmName(const std::vector<std::string>& tags) {
  return fmt::format("{}", fmt::join(tags, ","));
}

Result<void> ForEachTag(CommandContext& context, const std::vector<std::string>& tags, std::string_view done,
                        const std::function<Result<Json>(const std::string&)>& one) {
  Json documents = Json::array();
  std::optional<Error> failure;
  for (const std::string& tag : tags) {
    auto document = one(tag);
    if (!document.ok()) {
      failure = std::move(document).error();
      break;
    }
    documents.push_back(*std::move(document));
  }
  if (!failure) {
    if (context.flags.json)
      WriteJson(context, tags.size() == 1 ? documents.front() : Json{{"tags", documents}});
    return {};
  }
  if (!documents.empty() && !done.empty())
    failure->message =
        fmt::format("{} of {} tags were {}, then: {}", documents.size(), tags.size(), done, failure->message);
  return *failure;
}

}  // namespace leaf::cmd
