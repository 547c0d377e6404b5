#include "leaf/sys/worker_state_file.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "leaf/base/text.h"
#include "leaf/sys/durable_file.h"

namespace leaf::sys {
namespace {

constexpr std::string_view kMagic = "leafctl-snowflake-state ";
constexpr std::string_view kVersion = "2";
// The first format: without machine and last contact.
constexpr std::string_view kVersion1 = "1";
constexpr std::string_view kNoWorker = "none";
constexpr std::string_view kChecksum = "checksum ";
constexpr std::size_t kStateBytesMax = 8192;
// What PlanStart and the like may calculate with: about the year 10000.
constexpr std::int64_t kMillisMax = core::kEpochMillisMax;

// FNV-1a, 64 bits: against accidents, not against forgers.
std::uint64_t Checksum(std::string_view text) {
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash;
}

// Reads "name value" lines in their order; the first that is not as expected makes all that follow fail.
class LineReader {
 public:
  explicit LineReader(std::string_view text) : rest_(text) {}

  std::string_view Text(std::string_view name) {
    const std::size_t end = rest_.find('\n');
    if (!ok_ || end == std::string_view::npos || !rest_.starts_with(name) || rest_[name.size()] != ' ') {
      ok_ = false;
      return "";
    }
    const std::string_view value = rest_.substr(name.size() + 1, end - name.size() - 1);
    rest_.remove_prefix(end + 1);
    return value;
  }
  std::int64_t Number(std::string_view name, std::int64_t min, std::int64_t max) {
    const auto number = ParseWhole<std::int64_t>(Text(name));
    if (!number || *number < min || *number > max) ok_ = false;
    return number.value_or(0);
  }
  // The next line, whole.
  std::string_view Next() const { return rest_.substr(0, rest_.find('\n')); }
  bool Finished() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

std::string Format(const core::WorkerState& state) {
  std::string text = fmt::format(
      "{}{}\nnode {}\ncluster {}\nregistry {}\nlayout {}\nepoch_ms {}\nworker {}\nceiling_ms {}\n", kMagic,
      kVersion, state.node_uuid, state.cluster.name, state.cluster.registry, state.cluster.layout.Bits(),
      state.cluster.layout.epoch_ms(),
      state.worker ? fmt::format("{}", *state.worker) : std::string(kNoWorker), UnixMillis(state.ceiling));
  text += fmt::format(
      "boot_id {}\nclock_offset_ms {}\nhighest_ms {}\nleased {}\nmachine {}\nlast_contact_ms {}\n",
      state.boot_id, state.clock_offset.count(), UnixMillis(state.highest), state.leased ? 1 : 0,
      state.machine, UnixMillis(state.last_contact));
  text += fmt::format("{}{:016x}\n", kChecksum, Checksum(text));
  return text;
}

Error Unusable(const std::string& path, std::string_view why) {
  return {ErrorCode::kRefused, fmt::format("cannot use {}: {}", path, why),
          "IDs up to the ceiling in it may have been issued; restore the right file, or start with a new "
          "state_dir and, in a named cluster, with a worker number that was never used"};
}

}  // namespace

WorkerStateFile::WorkerStateFile(std::string state_dir, FileOps& ops)
    : state_dir_(std::move(state_dir)), path_(fmt::format("{}/{}", state_dir_, kName)), ops_(ops) {}

Result<std::optional<core::WorkerState>> WorkerStateFile::Load() {
  LEAF_ASSIGN_OR_RETURN(const auto content, ReadWholeFile(ops_, path_, kStateBytesMax));
  if (!content) return std::optional<core::WorkerState>{};
  const std::string_view text = *content;
  if (text.empty()) return Unusable(path_, "it is truncated: it is empty");
  if (!text.starts_with(kMagic)) {
    // A file of ours that ends early may end within this word.
    return Unusable(path_, kMagic.starts_with(text) ? "it is truncated" : "it is not a leafctl file");
  }
  const std::string_view version = text.substr(kMagic.size(), text.find('\n') - kMagic.size());
  const std::size_t checksum_at = text.rfind(kChecksum);
  if (version != kVersion && version != kVersion1 && text.ends_with('\n')) {
    return Unusable(path_, fmt::format("its format is version {}, this leafctl knows version {}",
                                       Quoted(version), kVersion));
  }
  if (checksum_at == std::string_view::npos || !text.ends_with('\n'))
    return Unusable(path_, "it is truncated");
  const std::string_view body = text.substr(0, checksum_at);
  if (text.substr(checksum_at) != fmt::format("{}{:016x}\n", kChecksum, Checksum(body))) {
    return Unusable(path_, "it is corrupt: its checksum is wrong");
  }

  LineReader lines(body);
  core::WorkerState state;
  lines.Text("leafctl-snowflake-state");
  state.node_uuid = lines.Text("node");
  state.cluster.name = lines.Text("cluster");
  state.cluster.registry = lines.Text("registry");
  const std::string_view bits = lines.Text("layout");
  const std::int64_t epoch_ms = lines.Number("epoch_ms", 0, kMillisMax);
  if (version != kVersion1 && lines.Next() == fmt::format("worker {}", kNoWorker)) {
    lines.Text("worker");
  } else {
    state.worker = static_cast<std::uint64_t>(lines.Number("worker", 0, std::int64_t{1} << 61));
  }
  // An ID's time can be beyond the year 10000 in a wide layout; clocks are not.
  state.ceiling = WallTimeOf(lines.Number("ceiling_ms", 0, kMillisMax * 2));
  state.boot_id = lines.Text("boot_id");
  state.clock_offset = std::chrono::milliseconds{lines.Number("clock_offset_ms", -kMillisMax, kMillisMax)};
  state.highest = state.ceiling;
  if (version != kVersion1) {
    state.highest = WallTimeOf(lines.Number("highest_ms", 0, kMillisMax * 2));
    state.leased = lines.Number("leased", 0, 1) != 0;
    state.machine = lines.Text("machine");
    state.last_contact = WallTimeOf(lines.Number("last_contact_ms", 0, kMillisMax * 2));
  }
  const auto layout = core::IdLayout::Parse(bits, epoch_ms);
  if (!lines.Finished() || !layout.ok()) return Unusable(path_, "it is corrupt: its fields make no sense");
  state.cluster.layout = *layout;
  return std::optional(std::move(state));
}

Result<void> WorkerStateFile::Store(const core::WorkerState& state) {
  return ReplaceFile(ops_, state_dir_, std::string(kName), Format(state));
}

}  // namespace leaf::sys
