#include "leaf/service/tag_directory.h"

#include <algorithm>
#include <utility>

namespace leaf::service {

TagDirectory::TagDirectory(std::size_t tags_max) : tags_max_(tags_max), version_(NewVersion()) {}

std::uint64_t TagDirectory::NewVersion() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1) + 1;
}

TagDirectory::Cached* TagDirectory::MakeCache() {
  thread_local std::array<Cached, kCachedTags> cache;
  cache_ = cache.data();
  return cache_;
}

bool TagDirectory::Refresh(Cached& cached, std::string_view tag) const {
  // Before the look-up: an erasure in between leaves a version that is out of date.
  const std::uint64_t version = version_.load(std::memory_order_acquire);
  auto found = Find(tag);
  if (!found) return false;
  cached.version = version;
  cached.tag = tag;
  cached.generator = std::move(found);
  return true;
}

std::shared_ptr<TagGenerator> TagDirectory::Find(std::string_view tag) const {
  const Shard& shard = ShardOf(tag);
  const ReadLock lock(shard.mutex);
  const auto found = shard.tags.find(tag);
  return found == shard.tags.end() ? nullptr : *found;
}

std::shared_ptr<TagGenerator> TagDirectory::FindOrAdd(
    std::string_view tag, const std::function<std::shared_ptr<TagGenerator>()>& make) {
  Shard& shard = ShardOf(tag);
  const WriteLock lock(shard.mutex);
  if (const auto found = shard.tags.find(tag); found != shard.tags.end()) return *found;
  if (size_.fetch_add(1, std::memory_order_relaxed) >= tags_max_) {
    size_.fetch_sub(1, std::memory_order_relaxed);
    return nullptr;
  }
  auto generator = make();
  shard.tags.insert(generator);
  return generator;
}

void TagDirectory::EraseIf(std::string_view tag, const std::function<bool(TagGenerator&)>& doomed) {
  std::shared_ptr<TagGenerator> erased;  // destroyed after the lock is released
  Shard& shard = ShardOf(tag);
  const WriteLock lock(shard.mutex);
  const auto found = shard.tags.find(tag);
  if (found == shard.tags.end() || !doomed(**found)) return;
  erased = *found;
  shard.tags.erase(found);
  size_.fetch_sub(1, std::memory_order_relaxed);
  version_.store(NewVersion(), std::memory_order_release);
}

bool TagDirectory::Any(const std::function<bool(const TagGenerator&)>& is) const {
  return std::any_of(shards_.begin(), shards_.end(), [&](const Shard& shard) {
    const ReadLock lock(shard.mutex);
    return std::any_of(shard.tags.begin(), shard.tags.end(), [&](const auto& tag) { return is(*tag); });
  });
}

std::vector<std::shared_ptr<TagGenerator>> TagDirectory::All() const {
  std::vector<std::shared_ptr<TagGenerator>> all;
  all.reserve(size());
  for (const Shard& shard : shards_) {
    const ReadLock lock(shard.mutex);
    all.insert(all.end(), shard.tags.begin(), shard.tags.end());
  }
  return all;
}

}  // namespace leaf::service
