#include "leaf/service/segment_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"

namespace leaf::service {

bool TagHandle::FindAnother() {
  auto found = directory_->Find(tag_);
  if (found == generator_) return false;
  generator_ = std::move(found);
  return generator_ != nullptr;
}

SegmentService::SegmentService(const SegmentOptions& options, core::SegmentStore& store,
                               core::MarkStore& marks, const Clock& clock, Random& random,
                               const SegmentExecutors& executors, Logger& log)
    : options_(options),
      store_(store),
      marks_(marks),
      clock_(clock),
      random_(random),
      timers_(executors.timers),
      refresher_(executors.refresher),
      cluster_(executors.cluster),
      log_(log),
      granter_(store, marks, options.fence, clock, log, options.reply_timeout),
      orders_(options.orders, marks, options.order_node, log, [this] { AdoptOrders(); }),
      context_{.store = store,
               .marks = marks,
               .granter = granter_,
               .clock = clock,
               .random = random,
               .timers = executors.timers,
               .workers = executors.workers,
               .slow_workers = executors.slow_workers,
               .look_ups = look_ups_,
               .log = log,
               .orders = orders_,
               .fallback = options.fence != nullptr && options.fence->Status().fallback_allowed,
               .step_policy = options.step_policy,
               .step_max = options.step_max,
               .reserve_time = options.reserve_time,
               .retire = [this](const std::string& tag, bool known_absent) { Retire(tag, known_absent); },
               .store_failed = [this] { LookAfterFailure(); }},
      look_ups_(executors.slow_workers, kLookUpsAtOnce),
      reads_lane_(executors.slow_workers, kReadsAtOnce),
      directory_(options.tags_max),
      refresh_interval_(options.refresh_interval) {}

void SegmentService::Start() {
  refresher_.Post([this] { RunRefresh(0); });
  if (options_.orders != nullptr) ScheduleOrderLook();
  if (options_.fence == nullptr || !options_.fence->has_membership()) return;
  LEAF_CHECK(cluster_ != nullptr);
  cluster_->Post([this] { StepMembership(); });
}

// What this node knows: its marks, and what it has seen of the witnesses.
void SegmentService::StepMembership() {
  if (context_.stop.raised()) return;
  const auto known = [this]() -> Result<ClusterFence::KnownEnds> {
    std::unordered_map<std::string, std::uint64_t> ends;
    ClusterFence::KnownEnds all;
    LEAF_ASSIGN_OR_RETURN(const std::vector<core::Mark> marks, marks_.LoadAll());
    for (const core::Mark& mark : marks) ends[mark.tag] = std::max(mark.end, mark.witness);
    for (const auto& generator : directory_.All()) {
      if (const std::uint64_t end = generator->known_end(); end > 0)
        ends[generator->tag()] = std::max(ends[generator->tag()], end);
    }
    all.ends.assign(ends.begin(), ends.end());
    LEAF_ASSIGN_OR_RETURN(all.orders, orders_.Recall());
    return all;
  };
  if (options_.fence->StepMembership(known)) {
    for (const auto& generator : directory_.All()) generator->Kick();
    // What was made known again may be above the table's rows.
    refresher_.Post([this] { RunRefresh(refresh_chain_.fetch_add(1) + 1); });
  }
  timers_.PostAt(clock_.Monotonic() + core::kMembershipPoll,
                 [this] { cluster_->Post([this] { StepMembership(); }); });
}

void SegmentService::Reconfigure(std::chrono::milliseconds refresh_interval,
                                 std::chrono::milliseconds reserve_time) {
  if (context_.reserve_time.exchange(reserve_time) != reserve_time) {
    for (const auto& generator : directory_.All()) generator->AdoptReserveTime();
  }
  if (refresh_interval_.exchange(refresh_interval) == refresh_interval) return;
  // The next refresh may be far away by the old interval: a new chain begins, and the old one ends there.
  RefreshNow();
}

void SegmentService::Stop() { Halt(ShuttingDown()); }

void SegmentService::LeaveCluster() {
  if (options_.fence != nullptr) options_.fence->LeaveMembership();
}

void SegmentService::Halt(Error why) {
  context_.stop.Raise(std::move(why));
  for (const auto& generator : directory_.All()) generator->Stop();
}

Result<void> SegmentService::RecordUnissued() {
  // The threads of the refresh have ended. What an earlier run left is not counted yet, and stays.
  if (!run_begun_) return {};
  std::vector<core::UnissuedIds> unissued;
  for (const auto& generator : directory_.All()) {
    if (const std::uint64_t count = generator->unissued(); count > 0)
      unissued.push_back({generator->tag(), count});
  }
  return marks_.EndRun(unissued);
}

ParkedRequest SegmentService::Next(std::string_view tag, const Batch& batch, const ParkLimits& limits,
                                   NextCallback done) {
  ParkedRequest parked;
  while (true) {
    auto generator = FindOrLookUp(tag);
    if (!generator.ok()) {
      Fail(done, std::move(generator).error());
      return parked;
    }
    if ((*generator)->Park(batch, limits, done, parked)) return parked;
    // It has retired, and is forgotten here if no other thread has done so.
    Retire((*generator)->tag(), false);
  }
}

void SegmentService::Fail(const NextCallback& done, Error error) {
  context_.counters.AddError(SlotOf(error.code));
  done(std::move(error));
}

Result<void> SegmentService::CanIssue() const {
  if (context_.stop.raised()) return context_.stop.why();
  std::optional<Error> problem;
  {
    const MutexLock lock(mutex_);
    if (!loaded_) {
      if (store_problem_) return *store_problem_;
      return Error{ErrorCode::kUnavailable, "the table of tags is being read", ""};
    }
    problem = store_problem_;
  }
  const bool of_store = problem.has_value();
  if (!problem && options_.fence != nullptr) problem = options_.fence->Blocking();
  if (!problem) return {};
  // Where there is no tag, there is nothing that the witness keeps from being issued.
  if (directory_.size() == 0 && !of_store) return {};
  if (directory_.Any([](const TagGenerator& tag) { return tag.reserve() > 0; })) return {};
  return Error{problem->code, fmt::format("no tag has a reserve, and {}", problem->message), problem->hint};
}

SegmentStatus SegmentService::Status() const {
  const MutexLock lock(mutex_);
  return {.loaded = loaded_,
          .store_problem = store_problem_,
          .fence = options_.fence == nullptr ? std::nullopt : std::optional(options_.fence->Status()),
          .refreshed_at = refreshed_at_,
          .tags = directory_.size()};
}

std::vector<TagStatus> SegmentService::TagStatuses() const {
  std::vector<TagStatus> statuses;
  for (const auto& generator : directory_.All()) {
    if (generator->confirmed()) statuses.push_back(StatusOf(*generator));
  }
  std::sort(statuses.begin(), statuses.end(),
            [](const TagStatus& a, const TagStatus& b) { return a.tag < b.tag; });
  return statuses;
}

SegmentTotals SegmentService::Visit(const TagVisitor& visit) const {
  std::vector<std::shared_ptr<TagGenerator>> tags;
  TagTotals sum;
  {
    // Each tag is in the list or among the departed.
    const MutexLock lock(totals_mutex_);
    tags = directory_.All();
    sum = departed_;
  }
  for (const auto& generator : tags) {
    const TagTotals totals = generator->Totals();
    sum.issued += totals.issued;
    sum.wasted += totals.wasted;
    if (visit && generator->confirmed()) visit(StatusOf(*generator));
  }
  const MutexLock lock(totals_mutex_);
  // Another caller may have looked later and come here first.
  told_.issued = std::max(told_.issued, sum.issued);
  told_.granted = std::max(told_.granted, context_.counters.granted());
  told_.wasted = std::max(told_.wasted, context_.counters.dropped() + sum.wasted);
  SegmentTotals totals = told_;
  totals.tallies = context_.counters.Tallies();
  return totals;
}

std::vector<TagRanges> SegmentService::Ranges() const {
  std::vector<TagRanges> ranges;
  for (const auto& generator : directory_.All()) {
    if (generator->confirmed()) ranges.push_back(generator->Ranges());
  }
  return ranges;
}

Result<bool> SegmentService::SetPaused(std::string_view tag, bool paused, std::string_view who) {
  LEAF_CHECK(options_.paused != nullptr);
  if (context_.stop.raised()) return context_.stop.why();
  LEAF_ASSIGN_OR_RETURN(const bool changed, options_.paused->Set(tag, paused, clock_.Wall(), [&] {
    if (const auto generator = directory_.Find(tag)) generator->SetPaused(paused);
  }));
  if (changed) log_.Info("tag {} was {} by {}", Quoted(tag), paused ? "paused" : "resumed", Printable(who));
  return changed;
}

void SegmentService::ObservePeaks() {
  for (const auto& generator : directory_.All()) generator->ObservePeak();
}

std::optional<std::uint64_t> SegmentService::LastIssued(std::string_view tag) const {
  const auto generator = directory_.Find(tag);
  return generator ? generator->LastIssued() : std::nullopt;
}

std::optional<TagStatus> SegmentService::StatusOf(std::string_view tag) const {
  const auto generator = directory_.Find(tag);
  if (!generator || !generator->confirmed()) return std::nullopt;
  generator->ObservePeak();
  return StatusOf(*generator);
}

TagStatus SegmentService::StatusOf(TagGenerator& generator) const {
  std::shared_ptr<const core::CodeEnds> ends;
  {
    const MutexLock lock(mutex_);
    ends = code_ends_;
  }
  std::optional<std::uint64_t> codes_end;
  if (ends != nullptr) {
    if (const auto end = ends->find(generator.tag()); end != ends->end()) codes_end = end->second;
  }
  TagStatus status = generator.Status(codes_end);
  if (status.paused && options_.paused != nullptr) status.paused_since = options_.paused->Since(status.tag);
  return status;
}

}  // namespace leaf::service
