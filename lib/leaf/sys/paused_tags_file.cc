#include "leaf/sys/paused_tags_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/sys/durable_file.h"

namespace leaf::sys {
namespace {

constexpr std::string_view kHeading = "leafctl-paused-tags 2\n";
constexpr std::string_view kHeading1 = "leafctl-paused-tags 1\n";
static_assert(kHeading.size() == kHeading1.size());
constexpr std::int64_t kSinceMax = 253'402'300'799'999;  // the year 9999
constexpr std::size_t kFileBytesMax = 64 + kPausedTagsMax * (kTagBytesMax + 17);

std::string LastLine(std::size_t count) { return fmt::format("/{} tags\n", count); }

// A tag's line, without its end; nothing for what Store does not write.
std::optional<core::PausedTag> ParsePausedLine(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const std::string_view since = line.substr(0, space);
  const auto millis = ParseUnsigned("time", since, 0, static_cast<std::uint64_t>(kSinceMax));
  if (!millis.ok() || std::to_string(*millis) != since) return std::nullopt;
  core::PausedTag tag{std::string(line.substr(space + 1)), std::nullopt};
  if (*millis > 0) tag.since = WallTimeOf(static_cast<std::int64_t>(*millis));
  return tag;
}

std::optional<core::PausedTag> ParsePausedLine1(std::string_view line) {
  if (line.starts_with('/')) {
    line.remove_prefix(1);
    if (!line.starts_with('/')) return std::nullopt;
  }
  return core::PausedTag{std::string(line), std::nullopt};
}

}  // namespace

PausedTagsFile::PausedTagsFile(std::string state_dir, FileOps& ops)
    : state_dir_(std::move(state_dir)), ops_(ops) {}

Result<std::vector<core::PausedTag>> PausedTagsFile::Load() {
  const std::string path = fmt::format("{}/{}", state_dir_, kName);
  LEAF_ASSIGN_OR_RETURN(const auto content, ReadWholeFile(ops_, path, kFileBytesMax));
  std::vector<core::PausedTag> tags;
  if (!content) return tags;
  const auto unusable = [&] {
    return Error{ErrorCode::kRefused,
                 fmt::format("cannot use {}: its content was not written by leafctl", path),
                 "remove it to resume all tags, then pause again those that must stay paused"};
  };
  std::string_view rest = *content;
  const bool version1 = rest.starts_with(kHeading1);
  if (!version1 && !rest.starts_with(kHeading)) return unusable();
  rest.remove_prefix(kHeading.size());
  while (rest != LastLine(tags.size())) {
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) return unusable();
    const std::string_view line = rest.substr(0, end);
    auto tag = version1 ? ParsePausedLine1(line) : ParsePausedLine(line);
    if (!tag || !ValidateTag(tag->tag).ok() || tags.size() >= kPausedTagsMax) return unusable();
    tags.push_back(*std::move(tag));
    rest.remove_prefix(end + 1);
  }
  return tags;
}

Result<void> PausedTagsFile::Store(const std::vector<core::PausedTag>& tags) {
  std::string content(kHeading);
  for (const core::PausedTag& tag : tags) {
    LEAF_CHECK(ValidateTag(tag.tag).ok());
    content += fmt::format(
        "{} {}\n", tag.since ? std::clamp<std::int64_t>(UnixMillis(*tag.since), 0, kSinceMax) : 0, tag.tag);
  }
  return ReplaceFile(ops_, state_dir_, std::string(kName), content + LastLine(tags.size()));
}

}  // namespace leaf::sys
