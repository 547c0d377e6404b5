// The tags that operators have cut off on this node, by name: known or not, and whatever the database says.
//
// A pause is durable before it is in force. When an operator is told that a tag is cut off, the tag stays cut
// off after any crash. The failing schedule otherwise: pause is answered, the process dies, the next one
// serves the tag.
//
// After a disk error it is not known which list is stored, nor is it at the start of a process: what it reads
// may be in the kernel's memory alone. Then the list is stored even if nothing changes. The failing schedules
// otherwise: the tag is paused, resume fails after its list was stored, pause again finds the tag paused and
// stores nothing, the process dies, the next one serves the tag. Or the process dies before the new list is
// durable, the next one reads it, pause again stores nothing, and the power goes.
#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/mutex.h"
#include "leaf/base/result.h"
#include "leaf/core/paused_tags.h"

namespace leaf::service {

// Thread-safe. `store` outlives it.
class PausedTags {
 public:
  explicit PausedTags(core::PausedTagsStore& store) : store_(store) {}

  // Blocks. Before anything is served. Errors: the store's.
  Result<void> Load();

  // Adds a tag, paused `now`, or removes it, durably, and calls `apply` with no lock held that Contains
  // takes, before another call of Set begins. Blocks. Returns whether that changed anything. Errors: the
  // store's, kLimited (too many). After an error this process goes on as before; the next one may find either
  // list.
  template <typename Apply>
  Result<bool> Set(std::string_view tag, bool paused, WallTime now, const Apply& apply) {
    const MutexLock one_at_a_time(writer_mutex_);
    LEAF_ASSIGN_OR_RETURN(const bool changed, Change(tag, paused, now));
    apply();
    return changed;
  }

  bool Contains(std::string_view tag) const;
  bool empty() const { return size_.load(std::memory_order_relaxed) == 0; }
  // Since when; nothing if it is not paused, or the time is not known.
  std::optional<WallTime> Since(std::string_view tag) const;
  // Sorted.
  std::vector<core::PausedTag> All() const;

 private:
  using Tags = std::map<std::string, std::optional<WallTime>, std::less<>>;
  Result<bool> Change(std::string_view tag, bool paused, WallTime now) LEAF_REQUIRES(writer_mutex_);
  static std::vector<core::PausedTag> Listed(const Tags& tags);

  core::PausedTagsStore& store_;
  Mutex writer_mutex_;
  bool in_doubt_ LEAF_GUARDED_BY(writer_mutex_) = true;  // which list is stored
  std::atomic<std::size_t> size_{0};
  mutable Mutex mutex_;
  Tags tags_ LEAF_GUARDED_BY(mutex_);  // changed with writer_mutex_ held, too
};

}  // namespace leaf::service
