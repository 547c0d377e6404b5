// The files of a state directory.
#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/expect.h"
#include "fuzz/targets.h"
#include "leaf/core/clock_guard.h"
#include "leaf/sys/clock_acceptance.h"
#include "leaf/sys/paused_tags_file.h"
#include "leaf/sys/worker_state_file.h"
#include "support/fakes.h"
#include "support/snowflake_fakes.h"
#include "support/temp_dir.h"

namespace leaf::fuzz {
namespace {

constexpr std::string_view kStatePath = "/state/snowflake.state";
constexpr std::string_view kPausedPath = "/state/paused-tags";

Result<std::optional<core::WorkerState>> LoadState(std::string content) {
  testing::CrashingDisk disk;
  disk.Put(std::string(kStatePath), std::move(content));
  return sys::WorkerStateFile("/state", disk).Load();
}

bool Same(const core::WorkerState& a, const core::WorkerState& b) {
  return core::CheckSameCluster(a.cluster, b.cluster, "it").ok() && a.node_uuid == b.node_uuid &&
         a.worker == b.worker && a.leased == b.leased && a.ceiling == b.ceiling && a.highest == b.highest &&
         a.boot_id == b.boot_id && a.clock_offset == b.clock_offset && a.machine == b.machine &&
         a.last_contact == b.last_contact;
}

// A guess at what stands in a damaged file could repeat IDs.
void ExpectDamageIsRefused(const std::string& good, std::uint64_t seed) {
  constexpr int kTries = 8;
  testing::FakeRandom random(seed);
  for (int i = 0; i < kTries; ++i) {
    std::string flipped = good;
    flipped[random.Below(good.size())] ^= static_cast<char>(1U << random.Below(8));
    LEAF_CHECK(!LoadState(std::move(flipped)).ok());
    LEAF_CHECK(!LoadState(good.substr(0, random.Below(good.size()))).ok());
    LEAF_CHECK(!LoadState(good + static_cast<char>(random.Below(256))).ok());
  }
}

void CheckState(const std::string& content) {
  const auto state = LoadState(content);
  if (!state.ok()) {
    LEAF_CHECK(state.error().code == ErrorCode::kRefused || state.error().code == ErrorCode::kConfig);
    LEAF_CHECK(state.error().message.find(kStatePath) != std::string::npos);
    return ExpectOneLine(state.error().message);
  }
  LEAF_CHECK(state->has_value());
  const core::WorkerState& found = **state;
  LEAF_CHECK(!found.worker || *found.worker <= std::uint64_t{1} << 61);
  const std::int64_t ceiling = UnixMillis(found.ceiling);
  LEAF_CHECK(ceiling >= 0 && ceiling <= core::kEpochMillisMax * 2);
  testing::CrashingDisk disk;
  sys::WorkerStateFile file("/state", disk);
  LEAF_CHECK(file.Store(found).ok());
  const auto again = file.Load();
  LEAF_CHECK(again.ok() && again->has_value() && Same(**again, found));
  const std::string stored = *disk.Content(std::string(kStatePath));
  LEAF_CHECK(file.Store(**again).ok() && *disk.Content(std::string(kStatePath)) == stored);
  ExpectDamageIsRefused(content, std::hash<std::string>()(content));
}

Result<std::vector<core::PausedTag>> LoadPaused(std::string content) {
  testing::CrashingDisk disk;
  disk.Put(std::string(kPausedPath), std::move(content));
  return sys::PausedTagsFile("/state", disk).Load();
}

// What Store makes of the tags; it reads the same, and no part of it reads at all.
std::string StorePaused(const std::vector<core::PausedTag>& tags) {
  testing::CrashingDisk disk;
  sys::PausedTagsFile file("/state", disk);
  LEAF_CHECK(file.Store(tags).ok());
  const auto again = file.Load();
  LEAF_CHECK(again.ok() && *again == tags);
  std::string content = *disk.Content(std::string(kPausedPath));
  // A tag that was cut off would come back. At the ends of lines, where it is likeliest; each costs a read.
  constexpr int kTries = 6;
  std::size_t size = 0;
  for (int i = 0; i < kTries && size + 1 < content.size(); ++i) {
    LEAF_CHECK(!LoadPaused(content.substr(0, size)).ok());
    size = content.find('\n', size) + 1;
    if (size < content.size()) LEAF_CHECK(!LoadPaused(content.substr(0, size)).ok());
  }
  LEAF_CHECK(!LoadPaused(content.substr(0, content.size() - 1)).ok());
  return content;
}

}  // namespace

void WorkerState(std::string_view input) {
  CheckState(std::string(input));
  // The same as the body of a file whose checksum is right, without which little gets any further. FNV-1a.
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : input) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  CheckState(fmt::format("{}checksum {:016x}\n", input, hash));
}

void PausedTags(std::string_view input) {
  const auto tags = LoadPaused(std::string(input));
  if (tags.ok()) {
    const std::string stored = StorePaused(*tags);
    LEAF_CHECK(stored == input || input.starts_with("leafctl-paused-tags 1\n"));
  } else {
    LEAF_CHECK(tags.error().message.find(kPausedPath) != std::string::npos);
    ExpectOneLine(tags.error().message);
  }
  std::vector<core::PausedTag> lines;
  while (!input.empty()) {
    if (std::string line(TakeLine(input)); ValidateTag(line).ok())
      lines.push_back({std::move(line), WallTimeOf(1 + static_cast<std::int64_t>(lines.size()))});
  }
  StorePaused(lines);
}

void ClockAcceptance(std::string_view input) {
  using core::ClockGuard;
  constexpr std::string_view kBoot = "7f6c0e0e-boot";
  static const testing::TempDir dir;
  std::ofstream(dir.path() + "/clock-accepted", std::ios::binary) << input;
  LEAF_CHECK(!sys::LoadAcceptedOffset(dir.path(), ""));
  LEAF_CHECK(!sys::LoadAcceptedOffset(dir.path(), "another-boot") || input.starts_with("another-boot "));
  const auto offset = sys::LoadAcceptedOffset(dir.path(), kBoot);
  if (!offset) return;
  LEAF_CHECK(input.starts_with(kBoot) && input.ends_with('\n'));
  // What a state file takes, where it ends up.
  LEAF_CHECK(offset->count() >= -core::kEpochMillisMax && offset->count() <= core::kEpochMillisMax);
  const WallTime wall = WallTimeOf(1'795'000'000'000);
  const BootTime boot{std::chrono::hours{1}};
  ClockGuard guard(std::chrono::seconds{10}, wall, boot, std::nullopt);
  guard.Accept(*offset);
  LEAF_CHECK(!guard.Jump(wall, boot));
}

}  // namespace leaf::fuzz
