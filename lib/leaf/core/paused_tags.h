// Port: where a node remembers which tags its operators have cut off.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/base/time.h"

namespace leaf::core {

struct PausedTag {
  std::string tag;
  std::optional<WallTime> since;  // nothing: an older leafctl paused it, which did not write the time down
  bool operator==(const PausedTag&) const = default;
};

// One caller at a time.
class PausedTagsStore {
 public:
  virtual ~PausedTagsStore() = default;
  // Nothing if none was ever stored. Errors: kConfig, kPermission; kRefused for what is not exactly what
  // Store wrote: a tag that was cut off must not come back by accident.
  virtual Result<std::vector<PausedTag>> Load() = 0;
  // Replaces what was stored; durable when it returns. After an error the old list or the new one is stored.
  // Errors: kUnavailable (the disk), kPermission, kConfig.
  virtual Result<void> Store(const std::vector<PausedTag>& tags) = 0;
};

}  // namespace leaf::core
