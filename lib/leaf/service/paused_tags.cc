#include "leaf/service/paused_tags.h"

#include <fmt/format.h>

#include "leaf/base/limits.h"

namespace leaf::service {

Result<void> PausedTags::Load() {
  const std::lock_guard one_at_a_time(writer_mutex_);
  LEAF_ASSIGN_OR_RETURN(const std::vector<std::string> tags, store_.Load());
  const std::lock_guard lock(mutex_);
  tags_ = {tags.begin(), tags.end()};
  size_.store(tags_.size());
  return {};
}

Result<bool> PausedTags::Change(std::string_view tag, bool paused) {
  std::set<std::string, std::less<>> next;
  {
    const std::lock_guard lock(mutex_);
    next = tags_;
  }
  if (next.contains(tag) == paused) return false;
  if (paused) {
    if (next.size() >= kPausedTagsMax) {
      return Error{ErrorCode::kLimited, fmt::format("{} tags are paused already", kPausedTagsMax),
                   "stop the daemon instead, or resume some"};
    }
    next.emplace(tag);
  } else {
    next.erase(next.find(tag));
  }
  LEAF_RETURN_IF_ERROR(store_.Store({next.begin(), next.end()}));
  const std::lock_guard lock(mutex_);
  tags_ = std::move(next);
  size_.store(tags_.size());
  return true;
}

bool PausedTags::Contains(std::string_view tag) const {
  if (empty()) return false;
  const std::lock_guard lock(mutex_);
  return tags_.contains(tag);
}

std::vector<std::string> PausedTags::All() const {
  const std::lock_guard lock(mutex_);
  return {tags_.begin(), tags_.end()};
}

}  // namespace leaf::service
