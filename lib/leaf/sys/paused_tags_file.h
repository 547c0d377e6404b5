// The tags that operators have cut off: `<state_dir>/paused-tags`.
//
// Text: the format's name and version, a line for each tag (when it was paused in milliseconds, a space, the
// tag), and a last line with their number. It is read strictly: what is not exactly what Store wrote is
// refused, since a tag that was cut off must not come back by accident. No beginning of a file is a file:
// the last line begins with a '/', and a tag's line with a digit.
//
// Version 1 had no times, and is still read: a tag's line was the tag alone, with a '/' at its begin twice.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "leaf/core/paused_tags.h"
#include "leaf/sys/file_ops.h"

namespace leaf::sys {

// `ops` outlives it.
class PausedTagsFile final : public core::PausedTagsStore {
 public:
  PausedTagsFile(std::string state_dir, FileOps& ops);

  Result<std::vector<core::PausedTag>> Load() override;
  // Requires: every tag is valid (ValidateTag), so that none contains a newline.
  Result<void> Store(const std::vector<core::PausedTag>& tags) override;

  static constexpr std::string_view kName = "paused-tags";

 private:
  const std::string state_dir_;
  FileOps& ops_;
};

}  // namespace leaf::sys
