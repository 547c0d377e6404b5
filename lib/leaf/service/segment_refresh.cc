// The refresh: the table and the witnesses are read from time to time, and each tag is told what they say.
#include <algorithm>
#include <utility>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/service/segment_service.h"

namespace leaf::service {
namespace {

// How often a witness that is away is looked for.
constexpr std::chrono::milliseconds kWitnessProbeInterval{1000};
// How long one turn of telling the witness of marks takes; then other reads have theirs.
constexpr std::chrono::milliseconds kCatchUpTurn{500};
// How often the order of the tags is looked at: a command that makes a tag strict waits for all nodes.
constexpr std::chrono::milliseconds kOrderLook{2000};
// Grants that fail one after the other, of one tag or another, have the table read no more often than this.
constexpr std::chrono::milliseconds kFailureLook{5000};
// No tag's name: what is asked for to find out whether the witness can be used at all.
constexpr std::string_view kNoTag = "\x01";

}  // namespace

void SegmentService::RunRefresh(std::uint64_t chain) {
  if (context_.stop.raised() || chain != refresh_chain_.load()) return;
  const Result<void> refreshed = Refresh();
  bool recovered = false;
  MonotonicTime next = clock_.Monotonic();
  {
    const MutexLock lock(mutex_);
    if (refreshed.ok()) {
      recovered = store_problem_.has_value();
      if (recovered) log_.Info("the store answers again");
      loaded_ = true;
      refresh_failures_ = 0;
      store_problem_.reset();
      refreshed_at_ = clock_.Wall();
      next += refresh_interval_.load();
    } else {
      if (!store_problem_ || store_problem_->message != refreshed.error().message) {
        log_.Warning("cannot read the table of tags: {}", refreshed.error().message);
      }
      store_problem_ = refreshed.error();
      const std::uint32_t doublings = std::min<std::uint32_t>(refresh_failures_++, 10);
      const auto backoff = std::min(kBackoffMin * (1 << doublings), kBackoffMax);
      next += std::min<MonotonicTime::duration>(
          backoff -
              std::chrono::milliseconds(random_.Below(static_cast<std::uint64_t>(backoff.count()) / 2 + 1)),
          refresh_interval_.load());
    }
  }
  if (recovered) {
    for (const auto& generator : directory_.All()) generator->Kick();
  }
  CatchUpWitness(next, chain);
  ScheduleRefresh(next, chain);
  if (FenceIsAway() && !probing_fence_.exchange(true)) ScheduleFenceProbe();
}

// A refresh is too much to find out whether the witness is back, and may be far away. Grants find out by
// themselves, where any are asked for.
void SegmentService::ScheduleFenceProbe() {
  timers_.PostAt(clock_.Monotonic() + kWitnessProbeInterval, [this] {
    refresher_.Post([this] {
      if (context_.stop.raised()) return;
      if (!options_.fence->SeeAll({std::string(kNoTag)})) return ScheduleFenceProbe();
      probing_fence_.store(false);
      for (const auto& generator : directory_.All()) generator->Kick();
      // What happened meanwhile is seen now.
      RunRefresh(refresh_chain_.fetch_add(1) + 1);
    });
  });
}

bool SegmentService::FenceIsAway() const {
  return options_.fence != nullptr && options_.fence->Status().away_since.has_value();
}

void SegmentService::RefreshNow() {
  // A new chain: the refresh that was due later ends, and so does one of these that has not begun.
  const std::uint64_t chain = refresh_chain_.fetch_add(1) + 1;
  refresher_.Post([this, chain] { RunRefresh(chain); });
}

// A store that is away is known now, and not by the refresh that may be due in an hour: what is asked whether
// IDs can be issued has to say so.
void SegmentService::LookAfterFailure() {
  MonotonicTime at = clock_.Monotonic();
  {
    const MutexLock lock(mutex_);
    // Otherwise a refresh is due soon anyway.
    if (!loaded_ || store_problem_ || look_is_due_) return;
    look_is_due_ = true;
    at = std::max(at, no_look_before_);
    no_look_before_ = at + kFailureLook;
  }
  timers_.PostAt(at, [this] {
    {
      const MutexLock lock(mutex_);
      look_is_due_ = false;
      if (store_problem_) return;
    }
    RefreshNow();
  });
}

void SegmentService::AdoptOrders() {
  for (const auto& generator : directory_.All()) generator->SetOrder(orders_.Of(generator->tag()));
}

void SegmentService::ScheduleOrderLook() {
  timers_.PostAt(clock_.Monotonic() + kOrderLook, [this] {
    refresher_.Post([this] {
      if (context_.stop.raised()) return;
      // What was read last counts on, and the next look is not far. A daemon at rest costs a database without
      // orders nothing: there the refresh looks, and the first grant. But without a witness, which knows what
      // is strict, a daemon that holds IDs has to look.
      if (orders_.has_table() || (options_.fence == nullptr && orders_.has_granted())) (void)orders_.Look();
      ScheduleOrderLook();
    });
  });
}

void SegmentService::Forget(const std::string& tag) {
  if (const auto generator = directory_.Find(tag)) {
    generator->Remove();
    Retire(tag, false);
  }
  // A refresh that is under way may have read the row before it went.
  RefreshNow();
}

void SegmentService::ScheduleRefresh(MonotonicTime at, std::uint64_t chain) {
  timers_.PostAt(at, [this, chain] { refresher_.Post([this, chain] { RunRefresh(chain); }); });
}

Result<void> SegmentService::Refresh() {
  const std::uint32_t pass = context_.refresh_pass.fetch_add(1) + 1;

  // The first thing a daemon does with its marks. A name that was asked for, and granted for, before this
  // counts as left behind: too much is better than too little, and the count says that it is an upper bound.
  if (!run_begun_) {
    LEAF_RETURN_IF_ERROR(marks_.BeginRun());
    run_begun_ = true;
  }
  // What was read last counts on, if it was read.
  const auto looked = orders_.Look();
  if (!looked.ok()) LEAF_RETURN_IF_ERROR(orders_.Known());
  // Marks as they stand before the query: a row below one of them went back.
  LEAF_ASSIGN_OR_RETURN(const std::vector<core::Mark> mark_list, marks_.LoadAll());
  std::unordered_map<std::string_view, const core::Mark*> marks;
  for (const core::Mark& mark : mark_list) marks.emplace(mark.tag, &mark);
  static const core::Mark kNoMark;
  const auto mark_of = [&](const std::string& tag) -> const core::Mark& {
    const auto found = marks.find(tag);
    return found == marks.end() ? kNoMark : *found->second;
  };
  const auto before = directory_.All();
  // So do witnesses, for all nodes.
  LEAF_ASSIGN_OR_RETURN(const auto witnesses, LoadWitnesses(before));
  CompareOrders(witnesses, looked.ok());
  const auto witness_of = [&](const std::string& tag) -> std::optional<std::uint64_t> {
    const auto found = witnesses.find(tag);
    return found == witnesses.end() ? std::nullopt : std::optional(found->second.end);
  };
  for (const auto& generator : before)
    generator->BeforeRefresh(mark_of(generator->tag()), witness_of(generator->tag()));

  LEAF_ASSIGN_OR_RETURN(const std::vector<core::TagRow> rows, store_.List());

  std::size_t left_out = 0;
  for (const core::TagRow& row : rows) {
    if (!ValidateTag(row.tag).ok()) continue;  // no request could name it
    if (const auto known = directory_.Find(row.tag)) {
      known->OnRow(row);
    } else if (!AddTag(row, mark_of(row.tag), witness_of(row.tag))) {
      ++left_out;
    }
  }
  if (left_out > 0) log_.Warning("{} tags are beyond segment.max_tags and are not served", left_out);

  for (const auto& generator : before) {
    // A generator that got a grant during this pass has proved that its row is there.
    if (generator->SeenSince(pass) || !generator->confirmed()) continue;
    log_.Info("tag {} was removed from the table", Quoted(generator->tag()));
    generator->Remove();
    Retire(generator->tag(), false);
  }
  NoteUnwitnessed(mark_list, witnesses);
  LookAtCodes();
  return {};
}

// They are shown, and nothing depends on them: what was read last counts on.
void SegmentService::LookAtCodes() {
  if (!options_.code_ends) return;
  auto ends = options_.code_ends();
  const std::string problem = ends.ok() ? "" : ends.error().message;
  if (problem != codes_problem_ && !problem.empty())
    log_.Info("it is not known how long the codes of tags last: {}", problem);
  codes_problem_ = problem;
  if (!ends.ok()) return;
  const MutexLock lock(mutex_);
  code_ends_ = ends->empty() ? nullptr : std::make_shared<const core::CodeEnds>(*std::move(ends));
}

Result<std::unordered_map<std::string, core::WitnessState>> SegmentService::LoadWitnesses(
    const std::vector<std::shared_ptr<TagGenerator>>& generators) {
  std::unordered_map<std::string, core::WitnessState> witnesses;
  if (options_.fence == nullptr) return witnesses;
  std::vector<std::string> tags;
  bool loaded = false;
  {
    const MutexLock lock(mutex_);
    loaded = loaded_;
  }
  if (loaded) {
    for (const auto& generator : generators) tags.push_back(generator->tag());
  } else {
    // Later a tag that is new is judged at its first grant. A node that starts wants to know at once.
    LEAF_ASSIGN_OR_RETURN(const std::vector<core::TagRow> rows, store_.List());
    for (const core::TagRow& row : rows) tags.push_back(row.tag);
  }
  // One name at least, so that it is known whether the witness can be used.
  if (tags.empty()) tags.emplace_back(kNoTag);
  auto states = options_.fence->SeeAll(tags);
  if (!states) return witnesses;
  for (std::size_t i = 0; i < tags.size(); ++i) {
    if (auto& state = (*states)[i]) witnesses.emplace(std::move(tags[i]), std::move(*state));
  }
  return witnesses;
}

void SegmentService::NoteUnwitnessed(const std::vector<core::Mark>& marks,
                                     const std::unordered_map<std::string, core::WitnessState>& witnesses) {
  unwitnessed_.clear();
  for (const core::Mark& mark : marks) {
    const auto found = witnesses.find(mark.tag);
    if (found != witnesses.end() && found->second.end < mark.end)
      unwitnessed_.push_back({mark.tag, mark.end, found->second});
  }
}

void SegmentService::CatchUpWitness(MonotonicTime until, std::uint64_t chain) {
  // What is left is found behind again by the next refresh.
  const auto ends = [&] {
    return context_.stop.raised() || clock_.Monotonic() >= until || chain != refresh_chain_.load();
  };
  for (auto& [row, seen] : std::exchange(unnoted_, {})) {
    if (ends()) return;
    if (const auto noted = options_.fence->NoteOrder(row, std::move(seen)); !noted.ok()) {
      log_.Warning("the witness does not know yet which order tag {} has: {}", Quoted(row.tag),
                   noted.error().message);
      // The others wait for nothing but this tag's record.
      if (noted.error().code != ErrorCode::kRefused && noted.error().code != ErrorCode::kPermission) break;
    }
  }
  const MonotonicTime turn_end = clock_.Monotonic() + kCatchUpTurn;
  while (!unwitnessed_.empty()) {
    if (ends()) return;
    if (clock_.Monotonic() >= turn_end)
      return refresher_.Post([this, until, chain] { CatchUpWitness(until, chain); });
    UnwitnessedMark mark = std::move(unwitnessed_.back());
    unwitnessed_.pop_back();
    if (const auto raised = options_.fence->CatchUp(mark.tag, std::move(mark.seen), mark.end); !raised.ok()) {
      log_.Warning("the witness does not know yet what this node was granted: {}", raised.error().message);
      return;
    }
  }
}

void SegmentService::CompareOrders(const std::unordered_map<std::string, core::WitnessState>& witnesses,
                                   bool are_new) {
  for (const auto& [tag, state] : witnesses) {
    if (state.strict) orders_.LearnStrict(tag, *state.strict);
  }
  unnoted_.clear();
  if (!are_new) return;
  for (core::OrderRow& row : orders_.Rows()) {
    const auto found = witnesses.find(row.tag);
    if (found != witnesses.end() && core::IsNews(row, found->second.strict))
      unnoted_.emplace_back(std::move(row), found->second);
  }
}

}  // namespace leaf::service
