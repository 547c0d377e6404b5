// All generators by tag. The request path finds a tag it asked for lately in a small cache of its thread,
// with no lock and no write to memory that other threads use; the rest is in shards, so that look-ups of
// different tags do not share a lock's cache line.
#pragma once

#include <array>
#include <atomic>
#include <boost/unordered/unordered_flat_set.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/mutex.h"
#include "leaf/service/read_mostly_mutex.h"
#include "leaf/service/tag_generator.h"

namespace leaf::service {

// Thread-safe.
class TagDirectory {
 public:
  explicit TagDirectory(std::size_t tags_max);

  // Runs `use(generator)` if the tag is here, or was a moment ago; `use` must not block, nor look up a tag.
  // Returns what `use` returned, false if the tag is not here. This is the request path.
  template <typename Use>
  bool With(std::string_view tag, Use use) const {
    Cached& cached = CacheOf(tag);
    // EraseIf() raises the version after the generator is out: until this thread sees that, it is as if it
    // had asked earlier. What an erased generator held was dropped before.
    if (cached.version != version_.load(std::memory_order_acquire) || !IsSame(cached.tag, tag)) [[unlikely]] {
      if (!Refresh(cached, tag)) return false;
    }
#ifdef LEAF_FAILPOINTS
    // In a simulation a taker that is held up shares this system thread, and its cache, with others.
    const std::shared_ptr<TagGenerator> held = cached.generator;
    return use(*held);
#else
    return use(*cached.generator);
#endif
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
  // Whether `is(generator)` of one of them at least; it must not block, nor look up a tag. For callers that
  // may ask often, however many tags there are: nothing is copied, and the walk ends with the first.
  bool Any(const std::function<bool(const TagGenerator&)>& is) const;
  std::size_t size() const { return size_.load(std::memory_order_relaxed); }

 private:
  // Generators are found by their own names; in one block of memory, since there may be very many.
  struct HashOfTag {
    using is_transparent = void;
    std::size_t operator()(std::string_view tag) const { return std::hash<std::string_view>{}(tag); }
    std::size_t operator()(const std::shared_ptr<TagGenerator>& generator) const {
      return (*this)(generator->tag());
    }
  };
  struct SameTag {
    using is_transparent = void;
    bool operator()(std::string_view tag, const std::shared_ptr<TagGenerator>& generator) const {
      return tag == generator->tag();
    }
    bool operator()(const std::shared_ptr<TagGenerator>& a, const std::shared_ptr<TagGenerator>& b) const {
      return a->tag() == b->tag();
    }
  };
  struct alignas(64) Shard {
    mutable ReadMostlyMutex mutex;
    boost::unordered_flat_set<std::shared_ptr<TagGenerator>, HashOfTag, SameTag> tags LEAF_GUARDED_BY(mutex);
  };
  static constexpr std::size_t kShards = 64;
  // What a thread looked up last, one for each of a few names. Owns, so that no generator ends under its
  // user.
  struct alignas(64) Cached {
    std::uint64_t version = 0;  // of the directory it is from, when it was looked up; 0: none
    std::string tag;
    std::shared_ptr<TagGenerator> generator;
  };
  static constexpr std::size_t kCachedTags = 16;

  // This thread's; null before the first look-up. To look whether an object of a thread is made already costs
  // more than to look at a pointer.
  static inline constinit thread_local Cached* cache_ = nullptr;
  static Cached* MakeCache();
  static Cached& CacheOf(std::string_view tag) {
    Cached* cache = cache_;
    if (cache == nullptr) [[unlikely]]
      cache = MakeCache();
    const std::size_t last = tag.empty() ? 0 : static_cast<unsigned char>(tag.back());
    return cache[(last + tag.size()) % kCachedTags];
  }
  // Names are short, and to call memcmp would cost half of a take.
  static bool IsSame(std::string_view a, std::string_view b) {
    const std::size_t size = a.size();
    if (size != b.size()) return false;
    const auto same_ends = [&]<typename Word>(Word) {
      const auto read = [](const char* from) {
        Word word;
        std::memcpy(&word, from, sizeof(Word));
        return word;
      };
      const std::size_t last = size - sizeof(Word);
      return read(a.data()) == read(b.data()) && read(a.data() + last) == read(b.data() + last);
    };
    if (size > 16) [[unlikely]]
      return std::memcmp(a.data(), b.data(), size) == 0;
    if (size >= 8) return same_ends(std::uint64_t{});
    if (size >= 4) return same_ends(std::uint32_t{});
    if (size >= 2) return same_ends(std::uint16_t{});
    return size == 0 || a[0] == b[0];
  }
  bool Refresh(Cached& cached, std::string_view tag) const;

  const Shard& ShardOf(std::string_view tag) const {
    return shards_[std::hash<std::string_view>{}(tag) % kShards];
  }
  Shard& ShardOf(std::string_view tag) { return shards_[std::hash<std::string_view>{}(tag) % kShards]; }

  // Versions of all directories of the process are different: a cached one can be of no other.
  static std::uint64_t NewVersion();

  const std::size_t tags_max_;
  alignas(64) std::atomic<std::uint64_t> version_;
  std::atomic<std::size_t> size_{0};
  std::array<Shard, kShards> shards_;
};

}  // namespace leaf::service
