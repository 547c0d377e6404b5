#include "leaf/base/foreign_text.h"

#include <gtest/gtest.h>

#include <string>

#include "leaf/base/foreign_json.h"

namespace leaf {
namespace {

std::string Times(int count, const std::string& text) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(ForeignText, JsonThatNestsDeeplyIsNone) {
  EXPECT_TRUE(ParseForeignJson(Times(100, "[") + Times(100, "]")).is_array());
  EXPECT_TRUE(ParseForeignJson(Times(101, "[") + Times(101, "]")).is_discarded());
  EXPECT_TRUE(ParseForeignJson(Times(200'000, "{\"a\":[") + "1" + Times(200'000, "]}")).is_discarded());
  EXPECT_TRUE(ParseForeignJson("[1,").is_discarded());
  EXPECT_TRUE(ParseForeignJson("").is_discarded());
}

TEST(ForeignText, BracketsInStringsAreText) {
  const std::string brackets = Times(300, "[");
  EXPECT_EQ(ParseForeignJson("[\"" + brackets + "\"]").at(0), brackets);
  EXPECT_EQ(ParseForeignJson("[\"\\\"" + brackets + "\"]").at(0), "\"" + brackets);
  // One after the other is not one in the other.
  EXPECT_EQ(ParseForeignJson("[" + Times(300, "[],") + "1]").size(), 301U);
}

TEST(ForeignText, AKeyOfManyPartsIsDeep) {
  EXPECT_FALSE(HasDeepTomlKey(Times(1000, "a.") + "a = 1\n"));
  EXPECT_TRUE(HasDeepTomlKey(Times(1001, "a.") + "a = 1\n"));
  EXPECT_TRUE(HasDeepTomlKey("x = 1\n[" + Times(1001, "a.") + "a]\n"));
  // Of several lines each has its own.
  EXPECT_FALSE(HasDeepTomlKey(Times(1000, "a.b = 0.5\n")));
}

TEST(ForeignText, DotsInStringsAreTextAndAnEscapedQuoteDoesNotEndOne) {
  const std::string dots = Times(1001, ".");
  EXPECT_FALSE(HasDeepTomlKey("x = \"" + dots + "\"\n"));
  EXPECT_FALSE(HasDeepTomlKey("x = '" + dots + "'\n"));
  EXPECT_FALSE(HasDeepTomlKey("x = \"\\\"" + dots + "\"\n"));
  EXPECT_TRUE(HasDeepTomlKey("\"\\\"\"" + Times(1001, ".a") + " = 1\n"));
  EXPECT_TRUE(HasDeepTomlKey("'\\'" + Times(1001, ".a") + " = 1\n"));
  // A string of three quotes goes over lines, and may end with up to five.
  for (const char quote : {'"', '\''}) {
    const std::string ends(3, quote);
    EXPECT_FALSE(HasDeepTomlKey("x = " + ends + "\n" + dots + "\n" + ends + "\n"));
    EXPECT_TRUE(HasDeepTomlKey("x = { a = " + ends + "\n" + ends + ", b" + Times(1001, ".b") + " = 1 }\n"));
    EXPECT_TRUE(HasDeepTomlKey("x = { a = " + ends + "a" + ends + ends[0] + ends[0] + ", b" +
                               Times(1001, ".b") + " = 1 }\n"));
  }
  EXPECT_TRUE(HasDeepTomlKey("\"\"" + Times(1001, ".a") + " = 1\n")) << "an empty part";
  EXPECT_FALSE(HasDeepTomlKey("# " + dots + "\nx = 1 # " + dots + "\n"));
  EXPECT_TRUE(HasDeepTomlKey("# \"\"\"\n" + Times(1001, "a.") + "a = 1\n"));
  // A string that is not ended is over with its line.
  EXPECT_TRUE(HasDeepTomlKey("x = \"\\\n" + Times(1001, "a.") + "a = 1\n"));
}

}  // namespace
}  // namespace leaf
