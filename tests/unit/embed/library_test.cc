// The library as a program uses it: on real files, with its own threads.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "leaf/base/mutex.h"
#include "leaf/leaf.h"
#include "support/scale.h"
#include "support/temp_dir.h"

namespace leaf {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Far longer than anything here takes.
constexpr seconds kPatience{60};

GeneratorOptions In(const std::string& state_dir) {
  GeneratorOptions options;
  options.state_dir = state_dir;
  return options;
}

GeneratorOptions WithBothModesIn(const std::string& state_dir) {
  GeneratorOptions options = In(state_dir);
  options.snowflake = PrivateNumber{};
  return options;
}

template <typename T>
ErrorCode CodeOf(const Result<T>& result) {
  EXPECT_FALSE(result.ok());
  return result.ok() ? ErrorCode::kInternal : result.error().code;
}

std::uint64_t CountOf(const IdRanges& ranges) {
  std::uint64_t count = 0;
  for (const IdRange& range : ranges) count += range.size();
  return count;
}

// Fails if any two overlap.
void ExpectDisjoint(IdRanges ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    ASSERT_GE(ranges[i].begin, ranges[i - 1].end) << "an ID twice";
  }
}

// ---- segments
// ------------------------------------------------------------------------------------------------------

TEST(Library, SegmentIds) {
  testing::TempDir dir;
  auto generators = Generators::Open(In(dir.path() + "/state"));
  ASSERT_TRUE(generators.ok()) << generators.error().message;
  SegmentGenerator& segment = generators->segment();
  EXPECT_EQ(CodeOf(segment.Next("pay", kPatience)), ErrorCode::kNotFound);
  ASSERT_TRUE(segment.AddTag("order", 100).ok());
  EXPECT_EQ(CodeOf(segment.AddTag("order", 100)), ErrorCode::kAlreadyExists);
  EXPECT_EQ(CodeOf(segment.AddTag("pay", 0)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(segment.AddTag("a/b", 1)), ErrorCode::kInvalidArgument);

  const auto first = segment.Next("order", kPatience);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(*first, 1U);
  // More than a step, all or none.
  const auto batch = segment.Next("order", 250, kPatience);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  EXPECT_EQ(CountOf(*batch), 250U);
  EXPECT_GT(batch->front().begin, *first);
  ExpectDisjoint(*batch);
  EXPECT_EQ(CodeOf(segment.Next("order", 0, kPatience)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(segment.Take("order", 0)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(segment.Take("order", 100'001)), ErrorCode::kTooLarge);
  EXPECT_EQ(CodeOf(segment.Take("")), ErrorCode::kInvalidArgument);
}

TEST(Library, TakeAsksForWhatALaterTakeFinds) {
  testing::TempDir dir;
  auto generators = Generators::Open(In(dir.path()));
  ASSERT_TRUE(generators.ok());
  SegmentGenerator& segment = generators->segment();
  const auto added = segment.AddTag("order", 100);
  ASSERT_TRUE(added.ok()) << added.error().message;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  std::optional<std::uint64_t> id;
  while (!id && std::chrono::steady_clock::now() < deadline) {
    const auto taken = segment.Take("order");
    if (taken.ok()) {
      id = *taken;
    } else {
      ASSERT_EQ(taken.error().code, ErrorCode::kExhausted) << taken.error().message;
      std::this_thread::yield();
    }
  }
  ASSERT_TRUE(id.has_value());
  // The refused call used up no ID.
  EXPECT_EQ(*id, 1U);
}

// By name and by handle, beside each other: no ID twice, and each taker's rise.
TEST(Library, AHandleTakesWhatItsTagHas) {
  testing::TempDir dir;
  auto generators = Generators::Open(In(dir.path()));
  ASSERT_TRUE(generators.ok());
  SegmentGenerator& segment = generators->segment();
  TagHandle early = segment.Tag("order");
  EXPECT_EQ(CodeOf(segment.Tag("").Take()), ErrorCode::kInvalidArgument);
  ASSERT_TRUE(segment.AddTag("order", 100).ok());
  std::vector<std::vector<std::uint64_t>> taken(3);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    threads.emplace_back([&segment, &ids = taken[i], by_name = i == 0] {
      TagHandle handle = segment.Tag("order");
      const auto deadline = std::chrono::steady_clock::now() + kPatience;
      while (ids.size() < 2000 && std::chrono::steady_clock::now() < deadline) {
        const auto id = by_name ? segment.Take("order") : handle.Take();
        if (id.ok()) {
          ids.push_back(*id);
        } else {
          ASSERT_EQ(id.error().code, ErrorCode::kExhausted) << id.error().message;
          std::this_thread::yield();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::uint64_t> all;
  for (const auto& ids : taken) {
    EXPECT_EQ(ids.size(), 2000U);
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
    all.insert(all.end(), ids.begin(), ids.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end()) << "an ID twice";
  // Asked for before there was the tag.
  std::optional<Result<std::uint64_t>> id;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  do {
    id = early.Take();
  } while (!id->ok() && std::chrono::steady_clock::now() < deadline);
  ASSERT_TRUE(id->ok()) << id->error().message;
  EXPECT_FALSE(std::binary_search(all.begin(), all.end(), **id));
  generators->Close();
  EXPECT_EQ(CodeOf(early.Take()), ErrorCode::kUnavailable);
}

TEST(Library, ATagThatWasAddedIsThereAtOnce) {
  for (int life = 0; life < testing::Scaled(20); ++life) {
    testing::TempDir dir;
    // Both modes make their files at the same time.
    auto generators = Generators::Open(WithBothModesIn(dir.path() + "/state"));
    ASSERT_TRUE(generators.ok()) << generators.error().message;
    SegmentGenerator& segment = generators->segment();
    for (const char* const tag : {"order", "pay", "mail"}) {
      EXPECT_EQ(CodeOf(segment.Next(tag, kPatience)), ErrorCode::kNotFound);
      const auto added = segment.AddTag(tag, 10);
      ASSERT_TRUE(added.ok()) << added.error().message;
      const auto first = segment.Next(tag, kPatience);
      ASSERT_TRUE(first.ok()) << first.error().message;
      EXPECT_EQ(*first, 1U);
    }
  }
}

TEST(Library, WithoutItsStateDirectoryItIssuesNothing) {
  testing::TempDir dir;
  std::error_code ignored;
  const std::string state = dir.path() + "/state";
  auto first = Generators::Open(WithBothModesIn(state));
  ASSERT_TRUE(first.ok()) << first.error().message;
  ASSERT_TRUE(first->segment().AddTag("order", 10).ok());
  ASSERT_TRUE(first->segment().Next("order", kPatience).ok());
  ASSERT_TRUE(first->snowflake().Next(kPatience).ok());
  // At once: a file may be made in it while it is emptied.
  std::filesystem::rename(state, dir.path() + "/away");
  std::filesystem::remove_all(dir.path() + "/away", ignored);
  // Within a moment; what comes before it may have been issued in time.
  const auto lost = [&](const auto& ask) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
      if (const auto answer = ask(); !answer.ok() && answer.error().code == ErrorCode::kUnavailable)
        return answer.error().message.find("was deleted while this process was using it") !=
               std::string::npos;
    }
    return false;
  };
  EXPECT_TRUE(lost([&] { return first->segment().Next("order", kPatience); }));
  EXPECT_TRUE(lost([&] { return first->snowflake().Next(kPatience); }));
  auto second = Generators::Open(WithBothModesIn(state));
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(CodeOf(first->snowflake().Next(kPatience)), ErrorCode::kUnavailable);
}

TEST(Library, NeverTwiceUnderLoadWhileItIsClosedAndOpenedAgain) {
  testing::TempDir dir;
  IdRanges all;
  for (int life = 0; life < 3; ++life) {
    auto generators = Generators::Open(In(dir.path()));
    ASSERT_TRUE(generators.ok()) << generators.error().message;
    if (life == 0) {
      ASSERT_TRUE(generators->segment().AddTag("order", 50).ok());
    }
    constexpr int kThreads = 4;
    std::vector<IdRanges> taken(kThreads);
    std::atomic<std::uint64_t> calls{0};
    std::atomic<std::uint64_t> answered{0};
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        SegmentGenerator& segment = generators->segment();
        IdRanges& mine = taken[static_cast<std::size_t>(i)];
        while (true) {
          const auto ids = i % 2 == 0 ? segment.Next("order", 7, kPatience) : segment.Take("order", 3);
          calls.fetch_add(1);
          if (ids.ok()) {
            answered.fetch_add(1);
            // One thread's IDs strictly increase.
            if (!mine.empty() && ids->front().begin < mine.back().end) wrong.fetch_add(1);
            mine.insert(mine.end(), ids->begin(), ids->end());
          } else if (ids.error().code == ErrorCode::kUnavailable) {
            return;
          } else if (ids.error().code != ErrorCode::kExhausted) {
            wrong.fetch_add(1);
            return;
          }
        }
      });
    }
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while ((calls.load() < testing::Scaled<std::uint64_t>(20'000) || answered.load() < 20) &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    // While all of them are at it.
    generators->Close();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_EQ(CodeOf(generators->segment().Take("order")), ErrorCode::kUnavailable);
    EXPECT_EQ(CodeOf(generators->segment().Next("order", kPatience)), ErrorCode::kUnavailable);
    EXPECT_EQ(CodeOf(generators->segment().AddTag("more", 1)), ErrorCode::kUnavailable);
    for (const IdRanges& ranges : taken) all.insert(all.end(), ranges.begin(), ranges.end());
    ASSERT_GT(CountOf(all), 0U);
  }
  ExpectDisjoint(all);
}

TEST(Library, ACallThatWaitsEndsWithClose) {
  testing::TempDir dir;
  auto generators = Generators::Open(In(dir.path()));
  ASSERT_TRUE(generators.ok());
  ASSERT_TRUE(generators->segment().AddTag("order", 1).ok());
  std::thread waiter([&] {
    // Until the end comes, however many IDs there are.
    while (true) {
      const auto ids = generators->segment().Next("order", 1000, kPatience);
      if (ids.ok()) continue;
      EXPECT_EQ(ids.error().code, ErrorCode::kUnavailable) << ids.error().message;
      return;
    }
  });
  generators->Close();
  waiter.join();
}

TEST(Library, MarksOutliveTheDatabase) {
  testing::TempDir dir;
  std::uint64_t last = 0;
  for (int life = 0; life < 2; ++life) {
    auto generators = Generators::Open(In(dir.path()));
    ASSERT_TRUE(generators.ok()) << generators.error().message;
    ASSERT_TRUE(generators->segment().AddTag("order", 1000).ok());
    const auto ids = generators->segment().Next("order", 10, kPatience);
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    EXPECT_GT(ids->front().begin, last);
    last = ids->back().end - 1;
    generators->Close();
    // The database is lost, and the tag added anew.
    for (const char* name : {"/leaf.db", "/leaf.db-wal", "/leaf.db-shm"})
      std::filesystem::remove(dir.path() + name);
  }
}

// ---- codes

class LibraryCodes : public ::testing::Test {
 protected:
  LibraryCodes() {
    WriteKey("one", "00112233445566778899aabbccddeeff");
    WriteKey("other", "ffeeddccbbaa99887766554433221100");
  }
  void WriteKey(const std::string& name, const std::string& half) const {
    const std::string path = dir_.path() + "/" + name;
    std::ofstream(path) << half << half << "\n";
    ASSERT_EQ(chmod(path.c_str(), S_IRUSR), 0);
  }
  Result<Generators> Open(const std::string& key, std::vector<std::pair<std::string, std::string>> more = {},
                          const std::string& state = "state") const {
    GeneratorOptions options = WithBothModesIn(dir_.path() + "/" + state);
    options.store = Sqlite{.path = dir_.path() + "/leaf.db"};
    options.settings = std::move(more);
    if (!key.empty()) options.settings.emplace_back("codes.key_file", dir_.path() + "/" + key);
    return Generators::Open(options);
  }
  testing::TempDir dir_;
};

TEST_F(LibraryCodes, CodesAndBack) {
  auto generators = Open("one", {{"codes.tags", "snowflake.length=19"}});
  ASSERT_TRUE(generators.ok()) << generators.error().message;
  CodeGenerator& codes = generators->codes();
  EXPECT_EQ(CodeOf(codes.Next("order", kPatience)), ErrorCode::kNotFound);
  ASSERT_TRUE(generators->segment().AddTag("order", 100).ok());
  const auto first = codes.Next("order", kPatience);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first->size(), 16U) << *first;
  const auto batch = codes.Next("order", 250, kPatience);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  EXPECT_EQ(std::set<std::string>(batch->begin(), batch->end()).size(), 250U);
  EXPECT_EQ(codes.Reveal("order", *first).value(), 1U);
  EXPECT_EQ(codes.Reveal("order", batch->back()).value(), 251U);
  EXPECT_EQ(codes.Of("order", 1).value(), *first);
  // An ID that is taken as such is the next one.
  EXPECT_EQ(generators->segment().Next("order", kPatience).value(), 252U);
  std::string mistyped = *first;
  mistyped.back() = mistyped.back() == '9' ? '0' : static_cast<char>(mistyped.back() + 1);
  const auto refused = codes.Reveal("order", mistyped);
  EXPECT_EQ(CodeOf(refused), ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("check character"), std::string::npos);
  EXPECT_EQ(CodeOf(codes.Reveal("pay", *first)), ErrorCode::kNotFound);
  EXPECT_EQ(CodeOf(codes.Next("order", 0, kPatience)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(codes.Next("", kPatience)), ErrorCode::kInvalidArgument);

  const auto snowflake = codes.Next("snowflake", kPatience);
  ASSERT_TRUE(snowflake.ok()) << snowflake.error().message;
  const auto id = codes.Reveal("snowflake", *snowflake);
  ASSERT_TRUE(id.ok()) << id.error().message;
  EXPECT_EQ(DecodeSnowflake(*id)->worker, generators->snowflake().Worker().value());
  generators->Close();
  EXPECT_EQ(CodeOf(codes.Next("order", kPatience)), ErrorCode::kUnavailable);
}

TEST_F(LibraryCodes, KeyAndShapeBelongToTheTag) {
  std::string first;
  {
    auto generators = Open("one");
    ASSERT_TRUE(generators.ok()) << generators.error().message;
    ASSERT_TRUE(generators->segment().AddTag("order", 100).ok());
    ASSERT_TRUE(generators->segment().AddTag("pay", 100).ok());
    first = generators->codes().Next("order", kPatience).value();
  }
  {
    // Another node.
    auto generators = Open("other", {}, "state2");
    ASSERT_TRUE(generators.ok()) << generators.error().message;
    EXPECT_EQ(CodeOf(generators->codes().Next("order", kPatience)), ErrorCode::kConfig);
    EXPECT_EQ(CodeOf(generators->codes().Of("order", 1)), ErrorCode::kConfig);
    EXPECT_EQ(CodeOf(generators->codes().Reveal("order", first)), ErrorCode::kConfig);
    EXPECT_TRUE(generators->segment().Next("order", kPatience).ok()) << "it is of no concern to the IDs";
    EXPECT_TRUE(generators->codes().Next("pay", kPatience).ok()) << "nor to other tags";
  }
  {
    auto generators = Open("one", {{"codes.length", "11"}});
    EXPECT_EQ(CodeOf(generators->codes().Next("order", kPatience)), ErrorCode::kConfig);
    EXPECT_EQ(generators->codes().Reveal("order", first).value(), 1U);
  }
  {
    auto generators = Open("one", {{"codes.length", "14"}});
    const std::string longer = generators->codes().Next("order", kPatience).value();
    EXPECT_EQ(longer.size(), first.size() + 2);
    EXPECT_EQ(generators->codes().Reveal("order", first).value(), 1U);
    EXPECT_GT(generators->codes().Reveal("order", longer).value(), 1U);
  }
}

TEST_F(LibraryCodes, AreRefusedWithoutAKeyAndBeyondTheirEnd) {
  {
    auto generators = Open("");
    ASSERT_TRUE(generators.ok()) << generators.error().message;
    const auto refused = generators->codes().Next("order", kPatience);
    EXPECT_EQ(CodeOf(refused), ErrorCode::kConfig);
    EXPECT_NE(refused.error().hint.find("codes.key_file"), std::string::npos);
  }
  WriteKey("bad", "00");
  EXPECT_EQ(CodeOf(Open("bad")), ErrorCode::kConfig);
  auto generators = Open("one", {{"codes.tags", "order.length=6"}});
  ASSERT_TRUE(generators.ok()) << generators.error().message;
  ASSERT_TRUE(generators->segment().AddTag("order", 100).ok());
  EXPECT_TRUE(generators->codes().Of("order", 999'999).ok());
  const auto beyond = generators->codes().Of("order", 1'000'000);
  EXPECT_EQ(CodeOf(beyond), ErrorCode::kOverflow);
  EXPECT_NE(beyond.error().message.find("1000000"), std::string::npos);
  EXPECT_EQ(CodeOf(generators->codes().Next("snowflake", kPatience)), ErrorCode::kConfig) << "length 12";
}

TEST(Library, AStateDirectoryIsOneGenerators) {
  testing::TempDir dir;
  auto first = Generators::Open(In(dir.path()));
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(CodeOf(Generators::Open(In(dir.path()))), ErrorCode::kRefused);
  first->Close();
  first->Close();
  auto second = Generators::Open(In(dir.path()));
  ASSERT_TRUE(second.ok()) << second.error().message;
  // Assigning closes what was there.
  testing::TempDir other;
  *second = std::move(*Generators::Open(In(other.path())));
  EXPECT_TRUE(Generators::Open(In(dir.path())).ok());
  EXPECT_EQ(CodeOf(Generators::Open(In(other.path()))), ErrorCode::kRefused);
}

TEST(Library, OptionsAreChecked) {
  testing::TempDir dir;
  EXPECT_EQ(CodeOf(Generators::Open({})), ErrorCode::kInvalidArgument);
  GeneratorOptions options = In(dir.path());
  options.settings = {{"segment.no_such_key", "1"}};
  EXPECT_EQ(CodeOf(Generators::Open(options)), ErrorCode::kInvalidArgument);
  options = In(dir.path());
  options.segment = false;
  EXPECT_EQ(CodeOf(Generators::Open(options)), ErrorCode::kInvalidArgument) << "no mode";
  options = In(dir.path());
  options.snowflake = ZookeeperNumber{.cluster = "c", .address = "127.0.0.1:2"};
  const auto nowhere = Generators::Open(options);
  ASSERT_EQ(CodeOf(nowhere), ErrorCode::kInvalidArgument);
  EXPECT_NE(nowhere.error().message.find("zookeeper is empty"), std::string::npos) << nowhere.error().message;
  options.zookeeper = "127.0.0.1:1";
  options.snowflake = ZookeeperNumber{};
  EXPECT_EQ(CodeOf(Generators::Open(options)), ErrorCode::kInvalidArgument) << "no cluster";
  options.snowflake = ZookeeperNumber{.cluster = "c", .address = ""};
  EXPECT_EQ(CodeOf(Generators::Open(options)), ErrorCode::kConfig) << "no address";
  options = In(dir.path());
  options.settings = {{"server.max_count", "5"}};
  auto generators = Generators::Open(options);
  ASSERT_TRUE(generators.ok()) << generators.error().message;
  EXPECT_EQ(CodeOf(generators->segment().Take("order", 6)), ErrorCode::kTooLarge);
  // Also if the reserve has more IDs than that.
  ASSERT_TRUE(generators->segment().AddTag("order", 1000).ok());
  ASSERT_TRUE(generators->segment().Next("order", kPatience).ok());
  EXPECT_TRUE(generators->segment().Take("order", 5).ok());
  EXPECT_EQ(CodeOf(generators->segment().Take("order", 6)), ErrorCode::kTooLarge);
  EXPECT_EQ(CodeOf(generators->segment().Next("order", 6, kPatience)), ErrorCode::kTooLarge);
}

// The defaults of the configuration are servers on this machine, which the caller has not named.
TEST(Library, ServersThatAreNotNamedAreNoneOfThisMachine) {
  testing::TempDir dir;
  for (const std::vector<std::string>& endpoints : {std::vector<std::string>{}, {""}, {"127.0.0.1:1", ""}}) {
    GeneratorOptions options = In(dir.path() + "/state");
    options.store = MySql{.endpoints = endpoints, .database = "leaf", .user = "leaf"};
    const auto refused = Generators::Open(options);
    ASSERT_EQ(CodeOf(refused), ErrorCode::kInvalidArgument);
    EXPECT_NE(refused.error().message.find("endpoint"), std::string::npos) << refused.error().message;
  }
  for (const auto& [key, text] : std::vector<std::pair<std::string, std::string>>{
           {"zookeeper.session_timeout", "5s"}, {"segment.fence", "cluster"}}) {
    GeneratorOptions options = In(dir.path() + "/state");
    options.snowflake = FixedNumber{.worker = 1, .cluster = "c"};
    options.settings = {{key, text}};
    const auto refused = Generators::Open(options);
    ASSERT_EQ(CodeOf(refused), ErrorCode::kInvalidArgument) << key;
    EXPECT_NE(refused.error().message.find("zookeeper is empty"), std::string::npos)
        << refused.error().message;
  }
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/state"));
}

// As for the daemon: behind a link ".." is the folder above where it points to.
TEST(Library, AStateDirectoryIsTheOneThatTheSystemFinds) {
  testing::TempDir dir;
  std::filesystem::create_directories(dir.path() + "/releases/42");
  std::filesystem::create_directory_symlink("releases/42", dir.path() + "/current");
  const auto generators = Generators::Open(In(dir.path() + "/current/../state"));
  ASSERT_TRUE(generators.ok()) << generators.error().message;
  EXPECT_TRUE(std::filesystem::exists(dir.path() + "/releases/state/leaf.db"));
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/state"));
}

// What a member says cannot be said again, differently, as a setting.
TEST(Library, NothingIsSaidTwice) {
  testing::TempDir dir;
  for (const auto& [key, member] : std::vector<std::pair<std::string, std::string>>{
           {"segment.store", "GeneratorOptions::store"},
           {"sqlite.path", "GeneratorOptions::store"},
           {"mysql.endpoints", "GeneratorOptions::store"},
           {"snowflake.enabled", "GeneratorOptions::snowflake"},
           {"snowflake.worker_id", "GeneratorOptions::snowflake"},
           {"state_dir", "GeneratorOptions::state_dir"},
           {"zookeeper.connect", "GeneratorOptions::zookeeper"}}) {
    GeneratorOptions options = In(dir.path() + "/state");
    options.settings = {{key, "x"}};
    const auto refused = Generators::Open(options);
    ASSERT_EQ(CodeOf(refused), ErrorCode::kInvalidArgument) << key;
    EXPECT_NE(refused.error().message.find(key), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find(member), std::string::npos) << refused.error().message;
  }
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/state"));
}

TEST(Library, AStoreIsWhereItWasNamed) {
  testing::TempDir dir;
  GeneratorOptions options = In(dir.path() + "/state");
  options.store = Sqlite{.path = dir.path() + "/other.db"};
  auto generators = Generators::Open(options);
  ASSERT_TRUE(generators.ok()) << generators.error().message;
  ASSERT_TRUE(generators->segment().AddTag("order", 10).ok());
  EXPECT_TRUE(std::filesystem::exists(dir.path() + "/other.db"));
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/state/leaf.db"));
}

TEST(Library, AModeThatIsOffSaysSo) {
  testing::TempDir dir;
  auto segments_only = Generators::Open(In(dir.path() + "/segments"));
  ASSERT_TRUE(segments_only.ok()) << segments_only.error().message;
  SnowflakeGenerator& snowflake = segments_only->snowflake();
  EXPECT_EQ(CodeOf(snowflake.Take()), ErrorCode::kDisabled);
  EXPECT_EQ(CodeOf(snowflake.Take(2)), ErrorCode::kDisabled);
  EXPECT_EQ(CodeOf(snowflake.Take(0)), ErrorCode::kDisabled);
  EXPECT_EQ(CodeOf(snowflake.Next(kPatience)), ErrorCode::kDisabled);
  EXPECT_EQ(CodeOf(snowflake.Next(2, kPatience)), ErrorCode::kDisabled);
  const auto worker = snowflake.Worker();
  ASSERT_EQ(CodeOf(worker), ErrorCode::kDisabled);
  EXPECT_EQ(worker.error().message, "snowflake mode is off in this generator");
  EXPECT_EQ(worker.error().hint, "set GeneratorOptions::snowflake before Generators::Open");

  GeneratorOptions options = WithBothModesIn(dir.path() + "/snowflakes");
  options.segment = false;
  auto snowflakes_only = Generators::Open(options);
  ASSERT_TRUE(snowflakes_only.ok()) << snowflakes_only.error().message;
  SegmentGenerator& segment = snowflakes_only->segment();
  EXPECT_EQ(CodeOf(segment.Take("order")), ErrorCode::kDisabled);
  EXPECT_EQ(CodeOf(segment.Take("order", 2)), ErrorCode::kDisabled);
  EXPECT_EQ(CodeOf(segment.Next("order", kPatience)), ErrorCode::kDisabled);
  EXPECT_EQ(CodeOf(segment.Next("order", 2, kPatience)), ErrorCode::kDisabled);
  const auto added = segment.AddTag("order", 1);
  ASSERT_EQ(CodeOf(added), ErrorCode::kDisabled);
  EXPECT_EQ(added.error().message, "segment mode is off in this generator");
  EXPECT_TRUE(snowflakes_only->snowflake().Next(kPatience).ok());
  // Still so once it is closed.
  snowflakes_only->Close();
  EXPECT_EQ(CodeOf(segment.Take("order")), ErrorCode::kDisabled);
}

TEST(Library, ADatabaseThatIsAwayIsToldAndWaitedFor) {
  testing::TempDir dir;
  GeneratorOptions options = In(dir.path());
  // No server listens there.
  options.store = MySql{.endpoints = {"127.0.0.1:1"}};
  std::atomic<int> heard{0};
  options.log = [&](Severity severity, std::string_view message) {
    if (severity >= Severity::kWarning && !message.empty()) heard.fetch_add(1);
  };
  auto generators = Generators::Open(options);
  ASSERT_TRUE(generators.ok()) << generators.error().message;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (heard.load() == 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_GT(heard.load(), 0);
  const ErrorCode why = CodeOf(generators->segment().Next("order", milliseconds{1}));
  EXPECT_TRUE(why == ErrorCode::kExhausted || why == ErrorCode::kUnavailable) << ErrorCodeName(why);
  EXPECT_EQ(CodeOf(generators->segment().AddTag("order", 1)), ErrorCode::kUnavailable);
}

// ---- snowflakes
// ----------------------------------------------------------------------------------------------------

TEST(Library, SnowflakeIdsGoOnUpwardAfterEachStart) {
  testing::TempDir dir;
  GeneratorOptions options = In(dir.path());
  options.segment = false;
  options.snowflake = FixedNumber{.worker = 7, .cluster = "c"};
  std::uint64_t last = 0;
  for (int life = 0; life < 3; ++life) {
    auto generators = Generators::Open(options);
    ASSERT_TRUE(generators.ok()) << generators.error().message;
    SnowflakeGenerator& snowflake = generators->snowflake();
    const auto first = snowflake.Next(kPatience);
    ASSERT_TRUE(first.ok()) << first.error().message;
    EXPECT_GT(*first, last);
    last = *first;
    for (int i = 0; i < 1000; ++i) {
      const auto id = snowflake.Next(kPatience);
      ASSERT_TRUE(id.ok()) << id.error().message;
      ASSERT_GT(*id, last);
      last = *id;
    }
    const auto batch = snowflake.Next(5000, kPatience);
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    EXPECT_EQ(CountOf(*batch), 5000U);
    EXPECT_GT(batch->front().begin, last);
    ExpectDisjoint(*batch);
    last = batch->back().end - 1;
    EXPECT_EQ(*snowflake.Worker(), 7U);
    const auto parts = DecodeSnowflake(last);
    ASSERT_TRUE(parts.ok());
    EXPECT_EQ(parts->worker, 7U);
    EXPECT_EQ(CodeOf(snowflake.Take(0)), ErrorCode::kInvalidArgument);
    EXPECT_EQ(CodeOf(snowflake.Take(std::uint64_t{1} << 40)), ErrorCode::kTooLarge);
    generators->Close();
    EXPECT_EQ(CodeOf(snowflake.Take()), ErrorCode::kUnavailable);
    EXPECT_EQ(CodeOf(snowflake.Worker()), ErrorCode::kUnavailable);
  }
  // The number belongs to the cluster's name.
  options.snowflake = FixedNumber{.worker = 7, .cluster = "d"};
  EXPECT_EQ(CodeOf(Generators::Open(options)), ErrorCode::kRefused);
}

TEST(Library, SnowflakeTakeNeverRepeatsAcrossThreads) {
  testing::TempDir dir;
  GeneratorOptions options = In(dir.path());
  options.segment = false;
  options.snowflake = PrivateNumber{};
  auto generators = Generators::Open(options);
  ASSERT_TRUE(generators.ok());
  ASSERT_TRUE(generators->snowflake().Next(kPatience).ok());
  std::vector<IdRanges> taken(3);
  std::vector<std::thread> threads;
  for (IdRanges& mine : taken) {
    threads.emplace_back([&] {
      for (int i = 0; i < testing::Scaled(5000); ++i) {
        const auto ids =
            i % 10 == 0 ? generators->snowflake().Next(20, kPatience) : generators->snowflake().Take(1);
        if (ids.ok()) mine.insert(mine.end(), ids->begin(), ids->end());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  IdRanges all;
  for (const IdRanges& ranges : taken) all.insert(all.end(), ranges.begin(), ranges.end());
  EXPECT_GE(CountOf(all), 20U);
  ExpectDisjoint(all);
}

TEST(Library, DecodeAndEncode) {
  const auto parts = DecodeSnowflake(2123738945798799443U);
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ(parts->time_ms, 1795173796497);
  EXPECT_EQ(parts->worker, 0U);
  EXPECT_EQ(parts->sequence, 83U);
  EXPECT_EQ(*EncodeSnowflake(*parts), 2123738945798799443U);
  const SnowflakeLayout other{.epoch_ms = 0, .bits = "42-8-13"};
  EXPECT_EQ(DecodeSnowflake(*EncodeSnowflake({1, 2, 3}, other), other)->worker, 2U);
  for (const SnowflakeText form : {SnowflakeText::kUuid, SnowflakeText::kUlid})
    EXPECT_EQ(*ParseSnowflake(*FormatSnowflake(2123738945798799443U, form)), 2123738945798799443U);
  EXPECT_EQ(*FormatSnowflake(0, SnowflakeText::kUuid), "012c148d-03c1-7000-8000-000000000000");
  EXPECT_EQ(CodeOf(FormatSnowflake(1, SnowflakeText::kUlid, {.epoch_ms = 0, .bits = "50-5-8"})),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(ParseSnowflake("2123738945798799443")), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(DecodeSnowflake(std::uint64_t{1} << 63)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(DecodeSnowflake(1, {.epoch_ms = 0, .bits = "41-10-10"})), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(EncodeSnowflake({1795173796497, 1024, 0})), ErrorCode::kInvalidArgument);
}

// ---- paths
// ----------------------------------------------------------------------------------------------------------

TEST(Library, PathsMeanWhatTheyMeantWhenItWasOpened) {
  testing::TempDir dir;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  GeneratorOptions options = In("state");
  options.store = Sqlite{.path = "shared.db"};
  auto generators = Generators::Open(options);
  std::filesystem::create_directory("elsewhere");
  std::filesystem::current_path("elsewhere");
  ASSERT_TRUE(generators.ok()) << generators.error().message;
  // The first connections are made only now, perhaps.
  const auto added = generators->segment().AddTag("order", 100);
  std::filesystem::current_path(before);
  ASSERT_TRUE(added.ok()) << added.error().message;
  EXPECT_TRUE(generators->segment().Next("order", kPatience).ok());
  EXPECT_TRUE(std::filesystem::exists(dir.path() + "/shared.db"));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path() + "/elsewhere"));
}

// ---- client
// --------------------------------------------------------------------------------------------------------

// Answers each connection's first request as it is told to: like a daemon that serves a thousand ranges, or
// cannot, or is gone while a client waits.
class FakeDaemon {
 public:
  enum class Mood { kServes, kBreaksOff, kDrained, kPaused, kDisabled, kUnknownTag, kOtherKey };

  explicit FakeDaemon(std::uint64_t first) : next_(first) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(listener_, 64), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { Serve(); });
  }
  ~FakeDaemon() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  const std::string& url() const { return url_; }
  void SetMood(Mood mood) { mood_.store(mood); }
  int asked() const { return asked_.load(); }
  // How many of them showed this token.
  int shown(const std::string& token) const {
    const MutexLock lock(mutex_);
    return shown_.count(token) == 0 ? 0 : shown_.at(token);
  }

 private:
  void Serve() {
    while (true) {
      const int connection = accept(listener_, nullptr, nullptr);
      if (connection < 0) return;
      asked_.fetch_add(1);
      std::string request;
      char buffer[4096];
      ssize_t got = 0;
      while (request.find("\r\n\r\n") == std::string::npos &&
             (got = read(connection, buffer, sizeof buffer)) > 0)
        request.append(buffer, static_cast<std::size_t>(got));
      constexpr std::string_view kBearer = "Authorization: Bearer ";
      if (const std::size_t at = request.find(kBearer); at != std::string::npos) {
        const std::size_t begin = at + kBearer.size();
        const MutexLock lock(mutex_);
        ++shown_[request.substr(begin, request.find('\r', begin) - begin)];
      }
      std::string status = "200 OK";
      std::string body;
      switch (mood_.load()) {
        case Mood::kServes: {
          if (request.starts_with("GET /v1/codes/order/1-1 ")) {
            body = R"({"tag":"order","id":"7"})";
            break;
          }
          const std::uint64_t count = std::stoull(request.substr(request.find("count=") + 6));
          if (request.find("form=code") != std::string::npos) {
            for (std::uint64_t i = 0; i < count; ++i)
              body += (i == 0 ? "{\"codes\":[\"" : "\",\"") + std::to_string(next_++);
            body += "\"]}";
            break;
          }
          body = "{\"ranges\":[{\"begin\":\"" + std::to_string(next_) + "\",\"end\":\"" +
                 std::to_string(next_ + count) + "\"}]}";
          next_ += count;
          break;
        }
        case Mood::kDrained:
          status = "503 Service Unavailable";
          body = R"({"code":"exhausted","message":"drained","hint":""})";
          break;
        case Mood::kPaused:
          status = "503 Service Unavailable";
          body = R"({"code":"paused","message":"paused on this node","hint":""})";
          break;
        case Mood::kDisabled:
          status = "503 Service Unavailable";
          body = R"({"code":"disabled","message":"off on this node","hint":""})";
          break;
        case Mood::kUnknownTag:
          status = "404 Not Found";
          body = R"({"code":"not_found","message":"unknown tag","hint":""})";
          break;
        case Mood::kOtherKey:
          status = "503 Service Unavailable";
          body = R"({"code":"config","message":"another key","hint":""})";
          break;
        case Mood::kBreaksOff:
          close(connection);
          continue;
      }
      const std::string answer =
          "HTTP/1.1 " + status +
          "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
          "\r\nConnection: close\r\n\r\n" + body;
      for (std::size_t sent = 0; sent < answer.size();) {
        const ssize_t written = send(connection, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
        if (written <= 0) break;
        sent += static_cast<std::size_t>(written);
      }
      close(connection);
    }
  }

  int listener_ = -1;
  std::string url_;
  std::uint64_t next_;
  std::atomic<Mood> mood_{Mood::kServes};
  std::atomic<int> asked_{0};
  mutable Mutex mutex_;
  std::map<std::string, int> shown_ LEAF_GUARDED_BY(mutex_);
  std::thread thread_;
};

Client OpenClient(std::vector<std::vector<std::string>> groups, milliseconds away) {
  auto client = Client::Open({.groups = std::move(groups), .timeout = kPatience, .away = away});
  EXPECT_TRUE(client.ok());
  return std::move(*client);
}

TEST(LibraryClient, AsksTheNearGroupOnlyWhileItAnswers) {
  FakeDaemon near(1000);
  FakeDaemon nearby(2000);
  FakeDaemon far(3000);
  Client client = OpenClient({{near.url(), nearby.url()}, {far.url()}}, std::chrono::hours{1});
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(*client.Next("order", 1), (IdRanges{{1000 + i, 1001 + i}}));
  // Another daemon of the same data centre answers.
  near.SetMood(FakeDaemon::Mood::kBreaksOff);
  EXPECT_EQ(client.Next("order", 5)->front().begin, 2000U);
  EXPECT_EQ(client.NextSnowflake(5)->front().begin, 2005U);
  EXPECT_EQ(far.asked(), 0);
  // A daemon that does not answer is not asked each time.
  EXPECT_EQ(near.asked(), 4);
  nearby.SetMood(FakeDaemon::Mood::kBreaksOff);
  EXPECT_EQ(client.Next("order", 1)->front().begin, 3000U);
  // All are away: they are tried all the same, and named.
  far.SetMood(FakeDaemon::Mood::kBreaksOff);
  const int asked = near.asked();
  EXPECT_EQ(CodeOf(client.Next("order", 1)), ErrorCode::kUnavailable);
  EXPECT_GT(near.asked(), asked);
  near.SetMood(FakeDaemon::Mood::kServes);
  EXPECT_EQ(client.Next("order", 1)->front().begin, 1003U);
}

TEST(LibraryClient, ComesBackToTheNearGroupByItself) {
  FakeDaemon near(1000);
  FakeDaemon far(3000);
  Client client = OpenClient({{near.url()}, {far.url()}}, milliseconds{20});
  near.SetMood(FakeDaemon::Mood::kBreaksOff);
  ASSERT_EQ(client.Next("order", 1)->front().begin, 3000U);
  near.SetMood(FakeDaemon::Mood::kServes);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  bool back = false;
  while (!back && std::chrono::steady_clock::now() < deadline)
    back = client.Next("order", 1)->front().begin < 3000;
  EXPECT_TRUE(back);
}

TEST(LibraryClient, ATagsOwnAnswerIsTheAnswer) {
  FakeDaemon near(1000);
  FakeDaemon far(3000);
  Client client = OpenClient({{near.url()}, {far.url()}}, std::chrono::hours{1});
  near.SetMood(FakeDaemon::Mood::kUnknownTag);
  EXPECT_EQ(CodeOf(client.Next("order", 1)), ErrorCode::kNotFound);
  EXPECT_EQ(far.asked(), 0);
  // Drained there, perhaps not elsewhere; but it is not away.
  near.SetMood(FakeDaemon::Mood::kDrained);
  EXPECT_EQ(client.Next("order", 1)->front().begin, 3000U);
  // A node's own "no", as for `leafctl next`.
  near.SetMood(FakeDaemon::Mood::kPaused);
  EXPECT_EQ(client.Next("order", 1)->front().begin, 3001U);
  near.SetMood(FakeDaemon::Mood::kDisabled);
  EXPECT_EQ(client.NextSnowflake(1)->front().begin, 3002U);
  near.SetMood(FakeDaemon::Mood::kServes);
  EXPECT_EQ(client.Next("order", 1)->front().begin, 1000U);
}

TEST(LibraryClient, Codes) {
  FakeDaemon near(1000);
  FakeDaemon far(3000);
  Client client = OpenClient({{near.url()}, {far.url()}}, std::chrono::hours{1});
  EXPECT_EQ(*client.NextCodes("order", 2), (std::vector<std::string>{"1000", "1001"}));
  EXPECT_EQ(client.NextCodes("snowflake", 100'001)->size(), 100'001U) << "in two requests";
  EXPECT_EQ(*client.Reveal("order", "1-1"), 7U);
  EXPECT_EQ(CodeOf(client.NextCodes("order", 0)), ErrorCode::kInvalidArgument);
  // A daemon with another key is passed over for codes, and goes on to serve IDs.
  near.SetMood(FakeDaemon::Mood::kOtherKey);
  EXPECT_EQ(client.NextCodes("order", 1)->front(), "3000");
  near.SetMood(FakeDaemon::Mood::kServes);
  EXPECT_EQ(client.Next("order", 1)->front().begin, 101'003U);
  near.SetMood(FakeDaemon::Mood::kOtherKey);
  far.SetMood(FakeDaemon::Mood::kOtherKey);
  EXPECT_EQ(CodeOf(client.Reveal("order", "1-1")), ErrorCode::kConfig);
}

TEST(LibraryClient, BatchesAreOneDaemons) {
  FakeDaemon near(1000);
  Client client = OpenClient({{near.url()}}, seconds{1});
  const auto ids = client.Next("order", 250'000);
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  EXPECT_EQ(CountOf(*ids), 250'000U);
  ExpectDisjoint(*ids);
}

TEST(LibraryClient, ShowsItsToken) {
  FakeDaemon daemon(1);
  testing::TempDir dir;
  const std::string path = dir.path() + "/token";
  const auto write = [&](const std::string& text, mode_t mode) {
    std::ofstream(path) << text;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
  };
  const auto open = [&] { return Client::Open({.groups = {{daemon.url()}}, .token_file = path}); };
  EXPECT_EQ(CodeOf(open()), ErrorCode::kConfig) << "there is no such file";
  write("leaf_secret\n", 0644);
  EXPECT_EQ(CodeOf(open()), ErrorCode::kConfig) << "others can read it";
  for (const char* const bad : {"", "\n", "two words", "two\nlines"}) {
    write(bad, 0600);
    EXPECT_EQ(CodeOf(open()), ErrorCode::kConfig) << bad;
  }
  write("leaf_secret\n", 0600);
  auto client = open();
  ASSERT_TRUE(client.ok()) << client.error().message;
  ASSERT_TRUE(client->Next("order", 2).ok());
  ASSERT_TRUE(client->NextSnowflake(2).ok());
  EXPECT_EQ(daemon.shown("leaf_secret"), 2);
}

TEST(LibraryClient, OptionsAreChecked) {
  EXPECT_EQ(CodeOf(Client::Open({})), ErrorCode::kInvalidArgument);
  // No time is too long.
  auto patient = Client::Open({.groups = {{"unix:/no/daemon", "unix:/neither"}},
                               .timeout = std::chrono::milliseconds::max(),
                               .away = std::chrono::milliseconds::max()});
  ASSERT_TRUE(patient.ok());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(CodeOf(patient->Next("pay", 1)), ErrorCode::kUnreachable);
  for (const char* server : {"", "127.0.0.1:8080", "http://", "http://host", "http://[::1]", "http://a:1:2",
                             "ftp://host:1", "unix:"}) {
    EXPECT_EQ(CodeOf(Client::Open({.groups = {{server}}})), ErrorCode::kInvalidArgument) << server;
  }
  EXPECT_EQ(CodeOf(Client::Open({.groups = {{"unix:/a"}}, .timeout = milliseconds{0}})),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Client::Open({.groups = {{"https://127.0.0.1:1"}}, .cert = "/nowhere.pem"})),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(Client::Open({.groups = {{"https://127.0.0.1:1"}}, .ca = "/nowhere.pem"})),
            ErrorCode::kConfig);
  EXPECT_TRUE(Client::Open({.groups = {{"https://127.0.0.1:1"}}}).ok());
  auto client = Client::Open({.groups = {{"unix:/nowhere/at/all"}, {"unix:/nor/here"}}});
  ASSERT_TRUE(client.ok());
  const auto none = client->Next("order", 1);
  ASSERT_EQ(CodeOf(none), ErrorCode::kUnreachable);
  EXPECT_NE(none.error().message.find("/nor/here"), std::string::npos) << none.error().message;
  EXPECT_EQ(CodeOf(client->Next("order", 0)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(client->Next("", 1)), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace leaf
