// What every protocol asks for: limits, take, park, withdraw, without a protocol.
#include "leaf/server/issue/issuer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

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
