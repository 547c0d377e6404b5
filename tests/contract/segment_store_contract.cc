#include "contract/segment_store_contract.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "leaf/base/limits.h"

namespace leaf::testing {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SegmentStoreContract);

namespace {

using core::WriteMode;

core::GrantSizer Exactly(std::uint64_t count) {
  return [count](const core::TagRow&) -> Result<core::GrantSize> { return core::GrantSize{count, count}; };
}

core::NewTag Tag(const std::string& name, std::int64_t step = 1000) {
  core::NewTag tag;
  tag.tag = name;
  tag.step = step;
  return tag;
}

}  // namespace

TEST_P(SegmentStoreContract, ReserveReturnsWhatItPassedOver) {
  world_->Put("pay", 1, 2000);
  const auto first = store().Reserve("pay", Exactly(2000));
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first->range, (IdRange{1, 2001}));
  EXPECT_EQ(first->table_step, 2000);
  EXPECT_EQ(store().Reserve("pay", Exactly(3))->range, (IdRange{2001, 2004}));
  EXPECT_EQ(store().Describe("pay")->max_id, 2004);
  EXPECT_EQ(store().Describe("pay")->step, 2000) << "the step is never written";
}

TEST_P(SegmentStoreContract, MaxIdZeroBeginsAtZero) {
  world_->Put("zero", 0, 10);
  EXPECT_EQ(store().Reserve("zero", Exactly(10))->range, (IdRange{0, 10}));
}

TEST_P(SegmentStoreContract, TheSizerSeesTheRowAndItsErrorLeavesTheRowAlone) {
  world_->Put("pay", 42, 7);
  const auto refused = store().Reserve("pay", [](const core::TagRow& row) -> Result<core::GrantSize> {
    EXPECT_EQ(row.max_id, 42);
    EXPECT_EQ(row.step, 7);
    return Error{ErrorCode::kFrozen, "no", ""};
  });
  EXPECT_EQ(refused.error().code, ErrorCode::kFrozen);
  EXPECT_EQ(store().Describe("pay")->max_id, 42);
  EXPECT_TRUE(store().Reserve("pay", Exactly(1)).ok()) << "the row is not left locked";
}

// A row that is not read first moves as it would else, or not at all.
TEST_P(SegmentStoreContract, AnUnreadRowMovesOnlyIfItFits) {
  const auto size = []() -> Result<core::GrantSize> { return core::GrantSize{5, 1}; };
  world_->Put("pay", 100, 1000);
  world_->Put("bad", 100, 0);
  world_->Put("negative", -1, 1000);
  world_->Put("end", static_cast<std::int64_t>(kMaxIdLimit - 4), 1000);
  // A server is asked whether it takes writes before it is written to unasked.
  const auto unread = [&](const std::string& tag, std::uint64_t floor,
                          const core::SegmentStore::UnreadSizer& of) {
    EXPECT_TRUE(store().Reserve("pay", Exactly(1)).ok());
    return store().ReserveUnread(tag, floor, of);
  };
  for (int attempt = 0; attempt < 100; ++attempt) {
    const auto before = static_cast<std::uint64_t>(store().Describe("pay")->max_id) + 1;
    const auto grant = unread("pay", before, size);
    ASSERT_TRUE(grant.ok()) << grant.error().message;
    const auto after = static_cast<std::uint64_t>(store().Describe("pay")->max_id);
    EXPECT_EQ(after, before + (*grant ? 5 : 0));
    if (!*grant) continue;
    EXPECT_EQ((*grant)->range, (IdRange{before, before + 5}));
    break;
  }
  const auto stays = [&](const std::string& tag, std::uint64_t floor) {
    const auto before = store().Describe(tag)->max_id + (tag == "pay" ? 1 : 0);
    const auto grant = unread(tag, floor, size);
    ASSERT_TRUE(grant.ok()) << grant.error().message;
    EXPECT_FALSE(grant->has_value()) << tag;
    EXPECT_EQ(store().Describe(tag)->max_id, before) << tag;
  };
  stays("pay", static_cast<std::uint64_t>(store().Describe("pay")->max_id) + 2);
  stays("bad", 0);
  stays("negative", 0);
  stays("end", 0);
  EXPECT_FALSE(unread("none", 0, size)->has_value());
  const auto before = store().Describe("pay")->max_id;
  const auto refused = unread("pay", 0, []() -> Result<core::GrantSize> {
    return Error{ErrorCode::kExhausted, "no", ""};
  });
  if (!refused.ok()) {
    EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  }
  EXPECT_EQ(store().Describe("pay")->max_id, before + 1);
}

TEST_P(SegmentStoreContract, AnUnknownTagIsNotFound) {
  EXPECT_EQ(store().Reserve("none", Exactly(1)).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(store().Describe("none").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(admin().Update("none", {}, WriteMode::kCommit).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(admin().Advance("none", 5, WriteMode::kCommit).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(admin().Remove("none", WriteMode::kCommit).error().code, ErrorCode::kNotFound);
}

TEST_P(SegmentStoreContract, TagsAreMatchedByteForByte) {
  world_->Put("pay", 1, 10);
  for (const char* other : {"PAY", "Pay", "pay ", " pay", "pa", "páy", "%", "p_y", "pay\\", "pay'", "订单"}) {
    EXPECT_EQ(store().Reserve(other, Exactly(1)).error().code, ErrorCode::kNotFound) << other;
    EXPECT_EQ(store().Describe(other).error().code, ErrorCode::kNotFound) << other;
  }
  EXPECT_EQ(store().Describe("pay")->max_id, 1);
}

TEST_P(SegmentStoreContract, AnyTagCanBeAddedAndUsed) {
  std::vector<std::string> tags{"v1.0", "a b",        "it's",  "back\\slash",        "quote\"",
                                "100%", "semi;colon", "-dash", std::string(128, 'x')};
  if (world_->tells_all_tags_apart()) tags.insert(tags.end(), {"订单", "é", "e", "E", "\xF0\x9F\x8D\x83"});
  for (const std::string& tag : tags) {
    const auto added = admin().Add(Tag(tag), WriteMode::kCommit);
    ASSERT_TRUE(added.ok()) << tag << ": " << added.error().message;
    EXPECT_EQ(added->tag, tag);
    EXPECT_EQ(store().Reserve(tag, Exactly(5))->range, (IdRange{1, 6})) << tag;
  }
  const auto rows = store().List();
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->size(), tags.size());
  for (const std::string& tag : tags) {
    EXPECT_TRUE(std::any_of(rows->begin(), rows->end(), [&](const auto& row) {
      return row.tag == tag && row.max_id == 6;
    })) << tag;
  }
}

TEST_P(SegmentStoreContract, ATagTheColumnCannotExpressIsRefusedAndNothingElse) {
  const auto added = admin().Add(Tag("订单"), WriteMode::kCommit);
  if (added.ok()) {
    EXPECT_EQ(store().Describe("订单")->tag, "订单");
  } else {
    EXPECT_EQ(added.error().code, ErrorCode::kConfig);
    EXPECT_TRUE(store().List()->empty());
  }
}

TEST_P(SegmentStoreContract, AnEmptyTableIsAnEmptyList) {
  const auto rows = store().List();
  ASSERT_TRUE(rows.ok());
  EXPECT_TRUE(rows->empty());
}

TEST_P(SegmentStoreContract, BadRowsAreRefusedAndDoNotMove) {
  for (const std::int64_t step : {std::int64_t{0}, std::int64_t{-5}, std::int64_t{1} << 30}) {
    const std::string tag = "step" + std::to_string(step);
    world_->Put(tag, 1, step);
    EXPECT_EQ(store().Reserve(tag, Exactly(1)).error().code, ErrorCode::kRefused) << step;
    EXPECT_EQ(store().Describe(tag)->max_id, 1);
  }
  world_->Put("negative", -1, 10);
  EXPECT_EQ(store().Reserve("negative", Exactly(1)).error().code, ErrorCode::kRefused);
  EXPECT_EQ(store().Describe("negative")->max_id, -1);
}

TEST_P(SegmentStoreContract, NearTheEndAGrantIsCutAndNothingWraps) {
  const auto limit = static_cast<std::int64_t>(kMaxIdLimit);
  world_->Put("end", limit - 5, 10);
  EXPECT_EQ(store().Reserve("end", Exactly(6)).error().code, ErrorCode::kOverflow);
  const auto cut = store().Reserve("end", [](const core::TagRow&) -> Result<core::GrantSize> {
    return core::GrantSize{10, 2};
  });
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->range, (IdRange{kMaxIdLimit - 5, kMaxIdLimit}));
  EXPECT_EQ(store().Reserve("end", Exactly(1)).error().code, ErrorCode::kOverflow);
  EXPECT_EQ(store().Describe("end")->max_id, limit);
}

TEST_P(SegmentStoreContract, ConcurrentReservesGetDisjointRanges) {
  world_->Put("pay", 1, 10);
  constexpr int kThreads = 8;
  constexpr int kRounds = 25;
  std::mutex mutex;
  std::vector<IdRange> ranges;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < kRounds; ++round) {
        const auto size = Exactly(static_cast<std::uint64_t>(1 + (i + round) % 5));
        auto grant = store().Reserve("pay", size);
        // A turn may not come in time on a slow disk. Then nothing has happened.
        for (int again = 0; again < 100 && !grant.ok() && grant.error().code == ErrorCode::kUnavailable;
             ++again)
          grant = store().Reserve("pay", size);
        ASSERT_TRUE(grant.ok()) << grant.error().message;
        const std::lock_guard lock(mutex);
        ranges.push_back(grant->range);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::sort(ranges.begin(), ranges.end(),
            [](const IdRange& a, const IdRange& b) { return a.begin < b.begin; });
  ASSERT_EQ(ranges.size(), static_cast<std::size_t>(kThreads * kRounds));
  EXPECT_EQ(ranges.front().begin, 1U);
  for (std::size_t i = 1; i < ranges.size(); ++i) EXPECT_EQ(ranges[i].begin, ranges[i - 1].end);
  EXPECT_EQ(store().Describe("pay")->max_id, static_cast<std::int64_t>(ranges.back().end));
}

TEST_P(SegmentStoreContract, AddRefusesWhatExistsAndKeepsIt) {
  core::NewTag tag = Tag("pay", 500);
  tag.start = 77;
  tag.description = "payments";
  const auto added = admin().Add(tag, WriteMode::kCommit);
  ASSERT_TRUE(added.ok()) << added.error().message;
  EXPECT_EQ(added->max_id, 77);
  EXPECT_EQ(added->step, 500);
  EXPECT_EQ(added->description, "payments");
  EXPECT_EQ(admin().Add(Tag("pay"), WriteMode::kCommit).error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(store().Describe("pay")->step, 500);
  EXPECT_EQ(store().Reserve("pay", Exactly(1))->range.begin, 77U);
}

TEST_P(SegmentStoreContract, UpdateChangesOnlyWhatItIsTold) {
  core::NewTag tag = Tag("pay", 500);
  tag.description = "old";
  ASSERT_TRUE(admin().Add(tag, WriteMode::kCommit).ok());
  core::TagChange step;
  step.step = 600;
  EXPECT_EQ(admin().Update("pay", step, WriteMode::kCommit)->step, 600);
  EXPECT_EQ(store().Describe("pay")->description, "old");
  core::TagChange description;
  description.description = "new 'and' improved";
  EXPECT_EQ(admin().Update("pay", description, WriteMode::kCommit)->description, "new 'and' improved");
  EXPECT_EQ(store().Describe("pay")->step, 600);
  EXPECT_EQ(admin().Update("pay", description, WriteMode::kCommit)->step, 600)
      << "the same again is no error";
}

TEST_P(SegmentStoreContract, AdvanceOnlyGoesUp) {
  ASSERT_TRUE(admin().Add(Tag("pay"), WriteMode::kCommit).ok());
  EXPECT_EQ(admin().Advance("pay", 100, WriteMode::kCommit)->max_id, 100);
  EXPECT_EQ(admin().Advance("pay", 100, WriteMode::kCommit)->max_id, 100);
  EXPECT_EQ(admin().Advance("pay", 99, WriteMode::kCommit).error().code, ErrorCode::kRefused);
  EXPECT_EQ(store().Describe("pay")->max_id, 100);
  EXPECT_EQ(admin().Advance("pay", kMaxIdLimit, WriteMode::kCommit)->max_id,
            static_cast<std::int64_t>(kMaxIdLimit));
}

TEST_P(SegmentStoreContract, ARemovedTagGoesOnAboveItsMarkWhenAddedAgain) {
  ASSERT_TRUE(admin().Add(Tag("pay"), WriteMode::kCommit).ok());
  ASSERT_TRUE(admin().Advance("pay", 5000, WriteMode::kCommit).ok());
  const auto removal = admin().Remove("pay", WriteMode::kCommit);
  ASSERT_TRUE(removal.ok()) << removal.error().message;
  EXPECT_EQ(removal->row.max_id, 5000);
  EXPECT_TRUE(removal->mark_remembered);
  EXPECT_EQ(store().Describe("pay").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(*admin().RemovedMark("pay"), 5000U);
  EXPECT_EQ(*admin().RemovedMark("PAY"), 0U);
  const auto marks = admin().RemovedMarks();
  ASSERT_TRUE(marks.ok()) << marks.error().message;
  EXPECT_EQ(*marks, (std::vector<std::pair<std::string, std::uint64_t>>{{"pay", 5000}}));
  core::NewTag below = Tag("pay");
  below.start = 4999;
  const auto refused = admin().Add(below, WriteMode::kCommit);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_NE(refused.error().message.find("5000"), std::string::npos);
  EXPECT_EQ(admin().Add(Tag("pay"), WriteMode::kCommit)->max_id, 5000);
  // Removed again further down (set back by hand meanwhile): the mark stays where it was.
  world_->Put("pay", 10, 10);
  ASSERT_TRUE(admin().Remove("pay", WriteMode::kCommit).ok());
  EXPECT_EQ(*admin().RemovedMark("pay"), 5000U);
}

TEST_P(SegmentStoreContract, AMarkTheCallerKnowsCountsToo) {
  core::NewTag tag = Tag("pay");
  tag.mark = 900;
  EXPECT_EQ(admin().Add(tag, WriteMode::kDryRun)->max_id, 900);
  tag.start = 899;
  EXPECT_EQ(admin().Add(tag, WriteMode::kCommit).error().code, ErrorCode::kRefused);
}

// The table has one mark and the caller another: IDs below either of them may have been issued.
TEST_P(SegmentStoreContract, OfTwoMarksTheHigherCounts) {
  world_->Put("pay", 5000, 10);
  ASSERT_TRUE(admin().Remove("pay", WriteMode::kCommit).ok());
  for (const auto& [known, highest] : {std::pair{900, 5000}, std::pair{7000, 7000}}) {
    core::NewTag tag = Tag("pay");
    tag.mark = static_cast<std::uint64_t>(known);
    EXPECT_EQ(admin().Add(tag, WriteMode::kDryRun)->max_id, highest) << known;
    tag.start = static_cast<std::uint64_t>(highest);
    EXPECT_EQ(admin().Add(tag, WriteMode::kDryRun)->max_id, highest) << known;
    --*tag.start;
    const auto refused = admin().Add(tag, WriteMode::kDryRun);
    ASSERT_FALSE(refused.ok()) << known;
    EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  }
}

TEST_P(SegmentStoreContract, ADryRunSaysTheSameAndChangesNothing) {
  EXPECT_EQ(admin().Add(Tag("new"), WriteMode::kDryRun)->max_id, 1);
  EXPECT_EQ(store().Describe("new").error().code, ErrorCode::kNotFound);
  ASSERT_TRUE(admin().Add(Tag("pay", 10), WriteMode::kCommit).ok());
  core::TagChange change;
  change.step = 20;
  EXPECT_EQ(admin().Update("pay", change, WriteMode::kDryRun)->step, 20);
  EXPECT_EQ(admin().Advance("pay", 50, WriteMode::kDryRun)->max_id, 50);
  ASSERT_TRUE(admin().Remove("pay", WriteMode::kDryRun).ok());
  const auto row = store().Describe("pay");
  ASSERT_TRUE(row.ok());
  EXPECT_EQ(row->step, 10);
  EXPECT_EQ(row->max_id, 1);
  EXPECT_EQ(*admin().RemovedMark("pay"), 0U);
  EXPECT_EQ(admin().Advance("pay", 0, WriteMode::kDryRun).error().code, ErrorCode::kRefused);
}

}  // namespace leaf::testing
