#include "leaf/client/load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace leaf::client {
namespace {

using std::chrono::microseconds;

TEST(LatencyHistogram, IsEmptyAtFirst) {
  const LatencyHistogram histogram;
  EXPECT_EQ(histogram.count(), 0U);
  EXPECT_EQ(histogram.max(), microseconds{0});
  EXPECT_EQ(histogram.AtShare(0.99), microseconds{0});
}

// The latency at a share is that of the sorted list, at most 1/32 above it and never below.
TEST(LatencyHistogram, TellsSharesWithinABucket) {
  LatencyHistogram histogram;
  std::vector<std::int64_t> latencies;
  std::uint64_t state = 1;
  for (int i = 0; i < 100'000; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    // Of every magnitude from microseconds to minutes.
    latencies.push_back(static_cast<std::int64_t>((state >> 33) >> (state % 25)));
    histogram.Add(microseconds{latencies.back()});
  }
  std::sort(latencies.begin(), latencies.end());
  EXPECT_EQ(histogram.count(), latencies.size());
  EXPECT_EQ(histogram.max().count(), latencies.back());
  for (const double share : {0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto rank = static_cast<std::size_t>(share * static_cast<double>(latencies.size()) + 0.5) - 1;
    const std::int64_t exact = latencies[rank];
    const std::int64_t told = histogram.AtShare(share).count();
    EXPECT_GE(told, exact) << share;
    EXPECT_LE(told, exact + exact / 32 + 1) << share;
  }
}

TEST(LatencyHistogram, TakesWhatIsOutOfItsRange) {
  LatencyHistogram histogram;
  histogram.Add(microseconds{-5});
  histogram.Add(std::chrono::hours{24 * 365});
  EXPECT_EQ(histogram.AtShare(0.5), microseconds{0});
  EXPECT_EQ(histogram.AtShare(1.0).count() > 0, true);
  EXPECT_EQ(histogram.max(), std::chrono::hours{24 * 365});
}

TEST(Load, NamesAServerThatIsNotThere) {
  const auto refused = RunLoad({.server = "http://127.0.0.1:1",
                                .target = "/v1/snowflake",
                                .connections = 2,
                                .duration = std::chrono::seconds{1},
                                .timeout = std::chrono::seconds{60}},
                               [](const LoadReport&) {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnreachable);
  EXPECT_NE(refused.error().message.find("127.0.0.1:1"), std::string::npos);
}

}  // namespace
}  // namespace leaf::client
