// Which tags there are: names that are looked up, rows that become tags, tags that go; and what clients have
// read from the database beside that.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/failpoint.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/service/segment_service.h"

namespace leaf::service {

// Called under the lock of the name's shard. A pause, or an order, that comes at the same time either is in
// the list already, or finds the generator once that lock is free: none is missed.
std::shared_ptr<TagGenerator> SegmentService::MakeGenerator(std::string_view tag, bool confirmed,
                                                            const core::Mark& mark, std::uint64_t witness) {
  auto generator = std::make_shared<TagGenerator>(std::string(tag), context_, confirmed, mark, witness);
  if (options_.paused != nullptr && options_.paused->Contains(tag)) generator->SetPaused(true);
  generator->SetOrder(orders_.Of(tag));
  return generator;
}

Result<std::shared_ptr<TagGenerator>> SegmentService::FindOrLookUp(std::string_view tag) {
  if (auto known = directory_.Find(tag)) return known;
  if (options_.paused != nullptr && options_.paused->Contains(tag)) {
    return Error{ErrorCode::kPaused, fmt::format("tag {} is paused on this node", Quoted(tag)),
                 TagCommand("resume", tag)};
  }
  LEAF_RETURN_IF_ERROR(AdmitLookUp(tag));
  auto added = directory_.FindOrAdd(tag, [&] { return MakeGenerator(tag, false, core::Mark{}, 0); });
  if (!added) {
    return Error{ErrorCode::kLimited,
                 fmt::format("cannot serve tag {}: {} tags are held already", Quoted(tag), options_.tags_max),
                 "raise segment.max_tags"};
  }
  // Stop() may have looked at the directory just before: what it has not seen is stopped here.
  if (context_.stop.raised()) added->Stop();
  return added;
}

Result<void> SegmentService::AdmitLookUp(std::string_view tag, Asking asking) {
  if (context_.stop.raised()) return context_.stop.why();
  if (IsKnownAbsent(tag)) return UnknownTag(tag);
  // A database that is slower than they come.
  const bool is_probe = asking == Asking::kProbe;
  const std::size_t waiting_max = is_probe ? kProbesWaitingMax : kLookUpsWaitingMax;
  if (look_ups_.size() >= waiting_max) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("cannot look up tag {}: {} other unknown tags wait for the database",
                             Quoted(tag), waiting_max),
                 "retry later"};
  }
  core::TokenBucket& misses = is_probe ? probed_misses_ : misses_;
  const std::uint32_t a_second = is_probe ? kProbedMissesPerSecondMax : kMissesPerSecondMax;
  if (!misses.TryTake(clock_.Monotonic(), core::TokenBucket::Rate::PerSecond(a_second))) {
    return Error{ErrorCode::kLimited,
                 fmt::format("cannot look up tag {}: more than {} unknown tags a second{}", Quoted(tag),
                             a_second, is_probe ? ", of health checks" : ""),
                 "retry later"};
  }
  return {};
}

bool SegmentService::IsKnownAbsent(std::string_view tag) {
  const MutexLock lock(mutex_);
  const auto found = absent_until_.find(std::string(tag));
  if (found == absent_until_.end()) return false;
  if (found->second > clock_.Monotonic()) return true;
  absent_until_.erase(found);
  return false;
}

bool SegmentService::AddTag(const core::TagRow& row, const core::Mark& mark,
                            std::optional<std::uint64_t> witness) {
  bool is_new = false;
  const auto generator = FindOrAddRow(row, mark, witness.value_or(0), is_new);
  LEAF_FAILPOINT("refresh: a tag is added");
  // A request has made it meanwhile. What was granted for it since then does not count: KeepLevelLocked().
  if (generator && !is_new) generator->OnRow(row);
  return generator != nullptr;
}

std::shared_ptr<TagGenerator> SegmentService::FindOrAddRow(const core::TagRow& row, const core::Mark& mark,
                                                           std::uint64_t witness, bool& is_new) {
  auto generator = directory_.FindOrAdd(row.tag, [&] {
    is_new = true;
    auto made = MakeGenerator(row.tag, true, mark, witness);
    // Before a request finds it: what is granted later must not be held against this row.
    made->OnRow(row);
    return made;
  });
  // Stop() may have looked at the directory just before: what it has not seen is stopped here.
  if (generator && context_.stop.raised()) generator->Stop();
  return generator;
}

void SegmentService::Adopt(const core::TagRow& row, const core::Mark& mark, std::uint64_t witness) {
  while (true) {
    bool is_new = false;
    const auto generator = FindOrAddRow(row, mark, witness, is_new);
    // Where the directory is full, its first request says so.
    if (!generator) return;
    if (is_new) break;
    // Of a name that was asked for just before there may be a generator that nothing needs any more.
    if (generator->TryRetire() || !generator->NoteAdded()) {
      Retire(row.tag, false);
      continue;
    }
    // A request has found the row already, or is about to. The row may have been raised since it was read
    // for this call, and a refresh may have read it since: it is not this one that the tag is judged by.
    RefreshNow();
    break;
  }
  const MutexLock lock(mutex_);
  absent_until_.erase(row.tag);
}

void SegmentService::Retire(const std::string& tag, bool known_absent) {
  if (known_absent) {
    const MutexLock lock(mutex_);
    const MonotonicTime now = clock_.Monotonic();
    if (absent_until_.size() >= kNegativeNamesMax) {
      std::erase_if(absent_until_, [&](const auto& entry) { return entry.second <= now; });
    }
    // Full of live entries: forgetting them all costs a few more questions, which AdmitLookUp bounds.
    if (absent_until_.size() >= kNegativeNamesMax) absent_until_.clear();
    absent_until_[tag] = now + kNegativeTtl;
  }
  const MutexLock lock(totals_mutex_);
  directory_.EraseIf(tag, [this](TagGenerator& generator) LEAF_REQUIRES(totals_mutex_) {
    if (!generator.TryRetire()) return false;
    const TagTotals totals = generator.Totals();
    departed_.issued += totals.issued;
    departed_.wasted += totals.wasted;
    return true;
  });
}

void SegmentService::CheckTag(std::string_view tag, const CheckCallback& done) {
  Check(tag, Asking::kRequest, done);
}

void SegmentService::Check(std::string_view tag, Asking asking, const CheckCallback& done) {
  if (const auto generator = directory_.Find(tag); generator && generator->confirmed()) {
    const TagStatus status = generator->Status();
    if (status.paused) {
      return done(Error{ErrorCode::kPaused, fmt::format("tag {} is paused on this node", Quoted(tag)), ""});
    }
    if (status.problem && status.problem->code == ErrorCode::kFrozen) return done(*status.problem);
    return done({});
  }
  if (auto admitted = AdmitLookUp(tag, asking); !admitted.ok()) return done(admitted);
  look_ups_.Post([this, tag = std::string(tag), done] {
    const auto row = store_.Describe(tag);
    done(row.ok() ? Result<void>() : row.error());
  });
}

void SegmentService::CheckReady(std::string_view tag, const CheckCallback& done) {
  if (const auto generator = directory_.Find(tag); generator && generator->confirmed()) {
    const TagStatus status = generator->Status();
    const bool is_drained = status.reserve == 0 && status.order != core::TagOrder::kStrict;
    if (!status.paused && status.problem && is_drained) {
      if (status.problem->code != ErrorCode::kFrozen) generator->WantRefill();
      return done(*status.problem);
    }
  }
  Check(tag, Asking::kProbe, done);
}

void SegmentService::LoadMark(std::string_view tag, MarkCallback done) {
  if (auto admitted = AdmitRead(); !admitted.ok()) return done(std::move(admitted).error());
  reads_lane_.Post([this, tag = std::string(tag), done = std::move(done)] {
    auto mark = marks_.Load(tag);
    if (!mark.ok()) return done(std::move(mark).error());
    const auto generator = directory_.Find(tag);
    done(MarkReport{std::move(*mark),
                    generator && generator->confirmed() ? std::optional(generator->Status()) : std::nullopt});
  });
}

void SegmentService::ReadTable(TableCallback done) {
  if (auto admitted = AdmitRead(); !admitted.ok()) return done(std::move(admitted).error());
  reads_lane_.Post([this, done = std::move(done)] { done(store_.List()); });
}

Result<void> SegmentService::AdmitRead() {
  if (context_.stop.raised()) return context_.stop.why();
  if (reads_lane_.size() >= kReadsWaitingMax) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("{} other reads wait for the database", kReadsWaitingMax), "retry later"};
  }
  if (reads_.TryTake(clock_.Monotonic(), core::TokenBucket::Rate::PerSecond(kReadsPerSecondMax))) return {};
  return Error{ErrorCode::kLimited,
               fmt::format("more than {} reads of the database a second", kReadsPerSecondMax), "retry later"};
}

}  // namespace leaf::service
