// What is known again by its bytes: those, and no others.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

namespace leaf::testing {

// `known` has IsNext and size, and keeps `bytes`.
template <typename Known>
void ExpectKnownByAllBytes(const Known& known, const std::string& bytes) {
  EXPECT_EQ(known.size(), bytes.size());
  EXPECT_TRUE(known.IsNext(bytes));
  EXPECT_TRUE(known.IsNext(bytes + "more"));
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(known.IsNext(bytes.substr(0, size))) << size;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string other = bytes;
    other[i] ^= 1;
    EXPECT_FALSE(known.IsNext(other)) << i;
  }
}

}  // namespace leaf::testing
