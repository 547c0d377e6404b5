// Stand-ins for the ports, for tests: time that stands still until it is moved, an executor that runs when
// told, a table and marks in memory, and a store that misbehaves on demand.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/executor.h"
#include "leaf/base/limits.h"
#include "leaf/base/logger.h"
#include "leaf/base/random.h"
#include "leaf/base/text.h"
#include "leaf/core/membership.h"
#include "leaf/core/ports.h"

namespace leaf::testing {

class FakeClock final : public Clock {
 public:
  WallTime Wall() const override {
    const std::lock_guard lock(mutex_);
    return wall_;
  }
  MonotonicTime Monotonic() const override {
    const std::lock_guard lock(mutex_);
    return monotonic_;
  }
  BootTime Boot() const override { return BootTime{Monotonic().time_since_epoch()}; }
  void WaitUntil(MonotonicTime time) const override {
    const std::lock_guard lock(mutex_);
    if (time <= monotonic_) return;
    wall_ += std::chrono::floor<std::chrono::milliseconds>(time - monotonic_);
    monotonic_ = time;
  }
  // Sets the wall clock, as an operator would; the other clocks do not notice.
  void SetWall(WallTime wall) {
    const std::lock_guard lock(mutex_);
    wall_ = wall;
  }
  void Advance(std::chrono::nanoseconds by) {
    const std::lock_guard lock(mutex_);
    monotonic_ += by;
    wall_ += std::chrono::floor<std::chrono::milliseconds>(by);
  }
  // Steps the wall clock, as an operator would; the other clocks go on as they did.
  void StepWall(std::chrono::milliseconds by) {
    const std::lock_guard lock(mutex_);
    wall_ += by;
  }

 private:
  mutable std::mutex mutex_;
  mutable MonotonicTime monotonic_{std::chrono::hours{1}};
  mutable WallTime wall_{std::chrono::milliseconds{1'795'000'000'000}};
};

class FakeRandom final : public Random {
 public:
  explicit FakeRandom(std::uint64_t seed = 1) : state_(seed) {}
  std::uint64_t Next() override {
    const std::lock_guard lock(mutex_);
    // splitmix64 (Steele, Lea, Flood 2014)
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }

 private:
  std::mutex mutex_;
  std::uint64_t state_;
};

// Runs nothing by itself: tests say when. One thread, or several that only post.
class ManualExecutor final : public Executor {
 public:
  explicit ManualExecutor(FakeClock& clock) : clock_(clock) {}
  void Post(Task task) override {
    const std::lock_guard lock(mutex_);
    if (!stopped_) ready_.push_back(std::move(task));
  }
  void PostAt(MonotonicTime time, Task task) override {
    const std::lock_guard lock(mutex_);
    if (!stopped_) timers_.emplace(time, std::move(task));
  }
  void Stop() override {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    ready_.clear();
    timers_.clear();
  }

  // Runs one task that is due; false if there is none.
  bool RunOne() {
    Task task;
    {
      const std::lock_guard lock(mutex_);
      if (!timers_.empty() && timers_.begin()->first <= clock_.Monotonic()) {
        task = std::move(timers_.begin()->second);
        timers_.erase(timers_.begin());
      } else if (!ready_.empty()) {
        task = std::move(ready_.front());
        ready_.pop_front();
      }
    }
    if (!task) return false;
    task();
    return true;
  }
  std::size_t ready() const {
    const std::lock_guard lock(mutex_);
    return ready_.size();
  }
  std::size_t timers() const {
    const std::lock_guard lock(mutex_);
    return timers_.size();
  }
  std::optional<MonotonicTime> NextTimer() const {
    const std::lock_guard lock(mutex_);
    return timers_.empty() ? std::nullopt : std::optional(timers_.begin()->first);
  }

 private:
  FakeClock& clock_;
  mutable std::mutex mutex_;
  bool stopped_ = false;
  std::deque<Task> ready_;
  std::multimap<MonotonicTime, Task> timers_;
};

class RecordingLogger final : public Logger {
 public:
  void Write(LogLevel level, std::string_view message) override {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(level, std::string(message));
  }
  // The lines of a level in which `part` occurs.
  std::size_t Count(LogLevel level, std::string_view part = "") const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::count_if(lines_.begin(), lines_.end(), [&](const auto& line) {
      return line.first == level && line.second.find(part) != std::string::npos;
    }));
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> lines_;
};

// The table in memory: the reference the real adapters are held to.
class MemorySegmentStore final : public core::SegmentStore, public core::TagAdmin {
 public:
  Result<core::Grant> Reserve(std::string_view tag, const core::GrantSizer& sizer) override {
    const std::lock_guard lock(mutex_);
    const auto found = rows_.find(std::string(tag));
    if (found == rows_.end()) return Unknown(tag);
    core::TagRow& row = found->second;
    if (row.step < 1 || row.step > kStepMax || row.max_id < 0) {
      return Error{ErrorCode::kRefused, "bad step or max_id of " + Quoted(tag), ""};
    }
    auto size = sizer(row);
    if (!size.ok()) return std::move(size).error();
    const auto begin = static_cast<std::uint64_t>(row.max_id);
    if (kMaxIdLimit - begin < size->least)
      return Error{ErrorCode::kOverflow, "nothing left of " + Quoted(tag), ""};
    const std::uint64_t count = std::min(size->wanted, kMaxIdLimit - begin);
    row.max_id += static_cast<std::int64_t>(count);
    return core::Grant{{begin, begin + count}, row.step};
  }
  Result<std::optional<core::Grant>> ReserveUnread(std::string_view tag, std::uint64_t floor,
                                                   const UnreadSizer& size) override {
    const std::lock_guard lock(mutex_);
    const auto found = rows_.find(std::string(tag));
    if (found == rows_.end()) return std::optional<core::Grant>();
    core::TagRow& row = found->second;
    LEAF_ASSIGN_OR_RETURN(const core::GrantSize wanted, size());
    const std::uint64_t count = wanted.wanted;
    const auto begin = static_cast<std::uint64_t>(row.max_id);
    if (row.step < 1 || row.step > kStepMax || row.max_id < 0 || begin < floor || kMaxIdLimit - begin < count)
      return std::optional<core::Grant>();
    row.max_id += static_cast<std::int64_t>(count);
    return std::optional(core::Grant{{begin, begin + count}, 0});
  }
  Result<std::vector<core::TagRow>> List() override {
    const std::lock_guard lock(mutex_);
    std::vector<core::TagRow> rows;
    for (const auto& [tag, row] : rows_) rows.push_back(row);
    return rows;
  }
  Result<core::TagRow> Describe(std::string_view tag) override {
    const std::lock_guard lock(mutex_);
    const auto found = rows_.find(std::string(tag));
    if (found == rows_.end()) return Unknown(tag);
    return found->second;
  }
  Result<core::TagRow> Add(const core::NewTag& tag, core::WriteMode mode) override {
    const std::lock_guard lock(mutex_);
    if (rows_.count(tag.tag) > 0) return Error{ErrorCode::kAlreadyExists, Quoted(tag.tag) + " exists", ""};
    const std::uint64_t mark = std::max(tag.mark, removed_[tag.tag]);
    const std::uint64_t start = tag.start.value_or(std::max<std::uint64_t>(1, mark));
    if (start < mark) return Error{ErrorCode::kRefused, "below the mark " + std::to_string(mark), ""};
    const core::TagRow row{tag.tag, static_cast<std::int64_t>(start), tag.step, tag.description, {}};
    if (mode == core::WriteMode::kCommit) rows_[tag.tag] = row;
    return row;
  }
  Result<core::TagRow> Update(std::string_view tag, const core::TagChange& change,
                              core::WriteMode mode) override {
    return Change(tag, mode, [&](core::TagRow& row) -> Result<void> {
      if (change.max_id && row.max_id > static_cast<std::int64_t>(*change.max_id))
        return Error{ErrorCode::kRefused, "only upward", ""};
      if (change.max_id) row.max_id = static_cast<std::int64_t>(*change.max_id);
      if (change.step) row.step = *change.step;
      if (change.description) row.description = change.description;
      return {};
    });
  }
  Result<core::TagRow> Advance(std::string_view tag, std::uint64_t to, core::WriteMode mode) override {
    return Change(tag, mode, [&](core::TagRow& row) -> Result<void> {
      if (row.max_id > static_cast<std::int64_t>(to)) return Error{ErrorCode::kRefused, "only upward", ""};
      row.max_id = static_cast<std::int64_t>(to);
      return {};
    });
  }
  Result<Removal> Remove(std::string_view tag, core::WriteMode mode) override {
    const std::lock_guard lock(mutex_);
    const auto found = rows_.find(std::string(tag));
    if (found == rows_.end()) return Unknown(tag);
    Removal removal{found->second, true};
    if (mode == core::WriteMode::kCommit) {
      removed_[found->first] =
          std::max(removed_[found->first], static_cast<std::uint64_t>(found->second.max_id));
      rows_.erase(found);
    }
    return removal;
  }
  Result<std::uint64_t> RemovedMark(std::string_view tag) override {
    const std::lock_guard lock(mutex_);
    return removed_[std::string(tag)];
  }
  Result<std::vector<std::pair<std::string, std::uint64_t>>> RemovedMarks() override {
    const std::lock_guard lock(mutex_);
    std::vector<std::pair<std::string, std::uint64_t>> marks;
    for (const auto& [tag, mark] : removed_) {
      if (mark > 0) marks.emplace_back(tag, mark);
    }
    return marks;
  }

  // What a user with a database client may do at any time.
  void Put(const std::string& tag, std::int64_t max_id, std::int64_t step) {
    const std::lock_guard lock(mutex_);
    rows_[tag] = {tag, max_id, step, std::nullopt, {}};
  }
  void Erase(const std::string& tag) {
    const std::lock_guard lock(mutex_);
    rows_.erase(tag);
  }
  std::int64_t MaxId(const std::string& tag) const {
    const std::lock_guard lock(mutex_);
    return rows_.at(tag).max_id;
  }

 private:
  static Error Unknown(std::string_view tag) {
    return {ErrorCode::kNotFound, "unknown tag " + Quoted(tag), ""};
  }
  Result<core::TagRow> Change(std::string_view tag, core::WriteMode mode,
                              const std::function<Result<void>(core::TagRow&)>& change) {
    const std::lock_guard lock(mutex_);
    const auto found = rows_.find(std::string(tag));
    if (found == rows_.end()) return Unknown(tag);
    core::TagRow row = found->second;
    LEAF_RETURN_IF_ERROR(change(row));
    if (mode == core::WriteMode::kCommit) found->second = row;
    return row;
  }

  mutable std::mutex mutex_;
  std::map<std::string, core::TagRow> rows_;
  std::map<std::string, std::uint64_t> removed_;
};

// Passes on to another store, except when told to fail.
class FaultySegmentStore final : public core::SegmentStore {
 public:
  explicit FaultySegmentStore(core::SegmentStore& inner) : inner_(inner) {}

  enum class Fault {
    kNone,
    kUnavailable,  // nothing happens
    kLostReply,    // the row moves, the reply to COMMIT is lost
    kSlowReply,    // the row moves, and on_slow runs before the reply (to move the clock)
  };
  // The next `times` reserves fail like that.
  void FailReserves(Fault fault, int times) {
    const std::lock_guard lock(mutex_);
    fault_ = fault;
    times_ = times;
  }
  // Everything is unavailable until further notice.
  void SetDown(bool down) {
    const std::lock_guard lock(mutex_);
    down_ = down;
  }
  // Fails everything but plain reads with `error` until further notice.
  void SetError(std::optional<Error> error) {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
  }
  std::function<void()> on_slow;
  std::function<void()> before_list_reply;
  std::function<void()> before_describe_reply;  // once
  int reserves() const {
    const std::lock_guard lock(mutex_);
    return reserves_;
  }
  int describes() const {
    const std::lock_guard lock(mutex_);
    return describes_;
  }

  Result<core::Grant> Reserve(std::string_view tag, const core::GrantSizer& sizer) override {
    Fault fault = Fault::kNone;
    {
      const std::lock_guard lock(mutex_);
      ++reserves_;
      if (down_) return Away();
      if (error_) return *error_;
      if (times_ > 0) {
        --times_;
        fault = fault_;
      }
    }
    if (fault == Fault::kUnavailable) return Away();
    auto grant = inner_.Reserve(tag, sizer);
    if (fault == Fault::kLostReply && grant.ok()) return Error{ErrorCode::kOutcomeUnknown, "reply lost", ""};
    if (fault == Fault::kSlowReply) on_slow();
    return grant;
  }
  // Only where a test asks for it: what is to fail is a Reserve.
  Result<std::optional<core::Grant>> ReserveUnread(std::string_view tag, std::uint64_t floor,
                                                   const UnreadSizer& size) override {
    {
      const std::lock_guard lock(mutex_);
      if (!unread_) return std::optional<core::Grant>();
      ++unread_reserves_;
    }
    return inner_.ReserveUnread(tag, floor, size);
  }
  void ReserveUnreadFromNowOn() {
    const std::lock_guard lock(mutex_);
    unread_ = true;
  }
  int unread_reserves() const {
    const std::lock_guard lock(mutex_);
    return unread_reserves_;
  }
  Result<std::vector<core::TagRow>> List() override {
    {
      const std::lock_guard lock(mutex_);
      if (down_) return Away();
    }
    auto rows = inner_.List();
    if (before_list_reply) before_list_reply();
    return rows;
  }
  Result<core::TagRow> Describe(std::string_view tag) override {
    {
      const std::lock_guard lock(mutex_);
      ++describes_;
      if (down_) return Away();
    }
    auto row = inner_.Describe(tag);
    if (const auto meanwhile = std::exchange(before_describe_reply, nullptr)) meanwhile();
    return row;
  }

 private:
  static Error Away() { return {ErrorCode::kUnavailable, "the store is away", ""}; }

  core::SegmentStore& inner_;
  mutable std::mutex mutex_;
  Fault fault_ = Fault::kNone;
  int times_ = 0;
  bool down_ = false;
  std::optional<Error> error_;
  int reserves_ = 0;
  int describes_ = 0;
  bool unread_ = false;
  int unread_reserves_ = 0;
};

class MemoryMarkStore final : public core::MarkStore, public core::ClusterMemoryStore {
 public:
  explicit MemoryMarkStore(const Clock& clock) : clock_(clock) {}

  Result<std::unique_ptr<Hold>> Acquire(std::string_view tag) override {
    const std::lock_guard lock(mutex_);
    if (!held_.insert(std::string(tag)).second) return Error{ErrorCode::kUnavailable, "held", ""};
    return std::unique_ptr<Hold>(std::make_unique<Held>(*this, std::string(tag)));
  }
  Result<std::vector<core::Mark>> LoadAll() override {
    const std::lock_guard lock(mutex_);
    if (failing_) return Failure();
    std::vector<core::Mark> marks;
    for (const auto& [tag, entry] : marks_) marks.push_back(entry.mark);
    return marks;
  }
  Result<core::Mark> Load(std::string_view tag) override {
    const std::lock_guard lock(mutex_);
    if (failing_) return Failure();
    const auto found = marks_.find(std::string(tag));
    if (found != marks_.end()) return found->second.mark;
    core::Mark none;
    none.tag = tag;
    return none;
  }
  Result<void> Raise(const core::MarkRaise& raise) override {
    const std::lock_guard lock(mutex_);
    if (failing_ || full_) return Failure();
    const WallTime now = clock_.Wall();
    auto [found, added] = marks_.try_emplace(std::string(raise.tag));
    Entry& entry = found->second;
    core::Mark& mark = entry.mark;
    if (added || mark.end == 0) {
      mark.tag = raise.tag;
      mark.base = entry.next = {raise.end, now};
    } else if (now - entry.next.at >= kBaselineAge) {
      mark.base = entry.next;
      entry.next = {raise.end, now};
    }
    if (raise.end > mark.end) {
      mark.end = raise.end;
      mark.raised_at = now;
      mark.raised_by = "test";
    }
    if (raise.held) {
      mark.held = *raise.held;
      entry.held_exactly = false;
    }
    mark.witness = std::max(mark.witness, raise.witness);
    return {};
  }
  Result<core::ClusterMemory> LoadMemory(std::string_view cluster) override {
    const std::lock_guard lock(mutex_);
    if (failing_) return Failure();
    return memories_[std::string(cluster)];
  }
  Result<void> SaveMemory(std::string_view cluster, const core::ClusterMemory& memory) override {
    const std::lock_guard lock(mutex_);
    if (failing_ || full_) return Failure();
    core::ClusterMemory& stored = memories_[std::string(cluster)];
    if (stored.id.empty()) stored.id = memory.id;
    if (memory.beat < stored.beat) {
      core::AddOthers(stored, memory);
    } else {
      stored.others = memory.others;
      stored.covered = memory.covered;
      stored.beats = memory.beats;
    }
    if (memory.beat >= stored.beat) stored.at = memory.at;
    stored.beat = std::max(stored.beat, memory.beat);
    stored.incarnation = std::max(stored.incarnation, memory.incarnation);
    ++saves_;
    return {};
  }
  Result<void> RaiseWitnesses(const std::vector<std::pair<std::string, std::uint64_t>>& ends) override {
    const std::lock_guard lock(mutex_);
    if (failing_ || full_) return Failure();
    for (const auto& [tag, end] : ends) {
      core::Mark& mark = marks_[tag].mark;
      mark.tag = tag;
      mark.witness = std::max(mark.witness, end);
    }
    return {};
  }
  // How often a memory was written.
  int saves() {
    const std::lock_guard lock(mutex_);
    return saves_;
  }
  Result<void> BeginRun() override {
    const std::lock_guard lock(mutex_);
    if (failing_ || full_) return Failure();
    for (auto& [tag, entry] : marks_) {
      core::Mark& mark = entry.mark;
      mark.wasted += mark.held;
      mark.wasted_last = mark.held;
      mark.wasted_exactly = mark.wasted_exactly && (entry.held_exactly || mark.held == 0);
      mark.held = 0;
      entry.held_exactly = false;
    }
    return {};
  }
  Result<void> EndRun(const std::vector<core::UnissuedIds>& unissued) override {
    const std::lock_guard lock(mutex_);
    if (failing_ || full_) return Failure();
    for (auto& [tag, entry] : marks_) {
      entry.mark.held = 0;
      entry.held_exactly = true;
    }
    for (const core::UnissuedIds& ids : unissued) {
      if (const auto found = marks_.find(ids.tag); found != marks_.end()) found->second.mark.held = ids.count;
    }
    return {};
  }
  Result<std::vector<core::OrderRow>> LoadOrders() override {
    const std::lock_guard lock(mutex_);
    if (failing_) return Failure();
    std::vector<core::OrderRow> rows;
    for (const auto& [tag, row] : orders_) rows.push_back(row);
    return rows;
  }
  Result<void> KeepOrders(const std::vector<core::OrderRow>& rows) override {
    const std::lock_guard lock(mutex_);
    if (failing_ || full_) return Failure();
    for (const core::OrderRow& row : rows) {
      const auto [kept, added] = orders_.try_emplace(row.tag, row);
      if (!added && core::IsNewer(row, kept->second)) kept->second = row;
    }
    return {};
  }

  void SetFailing(bool failing) {
    const std::lock_guard lock(mutex_);
    failing_ = failing;
  }
  // As a full disk: reads work, writes do not.
  void SetFull(bool full) {
    const std::lock_guard lock(mutex_);
    full_ = full;
  }

 private:
  class Held final : public Hold {
   public:
    Held(MemoryMarkStore& store, std::string tag) : store_(store), tag_(std::move(tag)) {}
    ~Held() override {
      const std::lock_guard lock(store_.mutex_);
      store_.held_.erase(tag_);
    }

   private:
    MemoryMarkStore& store_;
    const std::string tag_;
  };
  static Error Failure() { return {ErrorCode::kUnavailable, "the marks are away", ""}; }

  struct Entry {
    core::Mark mark;
    core::Baseline next;
    bool held_exactly = false;
  };
  const Clock& clock_;
  std::mutex mutex_;
  std::map<std::string, Entry> marks_;
  std::map<std::string, core::ClusterMemory> memories_;
  std::map<std::string, core::OrderRow> orders_;
  int saves_ = 0;
  std::set<std::string> held_;
  bool failing_ = false;
  bool full_ = false;
};

}  // namespace leaf::testing
