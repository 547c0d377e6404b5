#include "sim/state_dir.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/sys/paused_tags_file.h"

namespace leaf::sim {
namespace {

Error ProcessGone() { return {ErrorCode::kUnavailable, "the process is gone", ""}; }

Error DiskFull() { return {ErrorCode::kUnavailable, "no space left on the disk", ""}; }

// A database in memory that all connections of the process share, and no other one has the name of.
std::string MemoryUri() {
  static std::uint64_t last = 0;
  return fmt::format("file:marks-{}?mode=memory&cache=shared", ++last);
}

}  // namespace

DirMarks::DirMarks(const Clock& clock, bool sqlite) : memory_(clock), keeper_(nullptr, sqlite3_close) {
  if (!sqlite) return;
  const std::string uri = MemoryUri();
  sqlite3* keeper = nullptr;
  LEAF_CHECK(sqlite3_open_v2(uri.c_str(), &keeper,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI,
                             nullptr) == SQLITE_OK);
  keeper_.reset(keeper);
  sqlite_ = std::make_unique<sql::SqliteMarkStore>(
      uri, [this](std::string_view tag) { return memory_.Acquire(tag); }, clock, "leafsim");
}

Result<void> DirMarks::Raise(const core::MarkRaise& raise) {
  if (full_) return DiskFull();
  return store().Raise(raise);
}

Result<void> DirMarks::BeginRun() {
  if (full_) return DiskFull();
  return store().BeginRun();
}

Result<void> DirMarks::EndRun(const std::vector<core::UnissuedIds>& unissued) {
  if (full_) return DiskFull();
  return store().EndRun(unissued);
}

Result<void> DirMarks::KeepOrders(const std::vector<core::OrderRow>& rows) {
  if (full_) return DiskFull();
  return store().KeepOrders(rows);
}

Result<void> DirMarks::SaveMemory(std::string_view cluster, const core::ClusterMemory& memory) {
  if (full_) return DiskFull();
  return memories().SaveMemory(cluster, memory);
}

Result<void> DirMarks::RaiseWitnesses(const std::vector<std::pair<std::string, std::uint64_t>>& ends) {
  if (full_) return DiskFull();
  return memories().RaiseWitnesses(ends);
}

void DirMarks::SetFull(bool full) {
  full_ = full;
  memory_.SetFull(full);
}

std::unique_ptr<StateDir> StateDir::Copy(std::uint64_t copy_number, const Clock& clock) const {
  auto copy = std::make_unique<StateDir>(copy_number, clock, marks.in_sqlite());
  for (const std::string_view name : {sys::WorkerStateFile::kName, sys::PausedTagsFile::kName}) {
    const std::string path = std::string(kPath) + "/" + std::string(name);
    if (auto content = disk.Content(path)) copy->disk.Put(path, std::move(*content));
  }
  copy->pauses = pauses;
  if (const auto all = marks.LoadAll(); all.ok()) {
    for (const core::Mark& mark : *all) {
      (void)copy->marks.Raise({mark.tag, mark.end, std::nullopt, mark.witness});
    }
  }
  if (const auto orders = marks.LoadOrders(); orders.ok()) (void)copy->marks.KeepOrders(*orders);
  if (const auto memory = marks.LoadMemory(kCluster); memory.ok() && !memory->id.empty())
    (void)copy->marks.SaveMemory(kCluster, *memory);
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

Result<std::vector<core::OrderRow>> SimMarks::LoadOrders() {
  Work();
  return marks_.LoadOrders();
}

Result<void> SimMarks::KeepOrders(const std::vector<core::OrderRow>& rows) {
  Work();
  if (process_.dead) return ProcessGone();
  return marks_.KeepOrders(rows);
}

Result<core::ClusterMemory> SimMarks::LoadMemory(std::string_view cluster) {
  Work();
  return marks_.LoadMemory(cluster);
}

Result<void> SimMarks::SaveMemory(std::string_view cluster, const core::ClusterMemory& memory) {
  Work();
  if (process_.dead) return ProcessGone();
  return marks_.SaveMemory(cluster, memory);
}

Result<void> SimMarks::RaiseWitnesses(const std::vector<std::pair<std::string, std::uint64_t>>& ends) {
  Work();
  if (process_.dead) return ProcessGone();
  return marks_.RaiseWitnesses(ends);
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
