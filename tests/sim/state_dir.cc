#include "sim/state_dir.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace leaf::sim {
namespace {

Error ProcessGone() { return {ErrorCode::kUnavailable, "the process is gone", ""}; }

}  // namespace

std::unique_ptr<StateDir> StateDir::Copy(std::uint64_t copy_number, const Clock& clock) const {
  auto copy = std::make_unique<StateDir>(copy_number, clock);
  const std::string path = std::string(kPath) + "/" + std::string(sys::WorkerStateFile::kName);
  if (auto content = disk.Content(path)) copy->disk.Put(path, std::move(*content));
  if (const auto all = marks.LoadAll(); all.ok()) {
    for (const core::Mark& mark : *all) (void)copy->marks.Raise({mark.tag, mark.end, std::nullopt});
  }
  return copy;
}

void StateDir::SetFull(bool full) {
  disk.FailWrites(full ? ENOSPC : 0);
  marks.SetFull(full);
}

void SimMarks::Work() { world_.Block(process_, world_.dice().Between(20 * kMicro, kMilli)); }

Result<std::unique_ptr<core::MarkStore::Hold>> SimMarks::Acquire(std::string_view tag) {
  if (process_.dead) return ProcessGone();
  const Nanos deadline = world_.now() + 3 * kSecond;
  while (true) {
    Work();
    auto hold = marks_.Acquire(tag);
    if (hold.ok() || world_.now() >= deadline || process_.dead) return hold;
    world_.Block(process_, 20 * kMilli);
  }
}

Result<std::vector<core::Mark>> SimMarks::LoadAll() {
  Work();
  return marks_.LoadAll();
}

Result<core::Mark> SimMarks::Load(std::string_view tag) {
  Work();
  return marks_.Load(tag);
}

Result<void> SimMarks::Raise(const core::MarkRaise& raise) {
  Work();
  if (process_.dead) return ProcessGone();
  LEAF_RETURN_IF_ERROR(marks_.Raise(raise));
  // Durable, whether or not the caller lives to hear it. The caller asks for one range at a time.
  std::vector<IdRange>& reserved = reserved_[std::string(raise.tag)];
  const auto last = std::find_if(reserved.rbegin(), reserved.rend(),
                                 [&](const IdRange& range) { return range.end == raise.end; });
  if (last != reserved.rend()) history_.Granted(issuer_, raise.tag, *last);
  reserved.clear();
  Work();
  return {};
}

Result<void> SimMarks::BeginRun() {
  Work();
  return marks_.BeginRun();
}

Result<void> SimMarks::EndRun(const std::vector<core::UnissuedIds>& unissued) {
  Work();
  if (process_.dead) return ProcessGone();
  return marks_.EndRun(unissued);
}

}  // namespace leaf::sim
