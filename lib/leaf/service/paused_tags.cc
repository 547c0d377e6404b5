#include "leaf/service/paused_tags.h"

#include <fmt/format.h>

#include "leaf/base/limits.h"

namespace leaf::service {

Result<void> PausedTags::Load() {
  const MutexLock one_at_a_time(writer_mutex_);
  LEAF_ASSIGN_OR_RETURN(const std::vector<core::PausedTag> tags, store_.Load());
  const MutexLock lock(mutex_);
  tags_.clear();
  for (const core::PausedTag& tag : tags) tags_.emplace(tag.tag, tag.since);
  size_.store(tags_.size());
  return {};
}

Result<bool> PausedTags::Change(std::string_view tag, bool paused, WallTime now) {
  Tags next;
  {
    const MutexLock lock(mutex_);
    next = tags_;
  }
  const bool changes = next.contains(tag) != paused;
  if (!changes && !in_doubt_) return false;
  if (changes && paused) {
    if (next.size() >= kPausedTagsMax) {
      return Error{ErrorCode::kLimited, fmt::format("{} tags are paused already", kPausedTagsMax),
                   "stop the daemon instead, or resume some"};
    }
    next.emplace(tag, now);
  } else if (changes) {
    next.erase(next.find(tag));
  }
  in_doubt_ = true;
  LEAF_RETURN_IF_ERROR(store_.Store(Listed(next)));
  in_doubt_ = false;
  const MutexLock lock(mutex_);
  tags_ = std::move(next);
  size_.store(tags_.size());
  return changes;
}

bool PausedTags::Contains(std::string_view tag) const {
  if (empty()) return false;
  const MutexLock lock(mutex_);
  return tags_.contains(tag);
}

std::optional<WallTime> PausedTags::Since(std::string_view tag) const {
  const MutexLock lock(mutex_);
  const auto found = tags_.find(tag);
  return found == tags_.end() ? std::nullopt : found->second;
}

std::vector<core::PausedTag> PausedTags::All() const {
  const MutexLock lock(mutex_);
  return Listed(tags_);
}

std::vector<core::PausedTag> PausedTags::Listed(const Tags& tags) {
  std::vector<core::PausedTag> list;
  list.reserve(tags.size());
  for (const auto& [tag, since] : tags) list.push_back({tag, since});
  return list;
}

}  // namespace leaf::service
