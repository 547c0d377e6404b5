// Which task gets which connection, how many there are, and what is done with a server that accepts no more.
#include "leaf/sql/connection_pool.h"

#include <gtest/gtest.h>
#include <soci/soci.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/fakes.h"

namespace leaf::sql {
namespace {

using std::chrono::seconds;
using Place = ConnectionPool::Place;

class ConnectionPoolTest : public ::testing::Test {
 protected:
  static PooledConnection NewConnection() { return {std::make_unique<soci::session>(), 0}; }
  // A place with a connection; nullopt if none is free now.
  std::optional<Place> Take(Use use = Use::kOrdinary) {
    auto place = pool_.Take(use, clock_.Monotonic());
    if (!place.ok()) {
      problem_ = place.error();
      return std::nullopt;
    }
    if (!place->connection().session) {
      ++made_;
      pool_.Made(*place, NewConnection());
    }
    return std::move(*place);
  }
  std::vector<Place> TakeAll(Use use, std::size_t count) {
    std::vector<Place> places;
    for (std::size_t i = 0; i < count; ++i) {
      auto place = Take(use);
      EXPECT_TRUE(place) << i;
      if (place) places.push_back(std::move(*place));
    }
    EXPECT_FALSE(Take(use));
    return places;
  }
  // A task that asks the server for a connection and is refused. Returns whether it is to wait for one that
  // is up.
  bool AskAndBeRefused() {
    auto place = pool_.Take(Use::kOrdinary, clock_.Monotonic());
    EXPECT_TRUE(place.ok() && !place->connection().session) << "it asks";
    return place.ok() && pool_.Refused(std::move(*place), kFull);
  }
  // A task that waits for a place; false if it got none.
  std::future<bool> Wait(Use use, std::vector<std::string>& order, std::string name) {
    const std::size_t before = pool_.waiting();
    auto waiting = std::async(std::launch::async, [this, use, &order, name = std::move(name)] {
      auto place = pool_.Take(use, clock_.Monotonic() + std::chrono::hours{1});
      if (!place.ok()) return false;
      if (!place->connection().session) pool_.Made(*place, NewConnection());
      order.push_back(name);  // without a lock: the tasks have the only place one after the other
      pool_.GiveBack(std::move(*place));
      return true;
    });
    while (pool_.waiting() == before) std::this_thread::yield();
    return waiting;
  }

  const Error kFull{ErrorCode::kUnavailable, "Too many connections (MySQL error 1040)", ""};
  testing::FakeClock clock_;
  testing::RecordingLogger log_;
  ConnectionPool pool_{
      {.connections_max = 8, .idle_kept = 2, .idle_time = seconds{10}, .wait = seconds{4}}, &clock_, &log_};
  Error problem_;
  int made_ = 0;
};

TEST_F(ConnectionPoolTest, ThereAreNoMoreThanItMayHave) {
  auto places = TakeAll(Use::kOrdinary, 8);
  EXPECT_EQ(problem_.code, ErrorCode::kUnavailable);
  EXPECT_EQ(problem_.message, "all 8 connections to the database are busy");
  EXPECT_NE(problem_.hint.find("mysql.max_connections"), std::string::npos);
  EXPECT_EQ(pool_.open(), 8U);
  pool_.GiveBack(std::move(places.back()));
  places.pop_back();
  EXPECT_EQ(pool_.up(), 8U);
  EXPECT_TRUE(Take()) << "the one that was given back";
  EXPECT_EQ(made_, 8);
  places.pop_back();
  EXPECT_EQ(pool_.up(), 6U);
  EXPECT_EQ(pool_.open(), 6U) << "one ended with its place, and so did the one before";
}

TEST_F(ConnectionPoolTest, TwoAreKeptAndTheOthersAreClosedOnceTheyHaveRested) {
  for (Place& place : TakeAll(Use::kOrdinary, 8)) pool_.GiveBack(std::move(place));
  pool_.CloseIdle();
  EXPECT_EQ(pool_.open(), 8U);
  clock_.Advance(seconds{9});
  pool_.GiveBack(*Take());
  EXPECT_EQ(pool_.open(), 8U);
  clock_.Advance(seconds{1});
  pool_.CloseIdle();
  EXPECT_EQ(pool_.open(), 2U);
  EXPECT_EQ(made_, 8);
  clock_.Advance(std::chrono::hours{1});
  pool_.CloseIdle();
  EXPECT_EQ(pool_.open(), 2U);
}

TEST_F(ConnectionPoolTest, ATaskThatEndsClosesWhatHasRested) {
  for (Place& place : TakeAll(Use::kOrdinary, 8)) pool_.GiveBack(std::move(place));
  clock_.Advance(seconds{10});
  pool_.GiveBack(*Take());
  EXPECT_EQ(pool_.open(), 2U);
}

TEST_F(ConnectionPoolTest, AnUrgentTaskHasAPlaceOfItsOwn) {
  pool_.ReserveUrgentPlace();
  const auto places = TakeAll(Use::kOrdinary, 7);
  EXPECT_TRUE(Take(Use::kUrgent));
}

TEST_F(ConnectionPoolTest, TasksThatWaitForRowsHaveHalfOfThePlaces) {
  const auto patient = TakeAll(Use::kPatient, 4);
  EXPECT_NE(problem_.message.find("locked by another client"), std::string::npos) << problem_.message;
  const auto others = TakeAll(Use::kOrdinary, 4);
}

TEST_F(ConnectionPoolTest, PlacesAreGivenInOrderButForUrgentTasks) {
  auto places = TakeAll(Use::kOrdinary, 8);
  std::vector<std::string> order;
  std::vector<std::future<bool>> waiting;
  waiting.push_back(Wait(Use::kOrdinary, order, "first"));
  waiting.push_back(Wait(Use::kPatient, order, "second"));
  waiting.push_back(Wait(Use::kOrdinary, order, "third"));
  waiting.push_back(Wait(Use::kUrgent, order, "urgent"));
  pool_.GiveBack(std::move(places.back()));
  for (auto& one : waiting) EXPECT_TRUE(one.get());
  EXPECT_EQ(order, (std::vector<std::string>{"urgent", "first", "second", "third"}));
}

TEST_F(ConnectionPoolTest, AServerThatIsFullIsAskedByOneAtATimeAfterAGrowingPause) {
  EXPECT_FALSE(AskAndBeRefused()) << "there is none to wait for";
  for (const int pause : {1, 2, 4, 8, 8}) {
    clock_.Advance(seconds{pause} - std::chrono::nanoseconds{1});
    EXPECT_FALSE(Take());
    EXPECT_EQ(problem_.message, kFull.message);
    clock_.Advance(std::chrono::nanoseconds{1});
    EXPECT_FALSE(AskAndBeRefused());
  }
  clock_.Advance(seconds{8});
  {
    auto asks = pool_.Take(Use::kOrdinary, clock_.Monotonic());
    ASSERT_TRUE(asks.ok());
    EXPECT_FALSE(Take()) << "one asks already";
    pool_.Made(*asks, NewConnection());
    const auto others = TakeAll(Use::kOrdinary, 7);
  }
  EXPECT_EQ(log_.Count(LogLevel::kWarning, "accepts no more connections"), 1U);
  EXPECT_EQ(log_.Count(LogLevel::kInfo, "accepts new connections again"), 1U);
}

TEST_F(ConnectionPoolTest, OfAFullServerTheConnectionsThatAreUpAreShared) {
  pool_.ReserveUrgentPlace();
  auto one = Take();
  auto other = Take();
  EXPECT_TRUE(AskAndBeRefused()) << "two to wait for";
  EXPECT_FALSE(Take());
  EXPECT_NE(problem_.message.find("all 2 connections that the server allows are busy"), std::string::npos)
      << problem_.message;
  pool_.GiveBack(std::move(*one));
  one = std::nullopt;
  EXPECT_TRUE(Take()) << "what was given back, and nothing is kept for urgent tasks";
  EXPECT_EQ(made_, 2);
}

TEST_F(ConnectionPoolTest, WhileAllConnectionsOfAFullServerAreBusyMoreAreAskedFor) {
  pool_.ReserveUrgentPlace();
  auto only = Take();
  EXPECT_TRUE(AskAndBeRefused());
  std::vector<std::string> order;
  auto waiting = Wait(Use::kOrdinary, order, "waits");
  clock_.Advance(seconds{1});
  EXPECT_TRUE(waiting.get()) << "it asks by itself";
  EXPECT_EQ(pool_.open(), 2U);
}

TEST_F(ConnectionPoolTest, AFullServerThatIsNotTrustedAnyMoreIsAskedAtOnce) {
  EXPECT_FALSE(AskAndBeRefused());
  EXPECT_FALSE(Take());
  pool_.DropIdle();
  EXPECT_TRUE(Take());
}

TEST_F(ConnectionPoolTest, AServerThatIsAwayFailsAllThatWaitForIt) {
  std::vector<Place> places;
  for (int i = 0; i < 8; ++i) places.push_back(*pool_.Take(Use::kOrdinary, clock_.Monotonic()));
  std::vector<std::string> order;
  auto waiting = Wait(Use::kOrdinary, order, "waits");
  const Error away{ErrorCode::kUnavailable, "away", ""};
  pool_.Failed(std::move(places.back()), away);
  EXPECT_FALSE(waiting.get());
}

TEST_F(ConnectionPoolTest, AConnectionThatDiedTakesThoseThatRestWithIt) {
  auto places = TakeAll(Use::kOrdinary, 8);
  for (int i = 0; i < 5; ++i) {
    pool_.GiveBack(std::move(places.back()));
    places.pop_back();
  }
  auto dead = *Take();
  pool_.Discard(dead);
  EXPECT_EQ(pool_.open(), 4U) << "three work, and one place is without a connection";
  EXPECT_EQ(pool_.up(), 3U);
  EXPECT_FALSE(dead.connection().session);
  pool_.Made(dead, NewConnection());
  EXPECT_EQ(pool_.open(), 4U);
}

}  // namespace
}  // namespace leaf::sql
