// A program with the library that forks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "leaf/leaf.h"
#include "support/child.h"
#include "support/temp_dir.h"

namespace leaf {
namespace {

using testing::InChild;

// Far longer than anything here takes.
constexpr std::chrono::seconds kLongEnough{60};

GeneratorOptions SegmentsIn(const std::string& state_dir, const std::string& database = "") {
  GeneratorOptions options;
  options.state_dir = state_dir;
  options.store = Sqlite{.path = database};
  return options;
}

TEST(LibraryFork, AChildGetsNoId) {
  testing::TempDir dir;
  GeneratorOptions options = SegmentsIn(dir.path());
  options.snowflake = PrivateNumber{};
  auto generators = Generators::Open(options);
  ASSERT_TRUE(generators.ok());
  ASSERT_TRUE(generators->segment().AddTag("order", 1000).ok());
  // Both have plenty in memory.
  const auto before = generators->segment().Next("order", kLongEnough);
  ASSERT_TRUE(before.ok());
  ASSERT_TRUE(generators->snowflake().Next(kLongEnough).ok());
  // Each call has its number: the exit code tells which of them was wrong.
  EXPECT_EQ(InChild([&] {
              int step = 0;
              const auto refused = [&](const auto& result) {
                ++step;
                if (result.ok() || result.error().code != ErrorCode::kRefused) _exit(step);
              };
              refused(generators->segment().Take("order"));
              refused(generators->segment().Take("order", 2));
              refused(generators->segment().Next("order", kLongEnough));
              refused(generators->segment().Next("order", 2, kLongEnough));
              refused(generators->segment().AddTag("child", 1));
              refused(generators->snowflake().Take());
              refused(generators->snowflake().Take(2));
              refused(generators->snowflake().Next(kLongEnough));
              refused(generators->snowflake().Next(2, kLongEnough));
              refused(generators->snowflake().Worker());
              generators->Close();
              { const Generators copy = std::move(*generators); }
              return 0;
            }),
            0);
  // The parent goes on, and so does its lock.
  const auto after = generators->segment().Next("order", kLongEnough);
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_EQ(*after, *before + 1);
  EXPECT_TRUE(generators->snowflake().Next(kLongEnough).ok());
  EXPECT_EQ(Generators::Open(options).error().code, ErrorCode::kRefused);
}

// SQLite would take the parent's locks for the child's: both would be granted the same range, or the parent's
// Close would remove the log with the child's.
TEST(LibraryFork, AChildDoesNotOpenASqliteFileThatItsParentHasOpen) {
  testing::TempDir dir;
  const std::string shared = dir.path() + "/shared.db";
  auto parent = Generators::Open(SegmentsIn(dir.path() + "/parent", shared));
  ASSERT_TRUE(parent.ok()) << parent.error().message;
  ASSERT_TRUE(parent->segment().AddTag("order", 10).ok());
  ASSERT_TRUE(parent->segment().Next("order", kLongEnough).ok());
  const auto refused = [](const GeneratorOptions& options) {
    const auto opened = Generators::Open(options);
    return !opened.ok() && opened.error().code == ErrorCode::kRefused;
  };
  EXPECT_EQ(InChild([&] { return refused(SegmentsIn(dir.path() + "/child", shared)) ? 0 : 1; }), 0);
  // Its connections are open until it is destroyed, and so is what the child inherits of them: its marks,
  // too.
  parent->Close();
  EXPECT_EQ(
      InChild([&] { return refused(SegmentsIn(dir.path() + "/parent", dir.path() + "/own.db")) ? 0 : 1; }),
      0);
  { const Generators gone = *std::move(parent); }
  EXPECT_EQ(InChild([&] {
              auto child = Generators::Open(SegmentsIn(dir.path() + "/child", shared));
              if (!child.ok()) return 1;
              const auto id = child->segment().Next("order", kLongEnough);
              child->Close();
              return id.ok() && *id > 10 ? 0 : 2;
            }),
            0);
}

TEST(LibraryFork, CloseGivesTheDirectoryFreeThoughAChildLives) {
  testing::TempDir dir;
  auto parent = Generators::Open(SegmentsIn(dir.path()));
  ASSERT_TRUE(parent.ok());
  const testing::IdleChild child;
  ASSERT_TRUE(child.is_there());
  parent->Close();
  const auto again = Generators::Open(SegmentsIn(dir.path()));
  EXPECT_TRUE(again.ok()) << again.error().message;
}

// Nothing can be connected to, and no loop can be made that waits for it.
TEST(LibraryFork, AClientWithoutDescriptorsSaysSo) {
  EXPECT_EQ(InChild([] {
              auto client = Client::Open({.groups = {{"http://127.0.0.1:1"}, {"unix:/nowhere"}}});
              if (!client.ok()) return 1;
              const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
              const rlimit limit{static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
              if (next < 0 || setrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
              const auto ids = client->Next("order", 1);
              if (ids.ok() || ids.error().code != ErrorCode::kUnreachable) return 3;
              return ids.error().message.find("Too many open files") != std::string::npos ? 0 : 4;
            }),
            0);
}

}  // namespace
}  // namespace leaf
