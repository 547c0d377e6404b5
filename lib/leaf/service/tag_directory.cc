#include "leaf/service/tag_directory.h"

#include <mutex>
#include <utility>

namespace leaf::service {

std::shared_ptr<TagGenerator> TagDirectory::Find(std::string_view tag) const {
  const Shard& shard = ShardOf(tag);
  const std::shared_lock lock(shard.mutex);
  const auto found = shard.tags.find(tag);
  return found == shard.tags.end() ? nullptr : found->second;
}

std::shared_ptr<TagGenerator> TagDirectory::FindOrAdd(
    std::string_view tag, const std::function<std::shared_ptr<TagGenerator>()>& make) {
  Shard& shard = ShardOf(tag);
  const std::unique_lock lock(shard.mutex);
  if (const auto found = shard.tags.find(tag); found != shard.tags.end()) return found->second;
  if (size_.fetch_add(1, std::memory_order_relaxed) >= tags_max_) {
    size_.fetch_sub(1, std::memory_order_relaxed);
    return nullptr;
  }
  auto generator = make();
  shard.tags.emplace(std::string(tag), generator);
  return generator;
}

void TagDirectory::EraseIf(std::string_view tag, const std::function<bool(TagGenerator&)>& doomed) {
  std::shared_ptr<TagGenerator> erased;  // destroyed after the lock is released
  Shard& shard = ShardOf(tag);
  const std::unique_lock lock(shard.mutex);
  const auto found = shard.tags.find(tag);
  if (found == shard.tags.end() || !doomed(*found->second)) return;
  erased = std::move(found->second);
  shard.tags.erase(found);
  size_.fetch_sub(1, std::memory_order_relaxed);
}

std::vector<std::shared_ptr<TagGenerator>> TagDirectory::All() const {
  std::vector<std::shared_ptr<TagGenerator>> all;
  all.reserve(size());
  for (const Shard& shard : shards_) {
    const std::shared_lock lock(shard.mutex);
    for (const auto& [tag, generator] : shard.tags) all.push_back(generator);
  }
  return all;
}

}  // namespace leaf::service
