#include "leaf/service/segment_service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "leaf/service/granter.h"
#include "leaf/service/id_service.h"
#include "leaf/service/read_mostly_mutex.h"
#include "leaf/sql/mark_store.h"
#include "leaf/sys/system_clock.h"
#include "leaf/sys/thread_pool.h"
#include "support/fakes.h"
#include "support/temp_dir.h"
#include "unit/service/segment_service_fixture.h"

namespace leaf::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using StoreFault = testing::FaultySegmentStore::Fault;

TEST_F(SegmentServiceTest, ServesWhatJavaLeafWouldFromAFreshTable) {
  table_.Put("pay", 1, 2000);
  StartService();
  Run();
  for (std::uint64_t expected = 1; expected <= 2500; ++expected) {
    EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{expected});
  }
  EXPECT_EQ(table_.MaxId("pay"), 8001);  // grants of 2000, 2000 and, prefetched, 4000
}

TEST_F(SegmentServiceTest, PrefetchesOnThe202ndRequestAsLeafDoes) {
  table_.Put("pay", 1, 2000);
  StartService();
  Run();
  for (int i = 0; i < 201; ++i) Get("pay");
  EXPECT_EQ(store_.reserves(), 1);
  Get("pay");
  EXPECT_EQ(store_.reserves(), 2);
  EXPECT_EQ(StatusOf("pay").reserve, 2000U - 202U + 2000U);
}

TEST_F(SegmentServiceTest, ContiguousBatchesPrefetchAsOthersDo) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  ASSERT_TRUE(Get("pay", {10, true})->result->ok());
  const int before = store_.reserves();
  IdSpans spans;
  while (StatusOf("pay").reserve > 10) ASSERT_TRUE(service_->TryNextContiguous("pay", 10, spans));
  Run();
  EXPECT_GT(store_.reserves(), before);
  EXPECT_GT(StatusOf("pay").reserve, 10U);
}

TEST_F(SegmentServiceTest, ATagOfStepOneGetsOneIdAtATime) {
  table_.Put("pay", 1, 1);
  StartService();
  Run();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(StatusOf("pay").step, 1U);
  EXPECT_EQ(StatusOf("pay").table_step, 1);
}

TEST_F(SegmentServiceTest, ATagThatIssuedNothingHasWastedNothing) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  EXPECT_EQ(StatusOf("pay").state, "idle");
  EXPECT_EQ(StatusOf("pay").reserve, 0U);
  EXPECT_EQ(StatusOf("pay").wasted, 0U);
  // Of a name that is no tag, or is not known to be one yet, there is nothing to tell.
  EXPECT_EQ(service_->StatusOf("mail"), std::nullopt);
  Ask("mail");
  EXPECT_EQ(service_->StatusOf("mail"), std::nullopt);
}

// The schedule: a refresh succeeds, the store goes away, and all reserves are used up before the next
// refresh.
TEST_F(SegmentServiceTest, ANodeThatCanIssueNothingSaysSoBeforeTheNextRefresh) {
  options_.refresh_interval = std::chrono::hours{1};
  table_.Put("pay", 1, 1);
  StartService();
  Run();
  ASSERT_TRUE(Get("pay")->result->ok());
  ASSERT_TRUE(service_->CanIssue().ok());
  store_.SetDown(true);
  for (int i = 0; i < 50; ++i) {
    Ask("pay");
    Run();
  }
  Pass(milliseconds{100});
  ASSERT_EQ(StatusOf("pay").reserve, 0U);
  const auto can = service_->CanIssue();
  ASSERT_FALSE(can.ok());
  EXPECT_EQ(can.error().code, ErrorCode::kUnavailable);
  store_.SetDown(false);
  Pass(seconds{5});
  EXPECT_TRUE(service_->CanIssue().ok());
  EXPECT_TRUE(Get("pay")->result->ok());
}

// The schedule: a grant fails for a reason of its own, and the store is looked at, and is well. Then it goes
// away, before the tag has tried again.
TEST_F(SegmentServiceTest, AStoreThatGoesAwayAfterAnotherFailureIsNoticed) {
  options_.refresh_interval = std::chrono::hours{1};
  table_.Put("pay", 1, 1);
  StartService();
  Run();
  store_.FailReserves(testing::FaultySegmentStore::Fault::kUnavailable, 2);
  Ask("pay");
  Run();
  ASSERT_GE(StatusOf("pay").failures, 1U);
  ASSERT_TRUE(service_->CanIssue().ok());
  store_.SetDown(true);
  for (int i = 0; i < 200; ++i) {
    Ask("pay");
    Pass(milliseconds{50});
  }
  EXPECT_FALSE(service_->CanIssue().ok());
}

// One tag's row that is locked now and then does not have the table read all the time.
TEST_F(SegmentServiceTest, GrantsThatFailHaveTheTableReadNowAndThen) {
  options_.refresh_interval = std::chrono::hours{1};
  table_.Put("pay", 1, 1);
  StartService();
  Run();
  int reads = 0;
  store_.before_list_reply = [&] { ++reads; };
  for (int i = 0; i < 20; ++i) {
    store_.FailReserves(testing::FaultySegmentStore::Fault::kUnavailable, 1);
    for (int ask = 0; ask < 5; ++ask) Ask("pay");
    Pass(milliseconds{500});
  }
  EXPECT_GE(reads, 1);
  EXPECT_LE(reads, 3);
}

TEST_F(SegmentServiceTest, ATagWhoseGrantsFailSaysSinceWhen) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  store_.SetDown(true);
  const WallTime since = clock_.Wall();
  Ask("pay");
  Run();
  EXPECT_EQ(StatusOf("pay").problem_since, since);
  Pass(milliseconds{500});
  Ask("pay");
  Pass(milliseconds{100});
  EXPECT_GT(StatusOf("pay").failures, 1U);
  EXPECT_EQ(StatusOf("pay").problem_since, since) << "the first failure, not the last";
}

TEST_F(SegmentServiceTest, ATagThatThisProcessRemovesIsGoneAtOnce) {
  table_.Put("pay", 1, 2000);
  StartService();
  Run();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  table_.Erase("pay");
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{2});  // from the reserve
  service_->Forget("pay");
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kNotFound);
  service_->Forget("nokey");
  // A refresh that was under way brings nothing back for long.
  EXPECT_EQ(service_->Status().tags, 0U);
  table_.Put("pay", 5000, 2000);
  service_->Adopt(table_.Describe("pay").value(), marks_.Load("pay").value(), 0);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{5000});
}

// A command adds a tag, a client takes from it, and a refresh looks before the command has told the daemon.
TEST_F(SegmentServiceTest, ARowOlderThanWhatWasGrantedSinceFreezesNothing) {
  StartService();
  Run();
  table_.Put("pay", 1, 2000);
  const core::TagRow row = table_.Describe("pay").value();
  const core::Mark mark = marks_.Load("pay").value();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  service_->RefreshNow();
  Run();
  service_->Adopt(row, mark, 0);
  EXPECT_EQ(StatusOf("pay").state, "active");
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{2});
  EXPECT_EQ(log_.Count(LogLevel::kError), 0U);
}

TEST_F(SegmentServiceTest, ATagThatARefreshFindsAfterTheEndGivesNothing) {
  StartService();
  Run();
  table_.Put("new", 1, 2000);
  store_.before_list_reply = [&] { service_->Halt({ErrorCode::kNotOwner, "the directory is lost", ""}); };
  service_->RefreshNow();
  Run();
  EXPECT_EQ(Get("new")->code(), ErrorCode::kNotOwner);
  EXPECT_EQ(table_.MaxId("new"), 1);
}

TEST_F(SegmentServiceTest, ATagThatIsDrainedAndGetsNoGrantIsNotReadyUntilItDoes) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  const auto check = [&] {
    std::optional<Result<void>> checked;
    service_->CheckReady("pay", [&](Result<void> result) { checked = std::move(result); });
    return *checked;
  };
  EXPECT_TRUE(check().ok()) << "nothing was asked for yet";
  store_.SetDown(true);
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kExhausted);
  const auto refused = check();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  store_.SetDown(false);
  // No request comes, since a balancer has heard that.
  EXPECT_EQ(StatusOf("pay").reserve, 0U);
  Pass(milliseconds{5000});
  EXPECT_EQ(StatusOf("pay").reserve, 10U);
  EXPECT_TRUE(check().ok());
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
}

TEST_F(SegmentServiceTest, AHandleFollowsItsName) {
  table_.Put("pay", 1, 2000);
  StartService();
  TagHandle handle = service_->Tag("pay");
  std::uint64_t id = 0;
  EXPECT_FALSE(handle.TryTakeOne(id));  // the table was not read yet
  Run();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  TagHandle other = handle;
  ASSERT_TRUE(handle.TryTakeOne(id));
  EXPECT_EQ(id, 2U);
  ASSERT_TRUE(other.TryTakeOne(id));
  EXPECT_EQ(id, 3U);
  ASSERT_TRUE(service_->TryNextOne("pay", id));
  EXPECT_EQ(id, 4U);
  EXPECT_FALSE(service_->TryNextOne("", id));
  // Removed, it has no more; another tag of that name is found.
  table_.Erase("pay");
  service_->Forget("pay");
  EXPECT_FALSE(handle.TryTakeOne(id));
  Run();
  table_.Put("pay", 5000, 2000);
  service_->Adopt(table_.Describe("pay").value(), marks_.Load("pay").value(), 0);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{5000});
  ASSERT_TRUE(handle.TryTakeOne(id));
  EXPECT_EQ(id, 5001U);
  ASSERT_TRUE(other.TryTakeOne(id));
  EXPECT_EQ(id, 5002U);
  // The refill point is met here as well.
  while (id < 5202) ASSERT_TRUE(handle.TryTakeOne(id));
  const int reserves = store_.reserves();
  Run();
  EXPECT_GT(store_.reserves(), reserves);
  service_->Stop();
  EXPECT_FALSE(handle.TryTakeOne(id));
}

// Names of every length are told apart, also where they share a place in the thread's cache.
TEST_F(SegmentServiceTest, NamesThatDifferInOneLetterAreDifferentTags) {
  std::vector<std::string> names;
  for (std::size_t length = 1; length <= 40; ++length) {
    const std::string name(length, 'a');
    names.push_back(name);
    for (std::size_t at = 0; at < length; ++at) {
      names.push_back(name);
      names.back()[at] = 'b';
    }
  }
  std::uint64_t begin = 1;
  for (const std::string& name : names) table_.Put(name, static_cast<std::int64_t>(begin += 1000), 1000);
  StartService();
  Run();
  for (const std::string& name : names) ASSERT_FALSE(Get(name)->ids().empty()) << name;
  for (int round = 0; round < 2; ++round) {
    begin = 1;
    for (const std::string& name : names) {
      begin += 1000;
      std::uint64_t id = 0;
      ASSERT_TRUE(service_->TryNextOne(name, id)) << name;
      EXPECT_EQ(id, begin + 1 + static_cast<std::uint64_t>(round)) << name;
    }
  }
}

TEST_F(SegmentServiceTest, ATableThatThisProcessChangesIsReadAtOnce) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  table_.Put("pay", 1, 777);
  table_.Put("new", 1, 10);
  for (int i = 0; i < 5; ++i) service_->RefreshNow();
  EXPECT_EQ(service_->Status().tags, 1U);
  Run();
  EXPECT_EQ(service_->Status().tags, 2U);
  EXPECT_EQ(StatusOf("pay").table_step, 777);
  // And goes on being read.
  table_.Put("later", 1, 10);
  Pass(options_.refresh_interval + seconds{1});
  EXPECT_EQ(service_->Status().tags, 3U);
}

// A client polls for the name, and the table has just said that there is none. A request that begins after
// the tag was added finds it.
TEST_F(SegmentServiceTest, ATagThatIsAddedWhileItsNameIsLookedUpIsFound) {
  StartService();
  Run();
  std::shared_ptr<Answer> after;
  store_.before_describe_reply = [&] {
    table_.Put("new", 1, 10);
    service_->Adopt(table_.Describe("new").value(), core::Mark{}, 0);
    after = Ask("new");
  };
  const auto before = Ask("new");
  Run();
  ASSERT_TRUE(before->done() && after && after->done());
  EXPECT_EQ(before->ids(), std::vector<std::uint64_t>{1});
  EXPECT_EQ(after->ids(), std::vector<std::uint64_t>{2});
  // Nor is the answer remembered if the request has left meanwhile.
  std::shared_ptr<Answer> leaves;
  store_.before_describe_reply = [&] {
    table_.Put("newer", 1, 10);
    service_->Adopt(table_.Describe("newer").value(), core::Mark{}, 0);
    leaves->parked.Withdraw();
  };
  leaves = Ask("newer");
  while (store_.before_describe_reply != nullptr) ASSERT_TRUE(workers_.RunOne() || slow_workers_.RunOne());
  EXPECT_EQ(Get("newer")->ids(), std::vector<std::uint64_t>{1});
}

// A row that this process has written itself is all that there is to know of a tag that no request has named
// yet.
TEST_F(SegmentServiceTest, ATagThatThisProcessAddsCostsNoReadOfTheTable) {
  StartService();
  Run();
  int reads = 0;
  store_.before_list_reply = [&] { ++reads; };
  table_.Put("new", 1, 10);
  service_->Adopt(table_.Describe("new").value(), core::Mark{}, 0);
  Run();
  EXPECT_EQ(reads, 0);
  EXPECT_EQ(Get("new")->ids(), std::vector<std::uint64_t>{1});
}

TEST_F(SegmentServiceTest, NothingIsGrantedForAClientThatLeft) {
  options_.step_policy = core::StepPolicy::Kind::kFixed;
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  const auto leaves = Ask("pay", 5000);
  const auto stays = Ask("pay", 3);
  EXPECT_TRUE(leaves->parked);
  EXPECT_EQ(StatusOf("pay").waiting, 2U);
  leaves->parked.Withdraw();
  EXPECT_EQ(leaves->code(), ErrorCode::kExhausted);
  leaves->parked.Withdraw();  // a second time does nothing
  EXPECT_EQ(StatusOf("pay").waiting, 1U);
  Run();
  EXPECT_EQ(stays->ids(), (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_LT(table_.MaxId("pay"), 100);  // nothing was reserved for the request that was withdrawn
  stays->parked.Withdraw();             // was answered already: does nothing
  Pass(seconds{2});
}

// A grant arrives that was sized before they came: it does not hold what the first one wants, and what is
// left of it is enough for the other.
TEST_F(SegmentServiceTest, ARequestIsServedFromTheReserveOnceThoseBeforeItHaveLeft) {
  options_.step_policy = core::StepPolicy::Kind::kFixed;
  for (const std::string goes : {"leaves", "waited long enough", "fails"}) {
    table_.Put(goes, 1, 20);
    StartService();
    Run();
    std::shared_ptr<Answer> large;
    std::shared_ptr<Answer> small;
    store_.on_slow = [&] {
      large = Ask(goes, 500);
      clock_.Advance(std::chrono::milliseconds{1});
      small = Ask(goes, 3);
    };
    store_.FailReserves(testing::FaultySegmentStore::Fault::kSlowReply, 1);
    const auto first = Ask(goes, 5);
    while (!first->done()) ASSERT_TRUE(workers_.RunOne() || slow_workers_.RunOne());
    EXPECT_EQ(first->ids().back(), 5U);
    ASSERT_TRUE(large && small && !large->done() && !small->done());
    EXPECT_EQ(StatusOf(goes).reserve, 15U);
    if (goes == "leaves") {
      large->parked.Withdraw();
    } else if (goes == "fails") {
      store_.SetError(Error{ErrorCode::kPermission, "not allowed", ""});
      Run();
      EXPECT_EQ(large->code(), ErrorCode::kPermission);
    } else {
      store_.SetDown(true);
      Pass(seconds{2});
      EXPECT_EQ(large->code(), ErrorCode::kExhausted);
    }
    ASSERT_TRUE(small->done()) << goes;
    ASSERT_TRUE(small->result->ok()) << goes << ": " << small->result->error().message;
    EXPECT_EQ(small->ids(), (std::vector<std::uint64_t>{6, 7, 8}));
    store_.SetDown(false);
    store_.SetError(std::nullopt);
    Pass(seconds{5});
    const TagStatus status = StatusOf(goes);
    EXPECT_EQ(status.issued, 8U) << goes;
    EXPECT_EQ(status.granted, status.issued + status.wasted + status.reserve) << goes;
  }
}

TEST_F(SegmentServiceTest, AnUnknownNameWhoseOnlyAskerLeftIsForgotten) {
  StartService();
  Run();
  store_.SetDown(true);
  const auto leaves = Ask("unknown");
  Run();
  leaves->parked.Withdraw();
  Pass(seconds{5});
  EXPECT_TRUE(leaves->done());
  EXPECT_EQ(service_->Status().tags, 0U);
}

TEST_F(SegmentServiceTest, ATagInsertedByHandAnswersAtItsFirstRequest) {
  StartService();
  Run();
  EXPECT_EQ(Get("new")->code(), ErrorCode::kNotFound);
  clock_.Advance(kNegativeTtl);
  table_.Put("new", 7, 10);
  EXPECT_EQ(Get("new")->ids(), std::vector<std::uint64_t>{7});
}

TEST_F(SegmentServiceTest, AnUnknownNameAsksTheTableOnceASecond) {
  StartService();
  Run();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Get("nope")->code(), ErrorCode::kNotFound);
  EXPECT_EQ(store_.describes(), 1);
  EXPECT_EQ(store_.reserves(), 0);
  clock_.Advance(kNegativeTtl);
  Get("nope");
  EXPECT_EQ(store_.describes(), 2);
}

TEST_F(SegmentServiceTest, ManyUnknownNamesAreLimitedTogether) {
  StartService();
  Run();
  std::uint32_t limited = 0;
  for (std::uint32_t i = 0; i < 3 * kMissesPerSecondMax; ++i) {
    const auto answer = Ask("nope" + std::to_string(i));
    Run();
    ASSERT_TRUE(answer->done());
    if (answer->code() == ErrorCode::kLimited) ++limited;
  }
  EXPECT_EQ(limited, 2 * kMissesPerSecondMax);
  EXPECT_EQ(service_->Status().tags, 0U);
}

// They need no right: what requests may ask for is not theirs.
TEST_F(SegmentServiceTest, UnknownNamesOfHealthChecksUseNothingUp) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  std::uint32_t looked_up = 0;
  std::uint32_t limited = 0;
  for (std::uint32_t i = 0; i < 3 * kMissesPerSecondMax; ++i) {
    service_->CheckReady("no" + std::to_string(i), [&](const Result<void>& ready) {
      ++(ready.error().code == ErrorCode::kNotFound ? looked_up : limited);
    });
    Run();
  }
  EXPECT_EQ(looked_up, kProbedMissesPerSecondMax);
  EXPECT_EQ(limited, 3 * kMissesPerSecondMax - kProbedMissesPerSecondMax);
  service_->CheckReady("pay", [](const Result<void>& ready) { EXPECT_TRUE(ready.ok()); });
  for (std::uint32_t i = 0; i < kMissesPerSecondMax; ++i) {
    const auto answer = Ask("nope" + std::to_string(i));
    Run();
    EXPECT_EQ(answer->code(), ErrorCode::kNotFound);
  }
  clock_.Advance(seconds{1});
  // Nor their places where the database is slow.
  for (std::size_t i = 0; i < 2 * kProbesWaitingMax; ++i)
    service_->CheckReady("slow" + std::to_string(i), [](const Result<void>&) {});
  const auto unknown = Ask("last");
  EXPECT_FALSE(unknown->done());
  Run();
  EXPECT_EQ(unknown->code(), ErrorCode::kNotFound);
}

// A database that answers more slowly than any client may ask for names.
TEST_F(SegmentServiceTest, UnknownNamesWaitForEachOtherAndHoldUpNoTagInTrouble) {
  table_.Put("locked", 1, 10);
  StartService();
  Run();
  store_.FailReserves(StoreFault::kUnavailable, 1);
  Ask("locked");
  Run();
  clock_.Advance(kBackoffMax);
  while (timers_.RunOne()) {
  }
  std::vector<std::shared_ptr<Answer>> unknown;
  std::size_t turned_away = 0;
  for (int second = 0; second < 3; ++second) {
    for (std::size_t i = 0; i < kMissesPerSecondMax; ++i) {
      unknown.push_back(Ask("nope" + std::to_string(unknown.size())));
      if (!unknown.back()->done()) continue;
      EXPECT_EQ(unknown.back()->code(), ErrorCode::kUnavailable);
      ++turned_away;
    }
    clock_.Advance(seconds{1});
  }
  EXPECT_EQ(turned_away, unknown.size() - kLookUpsWaitingMax);
  EXPECT_EQ(slow_workers_.ready(), kLookUpsAtOnce);
  const auto locked = Ask("locked");
  for (std::size_t i = 0; i <= kLookUpsAtOnce; ++i) ASSERT_TRUE(slow_workers_.RunOne());
  ASSERT_TRUE(locked->done());
  EXPECT_EQ(locked->ids(), std::vector<std::uint64_t>{1});
  // Each of those that wait gets its answer, and later ones are asked again.
  while (slow_workers_.RunOne()) {
  }
  for (std::size_t i = 0; i < kLookUpsWaitingMax; ++i) EXPECT_EQ(unknown[i]->code(), ErrorCode::kNotFound);
  table_.Put("late", 1, 10);
  EXPECT_EQ(Get("late")->ids(), std::vector<std::uint64_t>{1});
}

TEST_F(SegmentServiceTest, ReadsOfTheDatabaseHaveALimitOfTheirOwn) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  for (std::uint32_t i = 0; i <= kMissesPerSecondMax; ++i) Ask("nope" + std::to_string(i));
  Run();
  std::size_t read = 0;
  std::size_t limited = 0;
  const auto load = [&] {
    service_->LoadMark("pay", [&](const auto& mark) {
      ++(mark.ok() ? read : limited);
      if (!mark.ok()) {
        EXPECT_EQ(mark.error().code, ErrorCode::kLimited);
      }
    });
  };
  for (std::uint32_t i = 0; i < kReadsWaitingMax; ++i) load();
  EXPECT_EQ(slow_workers_.ready(), kReadsAtOnce) << "the others are left to tags in trouble";
  service_->LoadMark("pay", [&](const auto& mark) { EXPECT_EQ(mark.error().code, ErrorCode::kUnavailable); });
  Run();
  for (std::uint32_t i = kReadsWaitingMax; i < kReadsPerSecondMax; ++i) load();
  Run();
  EXPECT_EQ(read, kReadsPerSecondMax);
  EXPECT_EQ(limited, 0U);
  load();
  service_->ReadTable([&](const auto& rows) { limited += rows.ok() ? 0U : 1U; });
  EXPECT_EQ(limited, 2U);
  clock_.Advance(seconds{1});
  load();
  Run();
  EXPECT_EQ(read, kReadsPerSecondMax + 1);
}

TEST_F(SegmentServiceTest, ConcurrentFirstRequestsShareOneGrant) {
  table_.Put("pay", 1, 2000);
  StartService();
  std::vector<std::shared_ptr<Answer>> answers;
  for (int i = 0; i < 100; ++i) answers.push_back(Ask("pay"));
  Run();
  for (std::size_t i = 0; i < answers.size(); ++i)
    EXPECT_EQ(answers[i]->ids(), std::vector<std::uint64_t>{i + 1});
  EXPECT_EQ(store_.reserves(), 1);
}

// Leaf issue 143: far more callers than a step holds, and none fails while the table answers.
TEST_F(SegmentServiceTest, AGrantCoversAllParkedRequests) {
  table_.Put("pay", 1, 100);
  StartService();
  std::vector<std::shared_ptr<Answer>> answers;
  for (int i = 0; i < 1000; ++i) answers.push_back(Ask("pay"));
  Run();
  for (std::size_t i = 0; i < answers.size(); ++i)
    EXPECT_EQ(answers[i]->ids(), std::vector<std::uint64_t>{i + 1});
}

TEST_F(SegmentServiceTest, ABatchLargerThanTheStepIsWholeAndTakesTheRestFirst) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  ASSERT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  table_.Put("pay", 1000, 10);  // another node moved on
  const auto batch = Get("pay", 30);
  const auto ids = batch->ids();
  ASSERT_EQ(ids.size(), 30U);
  EXPECT_EQ(ids[0], 2U);
  EXPECT_EQ(ids[8], 10U);
  EXPECT_EQ(ids[9], 1000U);
  EXPECT_EQ(ids[29], 1020U);
}

// A batch that Redis' INCRBY asks for: the caller counts back from its last ID.
TEST_F(SegmentServiceTest, AContiguousBatchNeverSpansAGapAndWastesWhatIsBelowIt) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  EXPECT_EQ(Get("pay", 8)->ids().back(), 8U);
  table_.Put("pay", 1001, 10);  // another node's grants
  const auto batch = Get("pay", {5, true});
  ASSERT_EQ(batch->result->value().ranges().size(), 1U);
  // 9 and 10, or what a prefetch added to them, are never issued: IDs of a tag rise.
  const std::uint64_t first = batch->ids().front();
  EXPECT_GT(first, 8U);
  EXPECT_EQ(batch->ids().back(), first + 4);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{first + 5});
  const TagStatus status = StatusOf("pay");
  EXPECT_EQ(status.issued, 14U);
  EXPECT_EQ(status.granted, status.issued + status.wasted + status.reserve);
}

TEST_F(SegmentServiceTest, AContiguousBatchGoesOnFromTheReserveIntoTheGrantThatContinuesIt) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  const auto batch = Get("pay", {30, true});
  EXPECT_EQ(batch->ids().front(), 2U);
  EXPECT_EQ(batch->ids().back(), 31U);
  const TagStatus status = StatusOf("pay");
  EXPECT_EQ(status.wasted, 0U);
  EXPECT_EQ(status.granted, status.issued + status.reserve);
}

// The grant comes first: others take from the reserve until then.
TEST_F(SegmentServiceTest, WhileAContiguousBatchWaitsTheReserveServesOthers) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  Get("pay");
  Run();
  table_.Put("pay", 1001, 10);
  const auto batch = Ask("pay", {50, true});
  EXPECT_FALSE(batch->done());
  IdSpans spans;
  ASSERT_TRUE(service_->TryNext("pay", 1, spans));
  EXPECT_EQ(spans.ranges().front().begin, 2U);
  Run();
  ASSERT_TRUE(batch->done());
  EXPECT_EQ(batch->ids().size(), 50U);
  EXPECT_EQ(batch->result->value().ranges().size(), 1U);
  const TagStatus status = StatusOf("pay");
  EXPECT_EQ(status.issued, 52U);
  EXPECT_EQ(status.granted, status.issued + status.wasted + status.reserve);
}

TEST_F(SegmentServiceTest, AContiguousBatchThatCannotBeGrantedConsumesNothing) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  Get("pay");
  Run();
  const std::uint64_t reserve = StatusOf("pay").reserve;
  store_.SetDown(true);
  EXPECT_EQ(Get("pay", {100, true})->code(), ErrorCode::kExhausted);
  EXPECT_EQ(StatusOf("pay").reserve, reserve);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{2});
}

TEST_F(SegmentServiceTest, TheLastIssuedIdIsToldWithoutTakingOne) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  EXPECT_FALSE(service_->LastIssued("pay").has_value());
  Get("pay");
  EXPECT_EQ(service_->LastIssued("pay"), 1U);
  Get("pay", 300);
  EXPECT_EQ(service_->LastIssued("pay"), 301U);
  EXPECT_EQ(service_->LastIssued("pay"), 301U);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{302});
  EXPECT_FALSE(service_->LastIssued("other").has_value());
}

TEST_F(SegmentServiceTest, ABatchThatTimesOutConsumesNothing) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  ASSERT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
  store_.SetDown(true);
  EXPECT_EQ(Get("pay", 30)->code(), ErrorCode::kExhausted);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{2});
}

TEST_F(SegmentServiceTest, GoesOnFromTheReserveWhileTheStoreIsAwayAndRecoversByItself) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  Get("pay");
  store_.SetDown(true);
  for (std::uint64_t expected = 2; expected <= 100; ++expected) {
    ASSERT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{expected});
  }
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kExhausted);
  store_.SetDown(false);
  Pass(seconds{3});
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{101});
}

TEST_F(SegmentServiceTest, LeafsRoutesFailFastOnceAGrantHasFailed) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  const auto first = Ask("pay");
  clock_.Advance(milliseconds{500});
  EXPECT_FALSE(first->done()) << "a first load is waited for";
  store_.SetDown(true);
  Run();
  EXPECT_FALSE(first->done());
  const auto second = Ask("pay");
  Pass(milliseconds{15});
  ASSERT_TRUE(first->done()) << "parked before the failure";
  ASSERT_TRUE(second->done()) << "parked after it";
  EXPECT_EQ(first->code(), ErrorCode::kExhausted);
  EXPECT_NE(first->result->error().message.find("away"), std::string::npos) << "says why";
}

// Its workers are stuck: only timers run.
TEST_F(SegmentServiceTest, RequestsOfOneLineEndEachInItsTime) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  const auto ask = [&](int wait_ms) {
    auto answer = std::make_shared<Answer>();
    answer->parked = service_->Next("pay", 100, {milliseconds{wait_ms}, milliseconds{10}},
                                    [answer](Result<IdSpans> result) {
                                      ASSERT_FALSE(answer->done()) << "answered twice";
                                      answer->result = std::move(result);
                                    });
    return answer;
  };
  const std::size_t timers_before = timers_.timers();
  std::vector<std::pair<int, std::shared_ptr<Answer>>> answers;
  for (const int wait_ms : {300, 100, 200, 300, 50, 400}) answers.emplace_back(wait_ms, ask(wait_ms));
  const auto leaves = ask(60);
  const std::size_t few = timers_.timers();
  EXPECT_LE(few, timers_before + 3) << "one for each that is due before those that came earlier";
  for (int i = 0; i < 200; ++i) answers.emplace_back(500, ask(500));
  EXPECT_EQ(timers_.timers(), few);
  leaves->parked.Withdraw();
  EXPECT_TRUE(leaves->done());
  for (int now_ms = 0; now_ms <= 510; now_ms += 10) {
    for (const auto& [wait_ms, answer] : answers) {
      EXPECT_EQ(answer->done(), wait_ms <= now_ms) << wait_ms << " ms, at " << now_ms;
    }
    clock_.Advance(milliseconds{10});
    while (timers_.RunOne()) {
    }
  }
  EXPECT_LE(timers_.timers(), timers_before);
  for (const auto& [wait_ms, answer] : answers) EXPECT_EQ(answer->code(), ErrorCode::kExhausted);
  // A line that was empty for a while is looked at again.
  const auto later = ask(100);
  clock_.Advance(milliseconds{100});
  while (timers_.RunOne()) {
  }
  EXPECT_TRUE(later->done());
}

// The request came while grants failed, and the first grant that works does not cover it.
TEST_F(SegmentServiceTest, ARequestHasItsWholeWaitOnceGrantsWorkAgain) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  for (const bool in_time : {true, false}) {
    store_.FailReserves(StoreFault::kUnavailable, 1);
    EXPECT_EQ(Get("pay", 100)->code(), ErrorCode::kExhausted);
    clock_.Advance(kBackoffMax);
    const auto first = Ask("pay", 50);
    std::shared_ptr<Answer> late;
    store_.FailReserves(StoreFault::kSlowReply, 1);
    store_.on_slow = [&] { late = Ask("pay", 100); };
    const auto run_timers = [&] {
      while (timers_.RunOne()) {
      }
    };
    run_timers();
    // The store may be looked at before, since a grant has failed.
    while (!first->done()) ASSERT_TRUE(workers_.RunOne() || slow_workers_.RunOne());
    EXPECT_EQ(first->ids().size(), 50U);
    // Its own grant has not begun.
    clock_.Advance(milliseconds{990});
    run_timers();
    EXPECT_FALSE(late->done()) << "refused, and no grant has failed since";
    if (!in_time) {
      clock_.Advance(milliseconds{20});
      run_timers();
      ASSERT_TRUE(late->done());
      EXPECT_EQ(late->code(), ErrorCode::kExhausted);
    }
    Run();
    if (in_time) {
      EXPECT_EQ(late->ids().size(), 100U);
    }
  }
}

TEST_F(SegmentServiceTest, TagsWhoseGrantsFailLeaveTheWorkersToOthers) {
  table_.Put("locked", 1, 10);
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  store_.FailReserves(StoreFault::kUnavailable, 1);
  Ask("locked");
  Run();
  clock_.Advance(kBackoffMax);
  while (timers_.RunOne()) {
  }
  Ask("locked");
  EXPECT_EQ(workers_.ready(), 0U);
  EXPECT_EQ(slow_workers_.ready(), 1U);
  const auto answer = Ask("pay");
  while (workers_.RunOne()) {
  }
  EXPECT_TRUE(answer->done());
}

TEST_F(SegmentServiceTest, BacksOffWhileTheStoreIsAway) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  store_.SetDown(true);
  for (int i = 0; i < 60; ++i) {
    Ask("pay");
    Pass(milliseconds{500});
  }
  EXPECT_LT(store_.reserves(), 40);
  EXPECT_GT(store_.reserves(), 10);
}

// A grant that waits for its next attempt is tried at once.
TEST_F(SegmentServiceTest, ARefreshThatWorksAgainIsFollowedByGrants) {
  options_.refresh_interval = seconds{1};
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  Get("pay", 10);
  store_.SetDown(true);
  for (int i = 0; i < 20; ++i) {
    Ask("pay");
    Pass(milliseconds{500});
  }
  store_.SetDown(false);
  store_.FailReserves(StoreFault::kUnavailable, 1000);
  const auto answers = [&] { return log_.Count(LogLevel::kInfo, "the store answers again") > 0; };
  for (int i = 0; i < 2000 && !answers(); ++i) {
    const int before = store_.reserves();
    Pass(milliseconds{5});
    if (answers()) {
      EXPECT_GT(store_.reserves(), before);
    }
  }
  EXPECT_TRUE(answers());
}

TEST_F(SegmentServiceTest, ALostCommitReplyDropsTheRangeAndReservesAgain) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  store_.FailReserves(StoreFault::kLostReply, 1);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{11});
}

TEST_F(SegmentServiceTest, AReplyAfterItsDeadlineIsDropped) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  store_.on_slow = [&] { clock_.Advance(options_.reply_timeout + milliseconds{1}); };
  store_.FailReserves(StoreFault::kSlowReply, 1);
  auto answer = Ask("pay");
  Run();
  ASSERT_TRUE(answer->done());
  EXPECT_FALSE(answer->result->ok());
  Pass(seconds{1});
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{11});
}

TEST_F(SegmentServiceTest, ATagRemovedFromTheTableStopsWithinOneRefresh) {
  table_.Put("pay", 1, 100);
  table_.Put("other", 1, 100);
  StartService();
  Run();
  Get("pay");
  Get("other");
  table_.Erase("pay");
  Pass(options_.refresh_interval + milliseconds{10});
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kNotFound);
  EXPECT_TRUE(Get("other")->result->ok());
}

TEST_F(SegmentServiceTest, AnEmptiedTableRemovesTheLastTagToo) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  Get("pay");
  table_.Erase("pay");
  Pass(options_.refresh_interval + milliseconds{10});
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kNotFound);
  EXPECT_EQ(service_->Status().tags, 0U);
}

TEST_F(SegmentServiceTest, ATagInsertedWhileARefreshReadsTheTableIsNotTakenForRemoved) {
  table_.Put("other", 1, 100);
  StartService();
  Run();
  store_.before_list_reply = [&] {
    // The list was read without it; then it appears, is asked for, and gets its first grant.
    table_.Put("pay", 1, 100);
    store_.before_list_reply = nullptr;
    Ask("pay");
    workers_.RunOne();
  };
  Pass(options_.refresh_interval + milliseconds{10});
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{2});
}

// Leaf S9: removed and added again within one refresh, further down.
TEST_F(SegmentServiceTest, ATagAddedAgainBelowItsMarkIsFrozenNotRepeated) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  for (int i = 0; i < 50; ++i) Get("pay");
  table_.Erase("pay");
  table_.Put("pay", 1, 100);
  Pass(options_.refresh_interval + milliseconds{10});
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kFrozen);
}

TEST_F(SegmentServiceTest, AMaxIdSetBackFreezesTheTagAtTheNextRefreshAndOnlyIt) {
  table_.Put("pay", 1, 100);
  table_.Put("other", 1, 100);
  StartService();
  Run();
  Get("pay");
  Get("other");
  table_.Put("pay", 1, 100);
  Pass(options_.refresh_interval + milliseconds{10});
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kFrozen);
  EXPECT_TRUE(Get("other")->result->ok());
  const IdService ids(&*service_);
  EXPECT_TRUE(ids.GetReadiness().ready);
  EXPECT_EQ(ids.Problems(service_->TagStatuses()).size(), 1U);
  EXPECT_EQ(StatusOf("pay").reserve, 0U);
  EXPECT_EQ(table_.MaxId("pay"), 1) << "a frozen tag must not move the row";

  table_.Put("pay", 101, 100);  // repaired
  Pass(options_.refresh_interval + milliseconds{10});
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{101});
}

TEST_F(SegmentServiceTest, AMaxIdSetBackFreezesTheTagAtTheNextGrant) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  Get("pay");
  table_.Put("pay", 1, 100);
  std::shared_ptr<Answer> answer;
  std::vector<std::uint64_t> seen{1};
  for (int i = 0; i < 200; ++i) {
    answer = Get("pay");
    if (!answer->result->ok()) break;
    seen.push_back(answer->ids().front());
  }
  EXPECT_EQ(answer->code(), ErrorCode::kFrozen);
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], i + 1);
}

// The row that the refresh holds is from before the grant, and below what it raised the mark to.
TEST_F(SegmentServiceTest, AGrantWhileARefreshReadsTheTableIsNoReasonToFreeze) {
  table_.Put("first", 1, 100);
  table_.Put("next", 1, 100);
  StartService();
  Run();
  Get("next");
  store_.before_list_reply = [&] {
    store_.before_list_reply = nullptr;
    Ask("first");
    for (int i = 0; i < 11; ++i) Ask("next");
    workers_.RunOne();
    workers_.RunOne();
  };
  Pass(options_.refresh_interval + milliseconds{10});
  EXPECT_EQ(table_.MaxId("first"), 101) << "no grant came in between";
  EXPECT_EQ(table_.MaxId("next"), 201) << "no grant came in between";
  EXPECT_EQ(Get("first")->ids(), std::vector<std::uint64_t>{2});
  EXPECT_EQ(Get("next")->ids(), std::vector<std::uint64_t>{13});
  EXPECT_EQ(StatusOf("first").state, "active");
  EXPECT_EQ(StatusOf("next").state, "active");

  // The next refresh judges by those grants.
  table_.Put("first", 100, 100);
  table_.Put("next", 200, 100);
  Pass(options_.refresh_interval + milliseconds{10});
  EXPECT_EQ(Get("first")->code(), ErrorCode::kFrozen);
  EXPECT_EQ(Get("next")->code(), ErrorCode::kFrozen);
}

TEST_F(SegmentServiceTest, AGrantInFlightWhenARefreshFreezesTheTagIsDropped) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  Get("pay");
  store_.before_list_reply = [&] {
    store_.before_list_reply = nullptr;
    // Between the read and its judgement the row is mended and a grant goes through.
    for (int i = 0; i < 11; ++i) Ask("pay");
    table_.Put("pay", 5000, 100);
    workers_.RunOne();
  };
  table_.Put("pay", 1, 100);
  Pass(options_.refresh_interval + milliseconds{10});
  const auto answer = Get("pay");
  EXPECT_EQ(answer->code(), ErrorCode::kFrozen);
  EXPECT_EQ(StatusOf("pay").reserve, 0U);
}

TEST_F(SegmentServiceTest, AMarkThatCannotBeMadeDurableIsNotIssued) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  marks_.SetFull(true);
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kExhausted);
  marks_.SetFull(false);
  Pass(seconds{3});
  EXPECT_TRUE(Get("pay")->result->ok());
}

TEST_F(SegmentServiceTest, ARestartedNodeRemembersItsMarks) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  Get("pay");
  service_->Stop();
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kFrozen);
}

TEST_F(SegmentServiceTest, MarksRaisedByAnotherProcessOfThisDirectoryAreHonoured) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  Get("pay");
  // `leafctl next --direct` with the same state directory.
  testing::RecordingLogger log;
  Granter other(table_, marks_, nullptr, clock_, log, seconds{4});
  ASSERT_TRUE(other.Obtain("pay", ExactSizer(50)).grant.ok());
  Pass(options_.refresh_interval + milliseconds{10});
  EXPECT_TRUE(Get("pay")->result->ok()) << "its own kin's grants are no database that went back";
  table_.Put("pay", 120, 100);  // below what that process got, above what this one did
  Pass(options_.refresh_interval + milliseconds{10});
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kFrozen);
}

// A grant waits for the lock, which another process of this directory has. That process raises the mark, and
// the database goes back.
TEST_F(SegmentServiceTest, AMarkIsReadUnderItsLock) {
  table_.Put("pay", 1, 100);
  const testing::TempDir dir;
  std::function<void()> meanwhile;
  sql::SqliteMarkStore marks(
      dir.path() + "/marks.db",
      [&](std::string_view tag) {
        if (meanwhile) std::exchange(meanwhile, nullptr)();
        return marks_.Acquire(tag);
      },
      clock_, "test");
  Granter granter(table_, marks, nullptr, clock_, log_, seconds{4});
  meanwhile = [&] {
    Granter other(table_, marks, nullptr, clock_, log_, seconds{4});
    ASSERT_TRUE(other.Obtain("pay", ExactSizer(50)).grant.ok());
    table_.Put("pay", 1, 100);
  };
  const auto grant = granter.Obtain("pay", ExactSizer(1)).grant;
  ASSERT_FALSE(grant.ok()) << "granted from " << grant->range.begin;
  EXPECT_EQ(grant.error().code, ErrorCode::kFrozen);
}

TEST_F(SegmentServiceTest, BadRowsAreRefusedByNameAndDoNotMove) {
  for (const std::int64_t step : {std::int64_t{0}, std::int64_t{-5}, kStepMax + 1}) {
    table_.Put("pay", 1, step);
    StartService();
    Run();
    const auto answer = Get("pay");
    EXPECT_EQ(answer->code(), ErrorCode::kRefused);
    EXPECT_NE(answer->result->error().message.find("'pay'"), std::string::npos);
    EXPECT_EQ(table_.MaxId("pay"), 1);
    service_->Stop();
  }
}

TEST_F(SegmentServiceTest, NearTheEndNothingWrapsAndTheLastIdsAreServed) {
  table_.Put("pay", static_cast<std::int64_t>(kMaxIdLimit - 3), 100);
  StartService();
  Run();
  for (std::uint64_t id = kMaxIdLimit - 3; id < kMaxIdLimit; ++id) {
    EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{id});
  }
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kOverflow);
}

TEST_F(SegmentServiceTest, StartsWithoutItsStoreAndIsReadyWhenItIsBack) {
  table_.Put("pay", 1, 100);
  store_.SetDown(true);
  StartService();
  Run();
  const IdService ids(&*service_);
  EXPECT_FALSE(ids.GetReadiness().ready);
  EXPECT_NE(ids.GetReadiness().reasons.at(0).message.find("away"), std::string::npos);
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kExhausted);
  EXPECT_EQ(service_->Status().tags, 0U) << "names that the table has not confirmed are not kept";
  store_.SetDown(false);
  Pass(seconds{3});
  EXPECT_TRUE(ids.GetReadiness().ready);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1});
}

TEST_F(SegmentServiceTest, AnUnknownNameIsNeverTakenForATag) {
  StartService();
  Run();
  std::optional<Result<void>> checked;
  std::size_t tags = 1;
  // The generator that asked for it is still there at this moment.
  service_->Next("missing", 1, {seconds{1}, seconds{1}}, [&](const Result<IdSpans>& result) {
    EXPECT_EQ(result.error().code, ErrorCode::kNotFound);
    service_->CheckTag("missing", [&](const Result<void>& exists) { checked = exists; });
    tags = service_->TagStatuses().size();
  });
  Run();
  ASSERT_TRUE(checked);
  ASSERT_FALSE(checked->ok());
  EXPECT_EQ(checked->error().code, ErrorCode::kNotFound);
  EXPECT_EQ(tags, 0U);
}

TEST_F(SegmentServiceTest, IsNotReadyOnceTheStoreIsAwayAndNothingIsInReserve) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  Get("pay");
  store_.SetDown(true);
  Pass(options_.refresh_interval + seconds{1});
  const IdService ids(&*service_);
  EXPECT_TRUE(ids.GetReadiness().ready) << "there is a reserve";
  for (int i = 0; i < 9; ++i) Get("pay");
  EXPECT_FALSE(ids.GetReadiness().ready);
}

TEST_F(SegmentServiceTest, StopFailsParkedRequestsAndNewOnes) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  store_.SetDown(true);
  const auto parked = Ask("pay");
  service_->Stop();
  ASSERT_TRUE(parked->done());
  EXPECT_EQ(parked->code(), ErrorCode::kUnavailable);
  EXPECT_EQ(Ask("pay")->code(), ErrorCode::kUnavailable);
  // Nor is the table asked for names any more.
  store_.SetDown(false);
  const int describes = store_.describes();
  std::optional<Result<void>> told;
  service_->CheckTag("new", [&](Result<void> answer) { told = std::move(answer); });
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(Ask("new")->code(), ErrorCode::kUnavailable);
  Run();
  EXPECT_EQ(store_.describes(), describes);
}

TEST_F(SegmentServiceTest, ManyGrantsThatFailForOneCauseAreAFewLinesAndACount) {
  StartService();
  Run();
  store_.SetDown(true);
  const auto told = [&] { return log_.Count(LogLevel::kWarning, "grant for tag"); };
  for (int i = 0; i < 150; ++i) Ask(fmt::format("unknown-{}", i));
  Run();
  EXPECT_EQ(told(), FailureLog::kAtOnce);
  Pass(FailureLog::kSummary);
  EXPECT_EQ(log_.Count(LogLevel::kWarning, "145 more grants failed within 10s; the last: grant for tag"), 1U);
  // What goes on is counted once in that time.
  for (int i = 0; i < 100; ++i) Ask(fmt::format("more-{}", i));
  Pass(FailureLog::kSummary);
  EXPECT_EQ(log_.Count(LogLevel::kWarning, "100 more grants failed within 10s"), 1U);
  EXPECT_EQ(told(), FailureLog::kAtOnce + 2) << "the lines, and the last of each summary";
  // What comes after a quiet time has lines again.
  Pass(FailureLog::kSummary);
  Ask("later");
  Run();
  EXPECT_EQ(told(), FailureLog::kAtOnce + 3);
}

TEST_F(SegmentServiceTest, AHaltDropsTheReserveAndItsReasonIsEveryAnswer) {
  table_.Put("pay", 1, 10);
  table_.Put("mail", 1, 10);
  StartService();
  Run();
  Get("mail");
  store_.SetDown(true);
  const auto parked = Ask("pay");
  IdService ids(&*service_);
  ids.StateDirLost({ErrorCode::kUnavailable, "the place is lost", "look"});
  // The first reason counts, also where the end comes after it.
  ids.StateDirLost({ErrorCode::kUnavailable, "another", ""});
  service_->Stop();
  ASSERT_TRUE(parked->done());
  for (const auto& answer : {parked, Ask("pay"), Ask("mail"), Ask("never seen")}) {
    ASSERT_EQ(answer->code(), ErrorCode::kUnavailable);
    EXPECT_EQ(answer->result->error().message, "the place is lost");
  }
  store_.SetDown(false);
  const int reserves = store_.reserves();
  Pass(options_.refresh_interval * 3);
  EXPECT_EQ(store_.reserves(), reserves);
  EXPECT_EQ(Ask("mail")->code(), ErrorCode::kUnavailable);
  const Readiness readiness = ids.GetReadiness();
  ASSERT_EQ(readiness.reasons.size(), 1U);
  EXPECT_EQ(readiness.reasons[0].code, "state_dir_lost");
  EXPECT_FALSE(readiness.ready);
  EXPECT_EQ(ids.Problems({})[0].code, "state_dir_lost");
}

TEST_F(SegmentServiceTest, TheReserveGrowsToCoverReserveTimeAtTheRateSeen) {
  options_.reserve_time = seconds{60};
  table_.Put("pay", 1, 2000);
  StartService();
  Run();
  for (int second = 0; second < 10; ++second) {
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(Get("pay")->result->ok());
    Pass(seconds{1});
  }
  const TagStatus status = StatusOf("pay");
  EXPECT_NEAR(status.ids_per_second, 1000, 50);
  EXPECT_GE(status.reserve, 55'000U);
  EXPECT_LT(status.reserve, 200'000U) << "and no further: Leaf's step doubles towards it";
  // An outage of that time goes unnoticed.
  store_.SetDown(true);
  for (int second = 0; second < 50; ++second) {
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(Ask("pay")->done());
    Pass(seconds{1});
  }
}

TEST_F(SegmentServiceTest, AFixedStepHoldsAsManyRangesAsThereAreSlots) {
  options_.reserve_time = seconds{3600};
  options_.step_policy = core::StepPolicy::Kind::kFixed;
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  for (int second = 0; second < 30; ++second) {
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(Get("pay")->result->ok());
    Pass(seconds{1});
    ASSERT_EQ(StatusOf("pay").wasted, 0U);
  }
  EXPECT_GE(StatusOf("pay").reserve, (kSegmentSlots - 1) * 100);
  EXPECT_LE(StatusOf("pay").reserve, kSegmentSlots * 100);
}

TEST_F(SegmentServiceTest, AnotherReserveTimeHoldsAtOnce) {
  options_.reserve_time = seconds{1};
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  for (int second = 0; second < 30; ++second) {
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(Get("pay")->result->ok());
    Pass(seconds{1});
  }
  const std::uint64_t before = StatusOf("pay").reserve_target;
  service_->Reconfigure(options_.refresh_interval, seconds{1});
  EXPECT_EQ(StatusOf("pay").reserve_target, before);
  service_->Reconfigure(options_.refresh_interval, seconds{60});
  EXPECT_GT(StatusOf("pay").reserve_target, 10 * before);
}

TEST_F(SegmentServiceTest, ASlowGrantIsCoveredByTheReserve) {
  table_.Put("pay", 1, 100);
  store_.on_slow = [this] { clock_.Advance(milliseconds{200}); };
  store_.FailReserves(StoreFault::kSlowReply, 1'000'000);
  StartService();
  Run();
  for (int i = 0; i < 20'000; ++i) {
    ASSERT_TRUE(Get("pay")->result->ok());
    clock_.Advance(std::chrono::microseconds{100});
  }
  const TagStatus status = StatusOf("pay");
  EXPECT_GE(status.grant_latency, milliseconds{200});
  EXPECT_GT(status.reserve_target, 0U);
  EXPECT_GE(status.reserve, status.reserve_target);
}

TEST_F(SegmentServiceTest, WhatRestartsWasteIsRemembered) {
  table_.Put("pay", 1, 2000);
  StartService();
  Run();
  Get("pay", 500);  // beyond a tenth: a second range is fetched
  EXPECT_EQ(StatusOf("pay").reserve, 3500U);
  service_->Stop();
  ASSERT_TRUE(service_->RecordUnissued().ok());

  StartService();
  Run();
  TagStatus status = StatusOf("pay");
  EXPECT_EQ(status.wasted_by_last_restart, 3500U);
  EXPECT_TRUE(status.wasted_by_restarts_exactly);
  Get("pay");

  StartService();  // a crash: what it held at most is its newest grant
  Run();
  status = StatusOf("pay");
  EXPECT_EQ(status.wasted_by_last_restart, 2000U);
  EXPECT_EQ(status.wasted_by_restarts, 5500U);
  EXPECT_FALSE(status.wasted_by_restarts_exactly);
}

// A start that fails elsewhere: its own end says nothing of what the run before it has left.
TEST_F(SegmentServiceTest, ARunThatNeverBeganForgetsNothingOfTheOneBefore) {
  table_.Put("pay", 1, 2000);
  StartService();
  Run();
  Get("pay");
  const std::uint64_t held = marks_.Load("pay")->held;
  ASSERT_GT(held, 0U);
  StartService();  // after a crash; it looks at nothing yet
  service_->Stop();
  ASSERT_TRUE(service_->RecordUnissued().ok());
  EXPECT_EQ(marks_.Load("pay")->held, held);
  StartService();
  Run();
  EXPECT_EQ(StatusOf("pay").wasted_by_last_restart, held);
}

TEST_F(SegmentServiceTest, AGrantThatArrivesAfterTheStopIsWastedByTheRestart) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  store_.on_slow = [this] { service_->Stop(); };
  store_.FailReserves(StoreFault::kSlowReply, 1);
  const auto asked = Ask("pay");
  Run();
  EXPECT_FALSE(asked->result->ok());
  EXPECT_EQ(table_.MaxId("pay"), 101);
  ASSERT_TRUE(service_->RecordUnissued().ok());
  store_.on_slow = nullptr;
  StartService();
  Run();
  EXPECT_EQ(StatusOf("pay").wasted_by_last_restart, 100U);
  EXPECT_TRUE(StatusOf("pay").wasted_by_restarts_exactly);
}

TEST_F(SegmentServiceTest, AGrantThatMeetsAFrozenTagIsWastedByNoRestart) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  ASSERT_TRUE(Get("pay", 5)->result->ok());
  store_.on_slow = [this] {
    table_.Put("pay", 5, 100);
    service_->RefreshNow();
    Run();
  };
  store_.FailReserves(StoreFault::kSlowReply, 1);
  const auto asked = Ask("pay", 150);
  Run();
  EXPECT_FALSE(asked->result->ok());
  EXPECT_EQ(StatusOf("pay").state, "frozen");
  const std::uint64_t dropped = StatusOf("pay").wasted;
  EXPECT_GE(dropped, 150U);
  service_->Stop();
  ASSERT_TRUE(service_->RecordUnissued().ok());
  store_.on_slow = nullptr;
  StartService();
  Run();
  EXPECT_EQ(StatusOf("pay").wasted_by_last_restart, 0U) << "it was wasted before";
}

TEST_F(SegmentServiceTest, GrantsThatAreDroppedCountAsWasted) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  store_.FailReserves(StoreFault::kLostReply, 1);
  Get("pay");
  EXPECT_EQ(StatusOf("pay").wasted, 100U);
  marks_.SetFull(true);
  for (int i = 0; i < 50; ++i) Get("pay");
  EXPECT_GE(StatusOf("pay").wasted, 200U);
  const TagStatus status = StatusOf("pay");
  EXPECT_EQ(status.issued + status.reserve + status.wasted, status.granted);
}

TEST_F(SegmentServiceTest, TheEndOfTheNumbersIsToldLongBefore) {
  const auto near_end = static_cast<std::int64_t>(kMaxIdLimit - kFewIdsLeft);
  table_.Put("far", 1, 1000);
  table_.Put("near", near_end - 10, 1000);
  StartService();
  Run();
  EXPECT_FALSE(StatusOf("near").near_exhaustion);
  Get("near");
  Get("far");
  const IdService ids(&*service_);
  EXPECT_TRUE(StatusOf("near").near_exhaustion);
  EXPECT_FALSE(StatusOf("far").near_exhaustion);
  const auto problems = ids.Problems(service_->TagStatuses());
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].code, "near_exhaustion");
  EXPECT_EQ(problems[0].tag, "near");
  EXPECT_EQ(log_.Count(LogLevel::kWarning), 1U);
  EXPECT_TRUE(ids.GetReadiness().ready);
  // By time: what is used in the hour after the first grant would be gone in days.
  for (int i = 0; i < 60; ++i) {
    Get("far", 100'000);
    table_.Put("far", table_.MaxId("far") + 1'000'000'000'000'000, 1000);  // other nodes
    clock_.Advance(std::chrono::minutes{1});
    Run();
  }
  EXPECT_TRUE(StatusOf("far").near_exhaustion);
  EXPECT_LT(*StatusOf("far").days_to_exhaustion, 10);
}

TEST_F(SegmentServiceTest, TheEndOfTheCodesIsToldOfTagsThatHaveThem) {
  table_.Put("order", 1, 1000);
  table_.Put("pay", 1, 1000);
  Result<core::CodeEnds> ends = core::CodeEnds{{"order", 1'000'000}, {"gone", 7}};
  options_.code_ends = [&ends] { return ends; };
  StartService();
  Run();
  ASSERT_TRUE(StatusOf("order").codes_left.has_value());
  EXPECT_EQ(StatusOf("order").codes_left->end, 1'000'000U);
  EXPECT_FALSE(StatusOf("order").codes_left->days.has_value()) << "nothing was seen to move";
  EXPECT_FALSE(StatusOf("pay").codes_left.has_value());
  Get("order");
  table_.Put("order", table_.MaxId("order") + 100'000, 1000);  // other nodes, within a day
  ends = Error{ErrorCode::kUnavailable, "away", ""};
  clock_.Advance(std::chrono::hours{24});
  Run();
  EXPECT_NEAR(StatusOf("order").codes_left->days.value(), 9, 1) << "what was read last counts on";
  const IdService ids(&*service_);
  const auto problems = ids.Problems(service_->TagStatuses());
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].code, "codes_near_end");
  EXPECT_EQ(problems[0].tag, "order");
  EXPECT_TRUE(ids.GetReadiness().ready);
  table_.Put("order", 1'000'000, 1000);
  service_->RefreshNow();
  Run();
  EXPECT_EQ(StatusOf("order").codes_left->days.value(), 0);
  EXPECT_NE(ids.Problems(service_->TagStatuses())[0].message.find("have no code"), std::string::npos);
}

TEST_F(SegmentServiceTest, AtTheEndABatchGetsReserveAndRestTogetherAndTheSmallOnesAreServed) {
  table_.Put("pay", static_cast<std::int64_t>(kMaxIdLimit) - 15, 10);
  StartService();
  Run();
  ASSERT_TRUE(Get("pay")->result->ok());  // 9 in reserve, 5 left in the table
  const auto too_much = Ask("pay", 20);
  const auto batch = Ask("pay", 12);
  Pass(milliseconds{200});
  ASSERT_TRUE(too_much->done() && batch->done());
  EXPECT_EQ(too_much->code(), ErrorCode::kOverflow);
  ASSERT_TRUE(batch->result->ok()) << batch->result->error().message;
  EXPECT_EQ(batch->ids().size(), 12U);
  const auto small = Get("pay", 2);
  ASSERT_TRUE(small->result->ok());
  EXPECT_EQ(small->ids(), (std::vector<std::uint64_t>{kMaxIdLimit - 2, kMaxIdLimit - 1}));
  EXPECT_EQ(Get("pay")->code(), ErrorCode::kOverflow);
}

// The pause after grants that failed is of no use once the row was seen to be good.
TEST_F(SegmentServiceTest, AThawedTagIsGrantedAtOnceThoughGrantsHadFailedBefore) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  ASSERT_TRUE(Get("pay")->result->ok());
  // Its reserve is used up, and the pause between two tries is at its longest.
  store_.SetError(Error{ErrorCode::kUnavailable, "the store is away", ""});
  while (StatusOf("pay").failures < 9) {
    Ask("pay", 99);
    Pass(milliseconds{500});
  }
  table_.Put("pay", 50, 100);
  service_->RefreshNow();
  Run();
  ASSERT_EQ(StatusOf("pay").state, "frozen");
  store_.SetError(std::nullopt);
  table_.Put("pay", 101, 100);
  service_->RefreshNow();
  Run();
  const auto answer = Ask("pay");
  Run();
  ASSERT_TRUE(answer->done());
  EXPECT_EQ(answer->ids(), std::vector<std::uint64_t>{101});
}

TEST_F(SegmentServiceTest, AFrozenTagSaysSinceWhenAndWhatItSaw) {
  table_.Put("pay", 1, 100);
  StartService();
  Run();
  Get("pay");
  table_.Put("pay", 7, 100);
  Pass(options_.refresh_interval);
  const WallTime seen_at = clock_.Wall();
  Pass(seconds{10});
  const TagStatus status = StatusOf("pay");
  EXPECT_EQ(status.state, "frozen");
  ASSERT_TRUE(status.frozen_since.has_value());
  EXPECT_LE(*status.frozen_since, seen_at);
  EXPECT_EQ(status.max_id, 7);
  EXPECT_EQ(status.mark, 101U);
  table_.Put("pay", 101, 100);
  Pass(options_.refresh_interval);
  EXPECT_FALSE(StatusOf("pay").frozen_since.has_value());
}

TEST_F(SegmentServiceTest, WhatAThreadRemembersOfATagEndsWithTheTag) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  IdSpans spans;
  Get("pay");
  ASSERT_TRUE(service_->TryNext("pay", 1, spans));
  table_.Erase("pay");
  Pass(options_.refresh_interval);
  IdSpans none;
  EXPECT_FALSE(service_->TryNext("pay", 1, none));
  table_.Put("pay", 1000, 10);
  Pass(seconds{2});
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1000});
  // Another service in the same process and thread, with a tag of that name: its IDs are its own.
  testing::MemorySegmentStore other_table;
  testing::MemoryMarkStore other_marks{clock_};
  other_table.Put("pay", 5'000'000, 10);
  SegmentService other({}, other_table, other_marks, clock_, random_,
                       {timers_, workers_, slow_workers_, workers_}, log_);
  other.Start();
  Run();
  IdSpans first;
  EXPECT_FALSE(other.TryNext("pay", 1, first));  // nothing granted yet
  other.Next("pay", 1, {seconds{1}, seconds{1}}, [&](Result<IdSpans> result) { first = *result; });
  Run();
  ASSERT_EQ(first.total(), 1U);
  EXPECT_EQ(first.ranges().front().begin, 5'000'000U);
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{1001});
  other.Stop();
}

TEST_F(SegmentServiceTest, MoreTagsThanAllowedAreLeftOut) {
  options_.tags_max = 3;
  for (int i = 0; i < 5; ++i) table_.Put("tag" + std::to_string(i), 1, 10);
  StartService();
  Run();
  EXPECT_EQ(service_->Status().tags, 3U);
  int served = 0;
  for (int i = 0; i < 5; ++i) served += Get("tag" + std::to_string(i))->result->ok() ? 1 : 0;
  EXPECT_EQ(served, 3);
}

TEST_F(SegmentServiceTest, NamesThatDifferInCaseOrBlanksAreDifferentTags) {
  table_.Put("pay", 1, 10);
  StartService();
  Run();
  EXPECT_EQ(Get("PAY")->code(), ErrorCode::kNotFound);
  EXPECT_EQ(Get("pay ")->code(), ErrorCode::kNotFound);
  EXPECT_EQ(table_.MaxId("pay"), 1);
}

// The n-th call to the store fails, for n = 1, 2, 3 …: no repeat, and service comes back each time.
TEST_F(SegmentServiceTest, SurvivesAFailureOfAnyOneReserve) {
  for (const StoreFault fault : {StoreFault::kUnavailable, StoreFault::kLostReply}) {
    for (int nth = 0; nth < 8; ++nth) {
      table_.Put("pay", 1, 20);
      testing::MemoryMarkStore marks{clock_};
      service_.emplace(options_, store_, marks, clock_, random_,
                       SegmentExecutors{timers_, workers_, slow_workers_, workers_}, log_);
      service_->Start();
      Run();
      std::uint64_t last = 0;
      int served = 0;
      const int start = store_.reserves();
      bool failed = false;
      for (int i = 0; i < 2000 && served < 300; ++i) {
        if (!failed && store_.reserves() == start + nth) {
          store_.FailReserves(fault, 1);
          failed = true;
        }
        const auto answer = Get("pay", 1 + static_cast<std::uint64_t>(i) % 7);
        if (!answer->result->ok()) continue;
        for (const std::uint64_t id : answer->ids()) {
          ASSERT_GT(id, last) << "nth " << nth;
          last = id;
          ++served;
        }
      }
      EXPECT_GE(served, 300);
      service_->Stop();
    }
  }
}

TEST(ReadMostlyMutex, AWriterIsLetInAmongReadersThatNeverPause) {
  ReadMostlyMutex mutex;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> reads{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        const std::shared_lock lock(mutex);
        reads.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    const std::uint64_t before = reads.load();
    while (reads.load() == before) std::this_thread::yield();
    const std::unique_lock lock(mutex);  // std::shared_mutex would be waited for until the test is ended
    const std::uint64_t alone = reads.load();
    std::this_thread::yield();
    EXPECT_EQ(reads.load(), alone);
  }
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
}

// Real threads: many callers on tiny steps while tags are frozen, thawed, removed and added. No ID twice,
// ever.
TEST(SegmentServiceThreads, NeverRepeatAnIdUnderChange) {
  const sys::SystemClock clock;
  testing::FakeRandom random;
  testing::RecordingLogger log;
  testing::MemorySegmentStore table;
  testing::MemoryMarkStore marks{clock};
  sys::ThreadPool timers("timers", 1, clock);
  sys::ThreadPool workers("workers", 4, clock);
  sys::ThreadPool slow_workers("slow", 2, clock);
  SegmentOptions options;
  options.refresh_interval = milliseconds{2};
  SegmentService service(options, table, marks, clock, random, {timers, workers, slow_workers, workers}, log);
  const std::vector<std::string> tags{"a", "b", "c"};
  for (std::size_t i = 0; i < tags.size(); ++i) table.Put(tags[i], 1, static_cast<std::int64_t>(1 + i * 3));
  service.Start();

  constexpr std::size_t kIdsMax = 4'000'000;
  std::vector<std::vector<std::atomic<std::uint8_t>>> seen(tags.size());
  for (auto& bitmap : seen) bitmap = std::vector<std::atomic<std::uint8_t>>(kIdsMax);
  std::atomic<std::uint64_t> served{0};
  std::atomic<bool> stop{false};
  std::atomic<int> outstanding{0};
  const auto record = [&](std::size_t tag, const IdSpans& spans) {
    for (const IdRange& range : spans.ranges()) {
      for (std::uint64_t id = range.begin; id < range.end && id < kIdsMax; ++id) {
        EXPECT_EQ(seen[tag][id].fetch_add(1), 0) << tags[tag] << " " << id;
      }
    }
    served.fetch_add(spans.total());
  };
  std::vector<std::thread> callers;
  for (std::uint32_t caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      testing::FakeRandom mine(caller);
      while (!stop.load()) {
        const std::size_t tag = mine.Below(tags.size());
        const std::uint64_t count = 1 + mine.Below(4);
        IdSpans spans;
        if (service.TryNext(tags[tag], count, spans)) {
          record(tag, spans);
          continue;
        }
        if (outstanding.load() > 200) {
          std::this_thread::yield();
          continue;
        }
        outstanding.fetch_add(1);
        service.Next(tags[tag], count, {milliseconds{20}, milliseconds{5}}, [&, tag](Result<IdSpans> result) {
          if (result.ok()) record(tag, *result);
          outstanding.fetch_sub(1);
        });
      }
    });
  }
  // An operator with a database client, making every mistake there is.
  testing::FakeRandom operator_random(7);
  for (int i = 0; i < 150; ++i) {
    clock.WaitUntil(clock.Monotonic() + milliseconds{5});
    const std::string& tag = tags[operator_random.Below(tags.size())];
    const auto row = table.Describe(tag);
    switch (operator_random.Below(4)) {
      case 0:
        table.Erase(tag);
        break;
      case 1:
        if (row.ok()) table.Put(tag, std::max<std::int64_t>(1, row->max_id - 50), row->step);
        break;
      case 2:
        if (!row.ok()) table.Put(tag, 1, 3);
        break;
      default: {
        const auto mark = marks.Load(tag);
        table.Put(tag, static_cast<std::int64_t>(mark.ok() ? mark->end : 1) + 1,
                  1 + static_cast<std::int64_t>(operator_random.Below(5)));
      }
    }
  }
  stop.store(true);
  for (std::thread& thread : callers) thread.join();
  service.Stop();
  timers.Stop();
  workers.Stop();
  slow_workers.Stop();
  EXPECT_GT(served.load(), 1000U);
}

}  // namespace
}  // namespace leaf::service
