// Cutting a tag off: the file, the list, and what requests see.
#include "leaf/service/paused_tags.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "leaf/sys/paused_tags_file.h"
#include "support/fakes.h"
#include "support/snowflake_fakes.h"
#include "unit/service/segment_service_fixture.h"

namespace leaf::service {
namespace {

using std::chrono::milliseconds;
using Strings = std::vector<std::string>;
using core::PausedTag;
using Tags = std::vector<PausedTag>;

// Paused one after the other.
Tags PausedTagsOf(const Strings& names) {
  Tags tags;
  for (const std::string& name : names)
    tags.push_back({name, WallTimeOf(1'795'000'000'000 + static_cast<std::int64_t>(tags.size()))});
  return tags;
}

TEST(PausedTagsFile, WhatIsStoredIsLoaded) {
  testing::CrashingDisk disk;
  sys::PausedTagsFile file("/state", disk);
  EXPECT_TRUE(file.Load()->empty());
  for (const Strings& tags : {Strings{"pay"}, Strings{"/1 tags", "a b", "订单", "x/y"}, Strings{}}) {
    ASSERT_TRUE(file.Store(PausedTagsOf(tags)).ok());
    EXPECT_EQ(*file.Load(), PausedTagsOf(tags));
  }
  // Without a time.
  ASSERT_TRUE(file.Store({{"pay", std::nullopt}}).ok());
  EXPECT_EQ(*file.Load(), (Tags{{"pay", std::nullopt}}));
}

TEST(PausedTagsFile, ReadsTheFirstVersionWhichHadNoTimes) {
  testing::CrashingDisk disk;
  disk.Put("/state/paused-tags", "leafctl-paused-tags 1\n//0 tags\na b\n/2 tags\n");
  EXPECT_EQ(*sys::PausedTagsFile("/state", disk).Load(),
            (Tags{{"/0 tags", std::nullopt}, {"a b", std::nullopt}}));
}

TEST(PausedTagsFile, RefusesWhatItDidNotWrite) {
  const std::string good = "leafctl-paused-tags 2\n7 pay\n0 order\n/2 tags\n";
  for (const std::string& bad :
       {std::string(), std::string("pay\n"), std::string("leafctl-paused-tags 3\n/0 tags\n"), good + "x",
        good + "\n", std::string("leafctl-paused-tags 1\npay\n/2 tags\n"),
        std::string("leafctl-paused-tags 1\n\n/1 tags\n"),
        std::string("leafctl-paused-tags 1\n/0 tags\n/1 tags\n"),
        std::string("leafctl-paused-tags 1\n\xFF\n/1 tags\n"),
        std::string("leafctl-paused-tags 2\n7 pay\n/2 tags\n"),
        std::string("leafctl-paused-tags 2\npay\n/1 tags\n"),
        std::string("leafctl-paused-tags 2\n-7 pay\n/1 tags\n"),
        std::string("leafctl-paused-tags 2\n07 pay\n/1 tags\n"),
        std::string("leafctl-paused-tags 2\n999999999999999 pay\n/1 tags\n"),
        std::string("leafctl-paused-tags 2\n7 \n/1 tags\n")}) {
    testing::CrashingDisk disk;
    disk.Put("/state/paused-tags", bad);
    const auto loaded = sys::PausedTagsFile("/state", disk).Load();
    ASSERT_FALSE(loaded.ok()) << bad;
    EXPECT_EQ(loaded.error().code, ErrorCode::kRefused);
    EXPECT_FALSE(loaded.error().hint.empty());
  }
  // Any beginning of a good one, as a power cut might leave it, is no good one; whatever the tags are called.
  for (const Strings& tags :
       {Strings{"pay", "order"}, Strings{"/0 tags"}, Strings{"pay", "/1 tags", "0 /2 tags"}}) {
    testing::CrashingDisk disk;
    sys::PausedTagsFile file("/state", disk);
    ASSERT_TRUE(file.Store(PausedTagsOf(tags)).ok());
    const std::string stored = *disk.Content("/state/paused-tags");
    for (std::size_t size = 0; size < stored.size(); ++size) {
      disk.Put("/state/paused-tags", stored.substr(0, size));
      EXPECT_FALSE(file.Load().ok()) << size << " of " << stored;
    }
  }
}

TEST(PausedTagsFile, ACrashAtAnyCallLeavesTheOldListOrTheNew) {
  testing::FakeRandom random;
  const Tags before = PausedTagsOf({"pay"});
  const Tags after = PausedTagsOf({"order", "pay"});
  int olds = 0;
  int news = 0;
  for (const bool power_cut : {false, true}) {
    for (std::size_t call = 0;; ++call) {
      testing::CrashingDisk disk;
      sys::PausedTagsFile file("/state", disk);
      ASSERT_TRUE(file.Store(before).ok());
      disk.CrashAt(call, call % 2 == 0);
      const bool stored = file.Store(after).ok();
      const bool crashed = disk.dead();
      power_cut ? disk.LosePower(random) : disk.Restart();
      const auto found = file.Load();
      ASSERT_TRUE(found.ok()) << found.error().message;
      EXPECT_TRUE(*found == before || *found == after);
      // A list that was acknowledged is there.
      if (stored) {
        EXPECT_EQ(*found, after);
      }
      (*found == before ? olds : news) += 1;
      if (!crashed) break;
    }
  }
  EXPECT_GT(olds, 0);
  EXPECT_GT(news, 0);
}

TEST(PausedTags, ADiskThatFailsChangesNothing) {
  testing::CrashingDisk disk;
  sys::PausedTagsFile file("/state", disk);
  PausedTags paused(file);
  ASSERT_TRUE(paused.Load().ok());
  EXPECT_TRUE(paused.empty());
  int applied = 0;
  std::int64_t now = 0;
  const auto set = [&](const char* tag, bool on) {
    return paused.Set(tag, on, WallTimeOf(++now), [&] { ++applied; });
  };
  EXPECT_EQ(*set("pay", true), true);
  EXPECT_EQ(*set("pay", true), false);
  EXPECT_EQ(applied, 2);
  disk.FailWrites(ENOSPC);
  EXPECT_EQ(set("order", true).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(set("pay", false).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(applied, 2);
  EXPECT_TRUE(paused.Contains("pay"));
  EXPECT_FALSE(paused.Contains("order"));
  EXPECT_EQ(paused.Since("pay"), WallTimeOf(1)) << "pausing it again changes nothing";
  disk.FailWrites(0);
  EXPECT_EQ(*set("pay", false), true);
  EXPECT_EQ(*set("pay", false), false);
  EXPECT_TRUE(paused.All().empty());
  PausedTags next(file);
  ASSERT_TRUE(next.Load().ok());
  EXPECT_TRUE(next.empty());
}

TEST(PausedTags, ALoadForgetsWhatTheFileHasNoMore) {
  testing::CrashingDisk disk;
  sys::PausedTagsFile file("/state", disk);
  PausedTags paused(file);
  ASSERT_TRUE(file.Store(PausedTagsOf({"order", "pay"})).ok());
  ASSERT_TRUE(paused.Load().ok());
  ASSERT_TRUE(file.Store(PausedTagsOf({"pay"})).ok());
  ASSERT_TRUE(paused.Load().ok());
  EXPECT_EQ(paused.All(), PausedTagsOf({"pay"}));
  EXPECT_FALSE(paused.Contains("order"));
}

// The new list may be on the disk although storing it failed.
TEST(PausedTags, WhatIsToldAfterADiskErrorHoldsInTheNextProcess) {
  for (const bool to : {true, false}) {
    testing::CrashingDisk disk;
    sys::PausedTagsFile file("/state", disk);
    PausedTags paused(file);
    const auto set = [&](bool on) { return paused.Set("pay", on, WallTimeOf(1), [] {}); };
    if (to) {
      ASSERT_TRUE(set(true).ok());
    }
    // The file is in its place; that its folder is on the disk is not known.
    int syncs = 0;
    disk.DuringSync([&] { disk.FailSyncs(++syncs == 2 ? EIO : 0); });
    ASSERT_EQ(set(!to).error().code, ErrorCode::kUnavailable);
    ASSERT_EQ(sys::PausedTagsFile("/state", disk).Load()->empty(), to) << "the error came too early";
    disk.DuringSync(nullptr);
    disk.FailSyncs(0);
    EXPECT_EQ(paused.Contains("pay"), to);

    EXPECT_EQ(*set(to), false) << "that is how it was";
    PausedTags next(file);
    ASSERT_TRUE(next.Load().ok());
    EXPECT_EQ(next.Contains("pay"), to);
  }
}

// The process before may have ended before its list was durable.
TEST(PausedTags, WhatANextProcessIsToldOutlivesAPowerCut) {
  testing::FakeRandom random;
  int told = 0;
  for (int round = 0; round < 20; ++round) {
    const bool on = round % 2 == 0;
    for (std::size_t call = 0;; ++call) {
      testing::CrashingDisk disk;
      sys::PausedTagsFile file("/state", disk);
      const auto set = [&](PausedTags& paused, bool to) {
        return paused.Set("pay", to, WallTimeOf(1), [] {});
      };
      PausedTags first(file);
      ASSERT_TRUE(set(first, !on).ok());
      disk.CrashAt(call, round % 4 < 2);
      (void)set(first, on);
      const bool crashed = disk.dead();
      disk.Restart();
      PausedTags next(file);
      ASSERT_TRUE(next.Load().ok());
      if (next.Contains("pay") == on) {
        EXPECT_EQ(*set(next, on), false) << "that is how it is already";
        disk.LosePower(random);
        PausedTags last(file);
        ASSERT_TRUE(last.Load().ok());
        EXPECT_EQ(last.Contains("pay"), on) << "after a crash at call " << call;
        ++told;
      }
      if (!crashed) break;
    }
  }
  EXPECT_GT(told, 20) << "none was told what a process that crashed had begun";
}

class PausedServiceTest : public SegmentServiceTest {
 protected:
  PausedServiceTest() {
    options_.paused = &paused_;
    table_.Put("pay", 1, 100);
    table_.Put("order", 1, 100);
  }
  testing::CrashingDisk disk_;
  sys::PausedTagsFile file_{"/state", disk_};
  PausedTags paused_{file_};
};

TEST_F(PausedServiceTest, APausedTagGivesNothingAndGoesOnWhereItWas) {
  StartService();
  Run();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(*service_->SetPaused("pay", true), true);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Get("pay")->code(), ErrorCode::kPaused);
  EXPECT_EQ(StatusOf("pay").state, "paused");
  EXPECT_EQ(StatusOf("pay").reserve, 99U);
  EXPECT_EQ(Get("order")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(*service_->SetPaused("pay", false), true);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{2});
  EXPECT_EQ(StatusOf("pay").state, "active");
}

// Its requests were all that kept the name: nothing is left of it that a later one could meet.
TEST_F(PausedServiceTest, AnUnknownNameThatIsPausedInAnOutageCanBeAddedLater) {
  StartService();
  Run();
  store_.SetDown(true);
  const auto waiting = Ask("late");
  Run();
  EXPECT_FALSE(waiting->done());
  EXPECT_EQ(*service_->SetPaused("late", true), true);
  ASSERT_TRUE(waiting->done());
  EXPECT_EQ(waiting->code(), ErrorCode::kPaused);
  EXPECT_EQ(service_->Status().tags, 2U);
  Pass(milliseconds{5000});
  store_.SetDown(false);
  table_.Put("late", 1, 100);
  service_->Adopt(table_.Describe("late").value(), core::Mark{}, 0);
  EXPECT_EQ(Get("late")->code(), ErrorCode::kPaused);
  EXPECT_EQ(*service_->SetPaused("late", false), true);
  EXPECT_EQ(Get("late")->ids(), std::vector<std::uint64_t>{1});
}

TEST_F(PausedServiceTest, AParkedRequestIsToldAtOnce) {
  StartService();
  Run();
  const auto waiting = Ask("pay", 50);
  EXPECT_FALSE(waiting->done());
  EXPECT_EQ(*service_->SetPaused("pay", true), true);
  ASSERT_TRUE(waiting->done());
  EXPECT_EQ(waiting->code(), ErrorCode::kPaused);
  // The grant that was under way for it is kept for later.
  Run();
  EXPECT_EQ(*service_->SetPaused("pay", false), true);
  EXPECT_EQ(Get("pay", 2)->ids(), (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(PausedServiceTest, ANameThatIsNotKnownYetAndADatabaseThatIsAwayMakeNoDifference) {
  ASSERT_TRUE(service_ == std::nullopt);
  StartService();  // the table is not read yet
  EXPECT_EQ(*service_->SetPaused("pay", true), true);
  EXPECT_EQ(*service_->SetPaused("new", true), true);
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kPaused);
  Run();
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kPaused);
  EXPECT_EQ(Get("new")->code(), ErrorCode::kPaused);
  EXPECT_EQ(*service_->SetPaused("new", false), true);
  EXPECT_EQ(Get("new")->code(), ErrorCode::kNotFound);
  // Added to the table later, while it is paused.
  EXPECT_EQ(*service_->SetPaused("late", true), true);
  table_.Put("late", 1, 100);
  EXPECT_EQ(Get("late")->code(), ErrorCode::kPaused);
  EXPECT_EQ(*service_->SetPaused("late", false), true);
  Pass(milliseconds{1100});
  EXPECT_EQ(Get("late")->ids(), std::vector<std::uint64_t>{1});
}

TEST_F(PausedServiceTest, ItIsRememberedByTheNextProcess) {
  ASSERT_TRUE(file_.Store({{"pay", WallTimeOf(12'345)}}).ok());
  ASSERT_TRUE(paused_.Load().ok());
  StartService();
  Run();
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kPaused);
  EXPECT_EQ(StatusOf("pay").state, "paused");
  EXPECT_EQ(StatusOf("pay").paused_since, WallTimeOf(12'345));
  EXPECT_EQ(Get("order")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(StatusOf("order").paused_since, std::nullopt);
}

// Pauses that come while a tag is first seen, from other threads: once SetPaused has returned, nothing more.
TEST(PausedThreads, NothingIsGivenAfterThePauseWasAcknowledged) {
  testing::FakeClock clock;
  testing::FakeRandom random;
  testing::ManualExecutor idle(clock);
  testing::RecordingLogger log;
  testing::MemorySegmentStore table;
  testing::MemoryMarkStore marks(clock);
  testing::CrashingDisk disk;
  sys::PausedTagsFile file("/state", disk);
  PausedTags paused(file);
  SegmentOptions options;
  options.paused = &paused;
  SegmentService service(options, table, marks, clock, random, SegmentExecutors{idle, idle, idle, idle}, log);
  std::mt19937 shuffle(3);
  for (int round = 0; round < 200; ++round) {
    const std::string tag = "t" + std::to_string(round);
    std::optional<ErrorCode> after;
    std::thread asker([&] {
      // First sight: makes the generator while the other thread pauses the tag.
      service.Next(tag, 1, {std::chrono::seconds{1}, milliseconds{10}}, [](const Result<IdSpans>&) {});
    });
    ASSERT_TRUE(service.SetPaused(tag, true).ok());
    service.Next(tag, 1, {std::chrono::seconds{1}, milliseconds{10}},
                 [&](const Result<IdSpans>& result) { after = result.error().code; });
    asker.join();
    ASSERT_TRUE(after.has_value()) << "it waits for a grant in round " << round;
    ASSERT_EQ(*after, ErrorCode::kPaused);
    IdSpans spans;
    ASSERT_FALSE(service.TryNext(tag, 1, spans));
    ASSERT_TRUE(service.SetPaused(tag, false).ok());
  }
  service.Stop();
}

}  // namespace
}  // namespace leaf::service
