#include "leaf/core/id_layout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "leaf/base/limits.h"
#include "support/fakes.h"

namespace leaf::core {
namespace {

constexpr std::int64_t kLastGoodMillis = 3487858230208;

TEST(IdLayout, DefaultIsLeafs) {
  const IdLayout layout;
  EXPECT_EQ(layout.Bits(), "41-10-12");
  EXPECT_EQ(layout.epoch_ms(), 1288834974657);
  EXPECT_EQ(layout, *IdLayout::Parse("41-10-12", 1288834974657));
}

// IDs that Java Leaf issued, with the fields its own /decodeSnowflakeId gave for them.
TEST(IdLayout, DecodesWhatJavaLeafIssued) {
  const IdLayout layout;
  EXPECT_EQ(layout.Decompose(2123738945798799443), (IdFields{WallTimeOf(1795173796497), 0, 83}));
  EXPECT_EQ(layout.Decompose(2123737187986964571).worker, 0U);
  EXPECT_EQ(*layout.Compose({WallTimeOf(1795173796497), 0, 83}), 2123738945798799443U);
}

TEST(IdLayout, TheCornersOfLeafsLayout) {
  const IdLayout layout;
  EXPECT_EQ(*layout.Compose({WallTimeOf(kLeafEpochMillis), 0, 0}), 0U);
  EXPECT_EQ(*layout.Compose({WallTimeOf(kLeafEpochMillis), 0, 4095}), 4095U);
  EXPECT_EQ(*layout.Compose({WallTimeOf(kLeafEpochMillis), 1, 0}), 4096U);
  EXPECT_EQ(*layout.Compose({WallTimeOf(kLeafEpochMillis + 1), 0, 0}), 4194304U);
  // 2080-07-10T17:30:30.208Z is the last good millisecond; Java Leaf goes negative in the next.
  EXPECT_EQ(UnixMillis(layout.LastTime()), kLastGoodMillis);
  EXPECT_EQ(FormatRfc3339(layout.LastTime()), "2080-07-10T17:30:30.208Z");
  EXPECT_EQ(*layout.Compose({WallTimeOf(kLastGoodMillis), 1023, 4095}), kMaxIdLimit);
  const auto next = layout.Compose({WallTimeOf(kLastGoodMillis + 1), 0, 0});
  ASSERT_FALSE(next.ok());
  EXPECT_NE(next.error().message.find(std::to_string(kLastGoodMillis)), std::string::npos);
  EXPECT_EQ(layout.Decompose(kMaxIdLimit), (IdFields{WallTimeOf(kLastGoodMillis), 1023, 4095}));
}

TEST(IdLayout, NothingIsMaskedToFit) {
  const IdLayout layout;
  const WallTime time = WallTimeOf(1795173796497);
  for (const auto& fields :
       {IdFields{time, 1024, 0}, IdFields{time, 0, 4096}, IdFields{time, kMaxIdLimit, 0},
        IdFields{time, 0, ~std::uint64_t{0}}, IdFields{WallTimeOf(kLeafEpochMillis - 1), 0, 0},
        IdFields{WallTimeOf(-1), 0, 0}, IdFields{WallTime::min(), 0, 0}, IdFields{WallTime::max(), 0, 0}}) {
    const auto id = layout.Compose(fields);
    ASSERT_FALSE(id.ok());
    EXPECT_EQ(id.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(layout.Compose({time, 1024, 0}).error().message,
            "worker 1024 is not in 0..1023 (layout 41-10-12)");
  EXPECT_EQ(layout.Compose({time, 0, 4096}).error().message,
            "sequence 4096 is not in 0..4095 (layout 41-10-12)");
}

TEST(IdLayout, BadLayoutsAreRefused) {
  for (const char* bits : {"", "41", "41-10", "41-10-12-0", "41-10-13", "0-51-12", "41-0-22", "53-10-0",
                           "-1-52-12", "41--10-12", "41-10-12 ", " 41-10-12", "+41-10-12", "a-b-c", "41-10-",
                           "4294967337-10-12", "2147483647-2147483647-65", "63-0-0"}) {
    const auto layout = IdLayout::Parse(bits, 0);
    ASSERT_FALSE(layout.ok()) << bits;
    EXPECT_EQ(layout.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(IdLayout::Parse("41--10-12", 0).error().message,
            "bad layout '41--10-12': not TIME-WORKER-SEQUENCE bits such as 41-10-12");
  EXPECT_FALSE(IdLayout::Parse("41-10-12", -1).ok());
  EXPECT_FALSE(IdLayout::Parse("41-10-12", kEpochMillisMax + 1).ok());
  EXPECT_TRUE(IdLayout::Parse("41-10-12", 0).ok());
  EXPECT_TRUE(IdLayout::Parse("61-1-1", kEpochMillisMax).ok());
}

TEST(IdLayout, EncodeInvertsDecodeOverAllWidths) {
  testing::FakeRandom random(4);
  int splits = 0;
  for (int time_bits = 1; time_bits <= 61; ++time_bits) {
    for (int worker_bits = 1; time_bits + worker_bits <= 62; ++worker_bits) {
      const auto epoch = static_cast<std::int64_t>(random.Below(kEpochMillisMax + 1));
      const auto layout = IdLayout::Make(time_bits, worker_bits, 63 - time_bits - worker_bits, epoch);
      ASSERT_TRUE(layout.ok());
      ++splits;
      EXPECT_EQ(*layout, *IdLayout::Parse(layout->Bits(), epoch));
      for (int i = 0; i < 20; ++i) {
        const IdFields fields{WallTimeOf(epoch + static_cast<std::int64_t>(random.Below(
                                                     static_cast<std::uint64_t>(layout->time_end())))),
                              random.Below(layout->worker_end()), random.Below(layout->sequence_end())};
        const auto id = layout->Compose(fields);
        ASSERT_TRUE(id.ok()) << id.error().message;
        ASSERT_LT(*id, kIdEnd);
        ASSERT_EQ(layout->Decompose(*id), fields);
        const std::uint64_t any = random.Next() >> 1;
        ASSERT_EQ(*layout->Compose(layout->Decompose(any)), any);
      }
      EXPECT_EQ(*layout->Compose({layout->LastTime(), layout->worker_end() - 1, layout->sequence_end() - 1}),
                kMaxIdLimit);
    }
  }
  EXPECT_EQ(splits, 1891);  // ways to split 63 bits in three, none empty
}

}  // namespace
}  // namespace leaf::core
