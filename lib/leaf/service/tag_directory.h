// All generators by tag, split into shards so that look-ups of different tags do not share a lock's cache
// line.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "leaf/service/read_mostly_mutex.h"
#include "leaf/service/tag_generator.h"

namespace leaf::service {

// Thread-safe.
class TagDirectory {
 public:
  explicit TagDirectory(std::size_t tags_max) : tags_max_(tags_max) {}

  // Runs `use(generator)` under the shard's shared lock if the tag is here; `use` must not block. Returns
  // what `use` returned, false if the tag is not here. This is the request path: no reference count is
  // touched.
  template <typename Use>
  bool With(std::string_view tag, Use use) const {
    const Shard& shard = ShardOf(tag);
    const std::shared_lock lock(shard.mutex);
    const auto found = shard.tags.find(tag);
    return found != shard.tags.end() && use(*found->second);
  }

  // Null if the tag is not here.
  std::shared_ptr<TagGenerator> Find(std::string_view tag) const;

  // The generator of `tag`, made by `make` if there is none; null if there is none and the directory is full.
  std::shared_ptr<TagGenerator> FindOrAdd(std::string_view tag,
                                          const std::function<std::shared_ptr<TagGenerator>()>& make);

  // Forgets `tag` if `doomed(generator)` still says so.
  void EraseIf(std::string_view tag, const std::function<bool(TagGenerator&)>& doomed);

  // A snapshot, in no particular order.
  std::vector<std::shared_ptr<TagGenerator>> All() const;
  std::size_t size() const { return size_.load(std::memory_order_relaxed); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  struct alignas(64) Shard {
    mutable ReadMostlyMutex mutex;
    std::unordered_map<std::string, std::shared_ptr<TagGenerator>, Hash, std::equal_to<>> tags;
  };
  static constexpr std::size_t kShards = 64;

  const Shard& ShardOf(std::string_view tag) const { return shards_[Hash{}(tag) % kShards]; }
  Shard& ShardOf(std::string_view tag) { return shards_[Hash{}(tag) % kShards]; }

  const std::size_t tags_max_;
  std::atomic<std::size_t> size_{0};
  std::array<Shard, kShards> shards_;
};

}  // namespace leaf::service
