// What every protocol asks for: limits, take, park, withdraw, without a protocol.
#include "leaf/server/issue/issuer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unit/server/router_fixture.h"

namespace leaf::server {
namespace {

using std::chrono::milliseconds;

class IssuerTest : public server::RouterFixture {
 protected:
  IssuerTest() { StartService(); }

  static IdRequest Of(std::string_view tag, std::uint64_t count = 1) {
    return {.source = IdSource::kSegment, .tag = tag, .count = count, .patience = {kPatience, kPatience}};
  }
  static std::uint64_t FirstOf(const IssuedIds& ids) {
    return ids.With([](std::span<const IdRange> ranges) { return ranges.front().begin; });
  }
  static std::uint64_t CountOf(const IssuedIds& ids) {
    return ids.With([](std::span<const IdRange> ranges) {
      std::uint64_t count = 0;
      for (const IdRange& range : ranges) count += range.size();
      return count;
    });
  }
  Issuer::Done Keep() {
    return [this](const Result<IssuedIds>& result) {
      EXPECT_FALSE(result_.has_value()) << "once";
      result_ = result;
    };
  }

  static constexpr milliseconds kPatience{1000};
  service::RequestLimit limit_{clock_};
  Issuer issuer_{{.max_count = 50, .limit = &limit_}, ids_};
  std::optional<Result<IssuedIds>> result_;
};

TEST_F(IssuerTest, WhatIsNotInReserveIsParkedAndServed) {
  IssuedIds ids;
  ASSERT_FALSE(issuer_.TryTake(Of("pay"), ids)) << "nothing was granted yet";
  EXPECT_TRUE(issuer_.Park(Of("pay", 3), Keep()));
  EXPECT_FALSE(result_.has_value());
  Run();
  ASSERT_TRUE(result_ && result_->ok());
  EXPECT_EQ(CountOf(**result_), 3U);
  ASSERT_TRUE(issuer_.TryTake(Of("pay", 2), ids));
  EXPECT_EQ(CountOf(ids), 2U);
  EXPECT_EQ(FirstOf(ids), FirstOf(**result_) + 3);
}

TEST_F(IssuerTest, AWithdrawnRequestEndsOnceAndTakesNothing) {
  const Issuer::Withdraw withdraw = issuer_.Park(Of("pay", 3), Keep());
  ASSERT_TRUE(withdraw);
  withdraw();
  ASSERT_TRUE(result_ && !result_->ok());
  EXPECT_EQ(result_->error().code, ErrorCode::kExhausted);
  withdraw();
  Run();
  EXPECT_EQ(service_.StatusOf("pay")->waiting, 0U);
}

TEST_F(IssuerTest, TheErrorTellsWhatIsWrong) {
  EXPECT_FALSE(issuer_.Park(Of("unknown"), Keep()) && result_.has_value());
  Run();
  ASSERT_TRUE(result_ && !result_->ok());
  EXPECT_EQ(result_->error().code, ErrorCode::kNotFound);
  EXPECT_EQ(issuer_.CheckCount(IdSource::kSegment, 51).error().code, ErrorCode::kTooLarge);
  issuer_.SetMaxCount(51);
  EXPECT_TRUE(issuer_.CheckCount(IdSource::kSegment, 51).ok());
  EXPECT_EQ(issuer_.Refuse({.source = IdSource::kSnowflake})->code, ErrorCode::kDisabled);
  EXPECT_FALSE(issuer_.Refuse(Of("pay")).has_value());
}

// Codes that are opened when the test says so.
class SlowDesk final : public CodeDesk {
 public:
  bool is_on() const override { return on; }
  Codes Find(std::string_view, Purpose) const override { return codes; }
  void Open(std::string_view tag, Purpose, Opened opened) override {
    EXPECT_EQ(tag, "pay");
    waiting.push_back(std::move(opened));
  }
  void Answer(const Result<Codes>& result) {
    if (result.ok()) codes = *result;
    for (const Opened& opened : std::exchange(waiting, {})) opened(result);
  }
  static Codes Any() {
    return codes::TagCodes::Make(
               {.tag = "pay", .alphabet = "decimal", .check = true, .lengths = {12}, .key = ""}, {}, "pay", 4)
        .value();
  }
  bool on = true;
  Codes codes;
  std::vector<Opened> waiting;
};

class IssuerOfCodes : public IssuerTest {
 protected:
  static IdRequest CodesOf(std::string_view tag) {
    IdRequest request = Of(tag, 2);
    request.as_code = true;
    return request;
  }
  SlowDesk desk_;
  Issuer coder_{{.codes = &desk_, .timers = &timers_, .clock = &clock_}, ids_};
};

TEST_F(IssuerOfCodes, NoIdIsTakenBeforeItsCodesAreOpen) {
  IssuedIds ids;
  issuer_.Park(Of("pay"), Keep());
  Run();
  ASSERT_TRUE(result_ && result_->ok());
  const std::uint64_t first = FirstOf(**result_);
  result_.reset();
  EXPECT_FALSE(coder_.TryTake(CodesOf("pay"), ids)) << "though there are IDs in reserve";
  EXPECT_TRUE(coder_.Park(CodesOf("pay"), Keep()));
  EXPECT_FALSE(result_.has_value());
  desk_.Answer(Error{ErrorCode::kConfig, "another key", ""});
  ASSERT_TRUE(result_ && !result_->ok());
  EXPECT_EQ(result_->error().code, ErrorCode::kConfig);
  result_.reset();
  coder_.Park(CodesOf("pay"), Keep());
  desk_.Answer(SlowDesk::Any());
  ASSERT_TRUE(result_ && result_->ok());
  EXPECT_EQ(FirstOf(**result_), first + 1) << "the refused request took nothing";
  EXPECT_TRUE(coder_.TryTake(CodesOf("pay"), ids));
  EXPECT_NE(ids.codes(), nullptr);
}

TEST_F(IssuerOfCodes, ARequestIsGivenUpAtEveryMoment) {
  // Before the codes are open.
  Issuer::Withdraw withdraw = coder_.Park(CodesOf("pay"), Keep());
  withdraw();
  ASSERT_TRUE(result_ && !result_->ok());
  EXPECT_EQ(result_->error().code, ErrorCode::kExhausted);
  desk_.Answer(Error{ErrorCode::kUnavailable, "late", ""});
  result_.reset();
  // While it waits for IDs.
  withdraw = coder_.Park(CodesOf("pay"), Keep());
  desk_.Answer(SlowDesk::Any());
  EXPECT_FALSE(result_.has_value());
  EXPECT_EQ(service_.StatusOf("pay")->waiting, 1U);
  withdraw();
  ASSERT_TRUE(result_ && !result_->ok());
  Run();
  EXPECT_EQ(service_.StatusOf("pay")->waiting, 0U);
  withdraw();
  // After it was answered.
  result_.reset();
  withdraw = coder_.Park(CodesOf("pay"), Keep());
  Run();
  ASSERT_TRUE(result_ && result_->ok());
  if (withdraw) withdraw();
}

// The database is away, and many tags wait for it one after the other.
TEST_F(IssuerOfCodes, ARequestWaitsForItsCodesNoLongerThanItWaitsAtAll) {
  coder_.Park(CodesOf("pay"), Keep());
  clock_.Advance(kPatience - milliseconds{1});
  Run();
  EXPECT_FALSE(result_.has_value());
  clock_.Advance(milliseconds{1});
  Run();
  ASSERT_TRUE(result_ && !result_->ok());
  EXPECT_EQ(result_->error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(result_->error().message,
            "the codes of tag 'pay' are not open yet: the database has not answered in time");
  // Its codes come late, and serve the next request. What is left of its wait is for the IDs.
  result_.reset();
  coder_.Park(CodesOf("pay"), Keep());
  clock_.Advance(milliseconds{900});
  desk_.Answer(SlowDesk::Any());
  EXPECT_FALSE(result_.has_value());
  clock_.Advance(milliseconds{100});
  while (timers_.RunOne()) {
  }
  ASSERT_TRUE(result_ && !result_->ok());
  EXPECT_EQ(result_->error().code, ErrorCode::kExhausted);
}

TEST_F(IssuerOfCodes, TheCodesOfARequestAreThoseThatWereOpenedForIt) {
  const auto older = SlowDesk::Any();
  desk_.codes = older;
  coder_.Park(CodesOf("pay"), Keep());
  EXPECT_FALSE(result_.has_value());
  // A reload, while it waits for IDs.
  desk_.codes = nullptr;
  Run();
  ASSERT_TRUE(result_ && result_->ok());
  EXPECT_EQ((*result_)->codes(), older);
  // The next one has them opened again.
  IssuedIds ids;
  EXPECT_FALSE(coder_.TryTake(CodesOf("pay"), ids));
  result_.reset();
  coder_.Park(CodesOf("pay"), Keep());
  const auto newer = SlowDesk::Any();
  desk_.Answer(newer);
  ASSERT_TRUE(result_ && result_->ok());
  EXPECT_EQ((*result_)->codes(), newer);
}

TEST_F(IssuerOfCodes, SaysWhereThereAreNone) {
  desk_.on = false;
  EXPECT_EQ(coder_.Refuse(CodesOf("pay"))->code, ErrorCode::kConfig);
  EXPECT_EQ(coder_.codes(), nullptr);
  desk_.on = true;
  EXPECT_EQ(issuer_.Refuse(CodesOf("pay"))->code, ErrorCode::kConfig);
  EXPECT_FALSE(coder_.Refuse(CodesOf("pay")).has_value());
  EXPECT_EQ(coder_.Refuse(CodesOf("snowflake"))->code, ErrorCode::kRefused);
}

TEST_F(IssuerTest, LimitsHoldForEachTagAndForAll) {
  limit_.Set(0, 5);
  std::optional<Error> refused;
  for (int i = 0; i < 20 && !refused; ++i) refused = issuer_.Refuse(Of("pay"));
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code, ErrorCode::kLimited);
  EXPECT_NE(refused->message.find("pay"), std::string::npos);
  EXPECT_FALSE(issuer_.Refuse(Of("order")).has_value());
  EXPECT_FALSE(issuer_.RefuseOther().has_value()) << "the limit of one tag is no limit of other requests";
  limit_.Set(5, 0);
  refused.reset();
  for (int i = 0; i < 20 && !refused; ++i) refused = issuer_.RefuseOther();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code, ErrorCode::kLimited);
}

TEST_F(IssuerTest, ALookTakesNothing) {
  std::optional<bool> can;
  const auto look = [&](std::string_view tag) {
    can.reset();
    issuer_.Look(Of(tag), [&](const Result<void>& result) { can = result.ok(); });
    Run();
    return can;
  };
  EXPECT_EQ(look("pay"), true);
  EXPECT_EQ(look("unknown"), false);
  EXPECT_EQ(service_.StatusOf("pay")->granted, 0U);
}

}  // namespace
}  // namespace leaf::server
