#include "leaf/java/pages.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <limits>
#include <optional>
#include <string>

namespace leaf::java {
namespace {

TEST(LeafPages, NumbersAreGroupedForTheirReader) {
  EXPECT_EQ(GroupDigits(0, ","), "0");
  EXPECT_EQ(GroupDigits(999, ","), "999");
  EXPECT_EQ(GroupDigits(1000, ","), "1,000");
  EXPECT_EQ(GroupDigits(-123456, "."), "-123.456");
  EXPECT_EQ(GroupDigits(std::numeric_limits<std::int64_t>::max(), ","), "9,223,372,036,854,775,807");
  EXPECT_EQ(GroupDigits(std::numeric_limits<std::int64_t>::min(), ","), "-9,223,372,036,854,775,808");
  for (const char* english : {"", "en", "en-GB", "*", "zh-CN,zh;q=0.9", ";;;", "de;q=0", "q=1", ","})
    EXPECT_EQ(GroupSeparator(english), ",") << english;
  for (const char* german : {"de", "DE-at", " de ; q=0.8 , en;q=0.7", "en;q=0.5,de"})
    EXPECT_EQ(GroupSeparator(german), ".") << german;
  EXPECT_EQ(GroupSeparator("fr-FR,fr;q=0.9"), "\u202F");
}

TEST(LeafPages, NothingInANameIsMarkup) {
  EXPECT_EQ(EscapeHtml("<a href=\"x\" b='y'>&"), "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;");
  const std::string page = DbPage({{"<script>", 1, 2, std::nullopt, WallTimeOf(0)}}, "");
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_NE(page.find("&lt;script&gt;"), std::string::npos);
}

TEST(LeafPages, TimesAreWrittenAsJdbcDoes) {
  setenv("TZ", "UTC", 1);
  tzset();
  EXPECT_EQ(FormatJdbc(WallTimeOf(0)), "1970-01-01 00:00:00.0");
  EXPECT_EQ(FormatJdbc(WallTimeOf(1'795'173'796'120)), "2026-11-20 11:23:16.12");
  EXPECT_EQ(FormatJdbc(WallTimeOf(1'795'173'796'100)), "2026-11-20 11:23:16.1");
  EXPECT_EQ(FormatJdbc(WallTimeOf(1'795'173'796'123)), "2026-11-20 11:23:16.123");
  unsetenv("TZ");
  tzset();
}

}  // namespace
}  // namespace leaf::java
