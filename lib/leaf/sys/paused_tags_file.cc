#include "leaf/sys/paused_tags_file.h"

#include <fmt/format.h>

#include <utility>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/sys/durable_file.h"

namespace leaf::sys {
namespace {

constexpr std::string_view kHeading = "leafctl-paused-tags 1\n";
constexpr std::size_t kFileBytesMax = 64 + kPausedTagsMax * (kTagBytesMax + 2);

std::string LastLine(std::size_t count) { return fmt::format("/{} tags\n", count); }

}  // namespace

PausedTagsFile::PausedTagsFile(std::string state_dir, FileOps& ops)
    : state_dir_(std::move(state_dir)), ops_(ops) {}

Result<std::vector<std::string>> PausedTagsFile::Load() {
  const std::string path = fmt::format("{}/{}", state_dir_, kName);
  LEAF_ASSIGN_OR_RETURN(const auto content, ReadWholeFile(ops_, path, kFileBytesMax));
  std::vector<std::string> tags;
  if (!content) return tags;
  const auto unusable = [&] {
    return Error{ErrorCode::kRefused, fmt::format("cannot use {}: it is not what leafctl wrote", path),
                 "remove it to resume all tags, and pause those anew that are to be cut off"};
  };
  std::string_view rest = *content;
  if (!rest.starts_with(kHeading)) return unusable();
  rest.remove_prefix(kHeading.size());
  while (rest != LastLine(tags.size())) {
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) return unusable();
    std::string_view line = rest.substr(0, end);
    if (line.starts_with('/')) {
      line.remove_prefix(1);
      if (!line.starts_with('/')) return unusable();
    }
    if (!ValidateTag(line).ok() || tags.size() >= kPausedTagsMax) return unusable();
    tags.emplace_back(line);
    rest.remove_prefix(end + 1);
  }
  return tags;
}

Result<void> PausedTagsFile::Store(const std::vector<std::string>& tags) {
  std::string content(kHeading);
  for (const std::string& tag : tags) {
    LEAF_CHECK(ValidateTag(tag).ok());
    if (tag.starts_with('/')) content += '/';
    content += tag;
    content += '\n';
  }
  return ReplaceFile(ops_, state_dir_, std::string(kName), content + LastLine(tags.size()));
}

}  // namespace leaf::sys
