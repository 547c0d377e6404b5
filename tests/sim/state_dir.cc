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

// Of an operator.
Process& Desk() {
  static Process desk("operator", 0);
  return desk;
}

}  // namespace

DirMarks::Opened::Opened(DirMarks& marks, Process& process) : memory_(marks.memory_) {
  if (!marks.disk_) return;
  mount_ = marks.disk_->MountFor(process);
  sqlite_ = std::make_unique<sql::SqliteMarkStore>(
      mount_->path(), [&memory = memory_](std::string_view tag) { return memory.Acquire(tag); }, marks.clock_,
      "leafsim");
}

DirMarks::DirMarks(const Clock& clock, bool sqlite, std::uint64_t seed)
    : clock_(clock), memory_(clock), disk_(sqlite ? std::make_unique<SqliteDisk>(seed) : nullptr) {}

void DirMarks::SetFull(bool full) {
  full_ = full;
  memory_.SetFull(full);
  if (disk_) disk_->SetFull(full);
}

void DirMarks::CopyTo(DirMarks& copy) const {
  copy.kept_ = kept_;
  if (disk_) return disk_->CopyTo(*copy.disk_);
  if (const auto all = memory_.LoadAll(); all.ok()) {
    for (const core::Mark& mark : *all) {
      (void)copy.memory_.Raise({mark.tag, mark.end, std::nullopt, mark.witness});
    }
  }
  if (const auto orders = memory_.LoadOrders(); orders.ok()) (void)copy.memory_.KeepOrders(*orders);
  if (const auto memory = memory_.LoadMemory(StateDir::kCluster); memory.ok() && !memory->id.empty())
    (void)copy.memory_.SaveMemory(StateDir::kCluster, *memory);
}

template <typename Look>
auto DirMarks::InCopy(Look look) const {
  if (!disk_) {
    Opened opened(memory_);
    return look(opened);
  }
  DirMarks copy(clock_, in_sqlite(), 0);
  CopyTo(copy);
  Opened opened = copy.OpenFor(Desk());
  return look(opened);
}

Result<core::Mark> DirMarks::Load(const std::string& tag) const {
  return InCopy([&](Opened& opened) { return opened.store().Load(tag); });
}

Result<std::vector<core::OrderRow>> DirMarks::LoadOrders() const {
  return InCopy([](Opened& opened) { return opened.store().LoadOrders(); });
}

Result<core::ClusterMemory> DirMarks::LoadMemory(std::string_view cluster) const {
  return InCopy([&](Opened& opened) { return opened.memories().LoadMemory(cluster); });
}

void DirMarks::Kept(const std::string& tag, std::uint64_t end) {
  if (disk_) kept_[tag] = std::max(kept_[tag], end);
}

std::string DirMarks::Lost(const Ends& kept, const std::vector<core::Mark>& marks) {
  for (const auto& [tag, end] : kept) {
    const auto found = std::find_if(marks.begin(), marks.end(),
                                    [&tag = tag](const core::Mark& mark) { return mark.tag == tag; });
    const std::uint64_t read = found == marks.end() ? 0 : found->end;
    if (read < end) return fmt::format("the mark of {} was {}, and is {}", tag, end, read);
  }
  return "";
}

std::unique_ptr<StateDir> StateDir::Copy(std::uint64_t copy_number, const Clock& clock) const {
  std::unique_ptr<StateDir> copy(new StateDir(copy_number, clock, marks.in_sqlite(), copy_number));
  for (const std::string_view name : {sys::WorkerStateFile::kName, sys::PausedTagsFile::kName}) {
    const std::string path = std::string(kPath) + "/" + std::string(name);
    if (auto content = disk.Content(path)) copy->disk.Put(path, std::move(*content));
  }
  copy->pauses = pauses;
  marks.CopyTo(copy->marks);
  return copy;
}

void StateDir::SetFull(bool full) {
  disk.FailWrites(full ? ENOSPC : 0);
  marks.SetFull(full);
}

void StateDir::Mend() {
  SetFull(false);
  if (marks.in_sqlite()) marks.disk()->Mend();
}

void SimMarks::Work() { world_.Block(process_, world_.dice().Between(20 * kMicro, kMilli)); }

Result<void> SimMarks::CanWrite() const {
  if (process_.dead) return ProcessGone();
  if (marks_.full() && !opened_.in_sqlite()) return DiskFull();
  return {};
}

template <typename R>
R SimMarks::Done(R result) const {
  if (process_.dead) world_.Block(process_, 0);
  return result;
}

void SimMarks::CheckKept(const DirMarks::Ends& kept, const std::vector<core::Mark>& marks) {
  if (const std::string lost = DirMarks::Lost(kept, marks); !lost.empty())
    history_.Broken(fmt::format("P1: in the state directory of {} {}", process_.name, lost));
}

Result<std::unique_ptr<core::MarkStore::Hold>> SimMarks::Acquire(std::string_view tag) {
  if (process_.dead) return ProcessGone();
  const Nanos deadline = world_.now() + 3 * kSecond;
  while (true) {
    Work();
    auto hold = opened_.store().Acquire(tag);
    if (hold.ok() || world_.now() >= deadline || process_.dead) return hold;
    world_.Block(process_, 20 * kMilli);
  }
}

Result<std::vector<core::Mark>> SimMarks::LoadAll() {
  Work();
  // Other processes may raise some while this one reads.
  const DirMarks::Ends kept = marks_.kept();
  auto all = opened_.store().LoadAll();
  if (all.ok()) CheckKept(kept, *all);
  return Done(std::move(all));
}

Result<core::Mark> SimMarks::Load(std::string_view tag) {
  Work();
  return Done(opened_.store().Load(tag));
}

Result<void> SimMarks::Raise(const core::MarkRaise& raise) {
  Work();
  LEAF_RETURN_IF_ERROR(CanWrite());
  LEAF_RETURN_IF_ERROR(Done(opened_.store().Raise(raise)));
  // Durable, whether or not the caller lives to hear it. The caller asks for one range at a time.
  marks_.Kept(std::string(raise.tag), raise.end);
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
  return Done(opened_.store().LoadOrders());
}

Result<void> SimMarks::KeepOrders(const std::vector<core::OrderRow>& rows) {
  Work();
  LEAF_RETURN_IF_ERROR(CanWrite());
  return Done(opened_.store().KeepOrders(rows));
}

Result<core::ClusterMemory> SimMarks::LoadMemory(std::string_view cluster) {
  Work();
  return Done(opened_.memories().LoadMemory(cluster));
}

Result<void> SimMarks::SaveMemory(std::string_view cluster, const core::ClusterMemory& memory) {
  Work();
  LEAF_RETURN_IF_ERROR(CanWrite());
  return Done(opened_.memories().SaveMemory(cluster, memory));
}

Result<void> SimMarks::RaiseWitnesses(const std::vector<std::pair<std::string, std::uint64_t>>& ends) {
  Work();
  LEAF_RETURN_IF_ERROR(CanWrite());
  return Done(opened_.memories().RaiseWitnesses(ends));
}

Result<void> SimMarks::BeginRun() {
  Work();
  LEAF_RETURN_IF_ERROR(CanWrite());
  return Done(opened_.store().BeginRun());
}

Result<void> SimMarks::EndRun(const std::vector<core::UnissuedIds>& unissued) {
  Work();
  LEAF_RETURN_IF_ERROR(CanWrite());
  return Done(opened_.store().EndRun(unissued));
}

}  // namespace leaf::sim
