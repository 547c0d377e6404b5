// Redis' protocol without a connection: commands are read, replies written, transactions done.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/server/ids_text.h"
#include "leaf/server/resp/command_reader.h"
#include "leaf/server/resp/commands.h"
#include "leaf/server/resp/take.h"
#include "leaf/server/resp/transaction.h"
#include "leaf/server/visitor.h"
#include "unit/server/known_bytes.h"
#include "unit/server/router_fixture.h"

namespace leaf::server::resp {
namespace {

using Outcome = CommandReader::Outcome;
using std::chrono::milliseconds;

std::vector<std::string> ReadOne(std::string_view bytes) {
  CommandReader reader(1024);
  if (reader.Read(bytes) != Outcome::kCommand) return {};
  EXPECT_EQ(reader.size(), bytes.size());
  return {reader.words().begin(), reader.words().end()};
}

std::string WhyBroken(std::string_view bytes) {
  CommandReader reader(1024);
  return reader.Read(bytes) == Outcome::kBroken ? std::string(reader.why()) : "";
}

TEST(CommandReader, ReadsArraysOfWordsByteByByte) {
  const std::string bytes = "*3\r\n$6\r\nINCRBY\r\n$5\r\na\r\nb\x01\r\n$0\r\n\r\n";
  CommandReader reader(1024);
  for (std::size_t size = 1; size < bytes.size(); ++size)
    ASSERT_EQ(reader.Read(bytes.substr(0, size)), Outcome::kMore) << size;
  const std::string with_next = bytes + "*1\r\n";
  ASSERT_EQ(reader.Read(with_next), Outcome::kCommand);
  EXPECT_EQ(reader.size(), bytes.size());
  ASSERT_EQ(reader.words().size(), 3U);
  EXPECT_EQ(reader.words()[1], "a\r\nb\x01");
  EXPECT_EQ(reader.words()[2], "");
}

TEST(CommandReader, ReadsLinesOfWords) {
  EXPECT_EQ(ReadOne("PING\r\n"), std::vector<std::string>{"PING"});
  EXPECT_EQ(ReadOne("  incr\tpay \n"), (std::vector<std::string>{"incr", "pay"}));
  EXPECT_EQ(ReadOne("incr \"a b\\x41\\n\" 'it\\'s'\r\n"),
            (std::vector<std::string>{"incr", "a bA\n", "it's"}));
  CommandReader reader(1024);
  EXPECT_EQ(reader.Read("\r\nPING\r\n"), Outcome::kNothing);
  EXPECT_EQ(reader.size(), 2U);
}

// A connection at rest keeps little, also after a command of many words.
TEST(CommandReader, GivesTheMemoryOfManyWordsBack) {
  std::string quoted = "PING";
  std::string array = "*1000\r\n";
  for (int i = 0; i < 1000; ++i) {
    quoted += " \"\"";
    array += "$0\r\n\r\n";
  }
  for (const std::string& bytes : {quoted + "\n", array}) {
    CommandReader reader(64 * 1024);
    ASSERT_EQ(reader.Read(bytes), Outcome::kCommand);
    EXPECT_GE(reader.words().size(), 1000U);
    reader.Release();
    EXPECT_LE(reader.room(), 64U);
    ASSERT_EQ(reader.Read("PING again\r\n"), Outcome::kCommand);
    EXPECT_EQ(reader.words().size(), 2U);
  }
}

// What a word of no bytes takes up is more than what was sent for it, and a client without a password may
// send some.
TEST(CommandReader, MoreWordsThanAnyCommandHasAreRefusedAndTakeNoMemory) {
  std::string lines = "PING";
  std::string quoted = "PING";
  for (int i = 0; i < 1024; ++i) {
    lines += " a";
    quoted += " ''";
  }
  const std::string open = quoted.substr(0, 1000) + " \"";
  for (const auto& [bytes, why] : std::initializer_list<std::pair<std::string, std::string>>{
           {"*1025\r\n", "Protocol error: a command has more than 1024 words"},
           {lines + "\n", "Protocol error: a command has more than 1024 words"},
           {quoted + "\n", "Protocol error: a command has more than 1024 words"},
           {open + "\n", "Protocol error: unbalanced quotes in request"}}) {
    CommandReader reader(64 * 1024);
    ASSERT_EQ(reader.Read(bytes), Outcome::kBroken);
    EXPECT_EQ(reader.why(), why);
    EXPECT_EQ(reader.room(), 0U) << "the answer may wait for its client";
  }
}

TEST(CommandReader, SaysWhatIsWrongAndNeverWaitsForTooMuch) {
  EXPECT_EQ(WhyBroken("*-1\r\n"), "Protocol error: invalid multibulk length");
  EXPECT_EQ(WhyBroken("*1048577\r\n"), "Protocol error: invalid multibulk length");
  EXPECT_EQ(WhyBroken("*1x\r\n"), "Protocol error: invalid multibulk length");
  EXPECT_EQ(WhyBroken("*11111111111111111111111111111111111111"), "Protocol error: invalid multibulk length");
  EXPECT_EQ(WhyBroken("*0000000000000000000000000000000000000001\r\n"),
            "Protocol error: invalid multibulk length");
  EXPECT_EQ(WhyBroken("*1\r\n$-1\r\n"), "Protocol error: invalid bulk length");
  EXPECT_EQ(WhyBroken("*1\r\n$536870913\r\n"), "Protocol error: invalid bulk length");
  EXPECT_EQ(WhyBroken("*1\r\n$536870912\r\n"), "Protocol error: the command is too long");
  EXPECT_EQ(WhyBroken("*1\r\n*1\r\n"), "Protocol error: expected '$' before each word of a command");
  EXPECT_EQ(WhyBroken("*1\r\n$4\r\nPINGS\r\n"), "Protocol error: a word is longer than it says");
  EXPECT_EQ(WhyBroken(std::string(1024, 'a')), "Protocol error: the command is too long");
  EXPECT_EQ(WhyBroken("GET / HTTP/1.1\r\n"), "Protocol error: this port speaks Redis' protocol, not HTTP");
  EXPECT_EQ(WhyBroken("Host: x\r\n"), "Protocol error: this port speaks Redis' protocol, not HTTP");
  EXPECT_EQ(WhyBroken("\x16\x03\x01"), "Protocol error: this port speaks Redis' protocol, without TLS");
  EXPECT_EQ(WhyBroken("PING \"\r\n"), "Protocol error: unbalanced quotes in request");
  EXPECT_EQ(WhyBroken("PING \"a\"b\r\n"), "Protocol error: unbalanced quotes in request");
}

TEST(CommandReader, ACommandThatFillsItsRoomIsRefusedNotWaitedFor) {
  // Every word is short, and there are many: the room ends within the length of one.
  std::string bytes = "*300\r\n";
  while (bytes.size() + 7 <= 1020) bytes += "$1\r\na\r\n";
  bytes.resize(1024, '$');
  bytes[1023] = '1';
  EXPECT_NE(WhyBroken(bytes), "");
}

TEST(ReplyWriter, DiffersByVersionWhereItHasTo) {
  const auto written = [](Version version, const auto& write) {
    std::string out;
    ReplyWriter reply(version, out);
    write(reply);
    return out;
  };
  const auto all = [](ReplyWriter& reply) {
    reply.Null();
    reply.Map(2);
    reply.Bool(true);
    reply.BulkId(9'223'372'036'854'775'807U);
    reply.Error("ERR two\r\nlines");
  };
  const std::string tail = "$19\r\n9223372036854775807\r\n-ERR two  lines\r\n";
  EXPECT_EQ(written(Version::kResp2, all), "$-1\r\n*4\r\n:1\r\n" + tail);
  EXPECT_EQ(written(Version::kResp3, all), "_\r\n%2\r\n#t\r\n" + tail);
}

TEST(RisingIntegers, AreWrittenAsAnyIntegerIs) {
  RisingIntegers rising;
  const auto check = [&](std::uint64_t value) {
    std::string written = "before ";
    std::string expected = written;
    rising.Append(value, written);
    ReplyWriter(Version::kResp2, expected).Integer(value);
    EXPECT_EQ(written, expected);
  };
  for (const std::uint64_t first :
       {std::uint64_t{0}, std::uint64_t{95}, std::uint64_t{999'998}, kIdEnd - 12}) {
    for (std::uint64_t value = first; value < first + 12; ++value) check(value);
  }
  for (const std::uint64_t value :
       {7ULL, 8ULL, 8ULL, 7ULL, 108ULL, 109ULL, 9ULL, 10ULL, 1'000'000'000'000ULL})
    check(value);
  check(~std::uint64_t{0});
  check(0);
}

TEST(KnownTake, IsKnownByAllOfItsBytes) {
  KnownTake known;
  EXPECT_FALSE(known.IsNext(""));
  const std::string bytes = "*2\r\n$4\r\nINCR\r\n$3\r\npay\r\n";
  std::string tag = "pay";
  TakeCommand take{.ids = {.tag = tag}, .reply = IdReply::kLast};
  ASSERT_TRUE(IsOneOfTag(take));
  known.Keep(bytes, *FindCommand("incr"), take);
  tag = "xxx";
  EXPECT_EQ(known.take().ids.tag, "pay") << "its own";
  EXPECT_EQ(known.command().name, "incr");
  testing::ExpectKnownByAllBytes(known, bytes);
  // What is too long is not kept, and what was kept before is not taken for it.
  known.Keep(std::string(200, 'x'), *FindCommand("incr"), take);
  EXPECT_FALSE(known.IsNext(bytes));
}

TEST(RedisErrors, BeginWithAWordThatClientsSwitchOn) {
  EXPECT_EQ(ErrorText({ErrorCode::kNotFound, "unknown tag 'a'", "add it"}),
            "NOTFOUND unknown tag 'a' (add it)");
  EXPECT_EQ(ErrorText({ErrorCode::kExhausted, "drained", ""}), "TRYAGAIN drained; retry in 1 s");
  EXPECT_EQ(ErrorText({ErrorCode::kPaused, "paused", ""}), "PAUSED paused");
  EXPECT_EQ(ErrorText({ErrorCode::kFrozen, "frozen", ""}), "FROZEN frozen");
  EXPECT_EQ(ErrorText({ErrorCode::kLimited, "too many", ""}), "LIMITED too many; retry in 1 s");
  EXPECT_EQ(ErrorText({ErrorCode::kTooLarge, "too large", ""}), "ERR too large");
  // No code is without a word of its own kind.
  for (int code = 0; code <= static_cast<int>(ErrorCode::kPaused); ++code)
    EXPECT_FALSE(WordOf(static_cast<ErrorCode>(code)).empty());
}

TEST(Commands, TheTableIsInOrder) {
  for (const CommandSpec& command : AllCommands()) {
    EXPECT_EQ(FindCommand(command.name), &command);
    EXPECT_EQ(command.kind == CommandKind::kAnswered, command.handler != nullptr) << command.name;
    EXPECT_TRUE(IsRedis(command.route)) << command.name;
    EXPECT_FALSE(command.summary.empty());
  }
  EXPECT_EQ(FindCommand("InCr"), FindCommand("incr"));
  EXPECT_EQ(FindCommand("set"), nullptr);
}

class RedisTest : public server::RouterFixture {
 protected:
  RedisTest() { StartService(); }

  Result<TakeCommand> Read(const std::vector<std::string_view>& words) const {
    return ReadTake(backend_, *FindCommand(words.front()), words);
  }

  std::optional<std::string> Exec(const std::vector<std::vector<std::string_view>>& commands) {
    QueuedCommands queue;
    for (const auto& words : commands)
      EXPECT_TRUE(queue.Add(backend_, *FindCommand(words.front()), words).ok());
    transaction_ = std::make_shared<Transaction>(backend_, std::move(queue), session_,
                                                 [this](Transaction::Answer answer) {
                                                   EXPECT_FALSE(reply_.has_value()) << "answered twice";
                                                   reply_ = std::move(answer.reply);
                                                   held_ = std::move(answer.held);
                                                   outcomes_ = std::move(answer.outcomes);
                                                 });
    reply_.reset();
    transaction_->Run();
    return reply_;
  }

  Issuer issuer_{{.max_count = 2000}, ids_};
  UnreadAnswers unread_;
  RequestMetrics requests_;
  access::Gate gate_{0};
  RedisBackend backend_{{.request_timeout = milliseconds{1000}, .version = "1"},
                        issuer_,
                        unread_,
                        clock_,
                        requests_,
                        gate_,
                        clock_.Monotonic()};
  Visitor visitor_{gate_, clock_, std::nullopt};
  Session session_{.visitor = &visitor_, .caller = gate_.Anonymous()};
  std::shared_ptr<Transaction> transaction_;
  std::optional<std::string> reply_;
  Transaction::Held held_;
  std::vector<Transaction::Outcome> outcomes_;
};

TEST_F(RedisTest, RequestsAreReadAndRefusedByName) {
  const auto incrby = Read({"incrby", "pay", "7"});
  ASSERT_TRUE(incrby.ok());
  EXPECT_TRUE(incrby->ids.contiguous);
  EXPECT_EQ(incrby->ids.count, 7U);
  EXPECT_FALSE(Read({"leaf.next", "pay", "7"})->ids.contiguous);
  for (const std::string_view bad : {"0", "-1", "x", "", "1.5", "9223372036854775809"})
    EXPECT_EQ(Read({"incrby", "pay", bad}).error().code, ErrorCode::kInvalidArgument) << bad;
  EXPECT_EQ(Read({"incrby", "pay", "2001"}).error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(CheckTag(*Read({"incr", ""})).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(CheckTag(*incrby).ok());
  EXPECT_EQ(Read({"leaf.next", "pay", "1", "2"}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Read({"leaf.snowflake"}).error().code, ErrorCode::kDisabled);
}

// A batch that is written out while it is sent reads as one that is written at once.
TEST_F(RedisTest, ALongBatchIsWrittenAPieceAtATime) {
  table_.Put("edge", 900, 500);
  const auto take = Read({"leaf.next", "edge", "1500"});  // from 3 digits to 4
  ASSERT_TRUE(take.ok());
  std::optional<Result<IssuedIds>> ids;
  issuer_.Park(take->ids, [&](const Result<IssuedIds>& result) { ids = result; });
  Run();
  ASSERT_TRUE(ids && ids->ok());
  std::string text;
  ReplyWriter reply(Version::kResp2, text);
  auto rest = WriteIds(backend_, *take, **ids, reply);
  ASSERT_TRUE(rest.ok() && *rest);
  EXPECT_GT(unread_.batches.held(), 0U);
  for (std::size_t piece = 1;; piece = piece % 700 + 13) {
    std::string scratch = "what was there before";
    const std::string_view next = (*rest)->Peek(piece, scratch);
    ASSERT_FALSE(next.empty());
    ASSERT_LE(next.size(), piece);
    text += next;
    if (!(*rest)->Skip(next.size())) break;
  }
  std::string expected = "*1500\r\n";
  ReplyWriter plain(Version::kResp2, expected);
  for (std::uint64_t id = 900; id < 2400; ++id) plain.BulkId(id);
  EXPECT_EQ(text, expected);
  rest->reset();
  EXPECT_EQ(unread_.batches.held(), 0U);
}

TEST_F(RedisTest, ALongBatchThatFindsNoMemoryIsAnError) {
  const auto held = unread_.batches.Hold(std::size_t{1} << 30);
  const auto take = Read({"leaf.next", "pay", "1500"});
  EXPECT_EQ(RefuseTake(backend_, *take)->code, ErrorCode::kUnavailable);
  EXPECT_FALSE(RefuseTake(backend_, *Read({"leaf.next", "pay", "10"})).has_value());
}

TEST_F(RedisTest, ATransactionAnswersInOrderAlthoughItsRequestsWait) {
  EXPECT_EQ(Exec({{"incr", "pay"}, {"ping"}, {"leaf.next", "pay", "2"}, {"incr", "order"}}), std::nullopt);
  Run();
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(*reply_, "*4\r\n:1\r\n+PONG\r\n*2\r\n$1\r\n2\r\n$1\r\n3\r\n:1\r\n");
  // By now all is in reserve.
  EXPECT_EQ(Exec({{"incr", "pay"}, {"get", "pay"}}), "*2\r\n:4\r\n$1\r\n4\r\n");
}

TEST_F(RedisTest, AnErrorInATransactionIsOneOfItsReplies) {
  EXPECT_EQ(Exec({{"incr", "missing"}, {"incr", "pay"}}), std::nullopt);
  Run();
  ASSERT_TRUE(reply_.has_value());
  EXPECT_TRUE(reply_->starts_with("*2\r\n-NOTFOUND unknown tag 'missing'")) << *reply_;
  EXPECT_TRUE(reply_->ends_with("\r\n:1\r\n")) << *reply_;
  // For the metrics each is what it has become.
  ASSERT_EQ(outcomes_.size(), 2U);
  EXPECT_EQ(outcomes_[0].route, Route::kRedisIncr);
  EXPECT_EQ(outcomes_[0].status, 404);
  EXPECT_EQ(outcomes_[1].status, 200);
}

TEST_F(RedisTest, AWithdrawnTransactionTakesNothingMore) {
  EXPECT_EQ(Exec({{"incr", "pay"}, {"incr", "order"}}), std::nullopt);
  transaction_->Withdraw();
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(outcomes_.size(), 2U);
  Run();
  EXPECT_EQ(service_.LastIssued("pay"), std::nullopt);
  EXPECT_EQ(service_.LastIssued("order"), std::nullopt);
  transaction_->Withdraw();
}

TEST_F(RedisTest, ManyRequestsThatEndAtOnceNeedNoDeepStack) {
  // The first answer says that there is no such tag; for a second all others are answered at once.
  std::vector<std::vector<std::string_view>> commands(4000, {"incr", "missing"});
  Exec(commands);
  for (int i = 0; i < 20 && !reply_; ++i) Run();
  ASSERT_TRUE(reply_.has_value());
  EXPECT_EQ(std::count(reply_->begin(), reply_->end(), '\n'), 4001);
}

TEST_F(RedisTest, AQueueIsBounded) {
  QueuedCommands queue;
  const std::vector<std::string_view> large{"leaf.next", "pay", "1500"};
  EXPECT_EQ(queue.Add(backend_, *FindCommand("leaf.next"), large).error().code, ErrorCode::kTooLarge);
  EXPECT_TRUE(queue.is_spoilt());
  QueuedCommands long_queue;
  const std::vector<std::string_view> echo{"echo", "a"};
  std::size_t added = 0;
  while (long_queue.Add(backend_, *FindCommand("echo"), echo).ok() && !long_queue.is_spoilt()) ++added;
  EXPECT_LE(added, QueuedCommands::kCommandsMax);
  EXPECT_GT(added, 1000U);
  EXPECT_EQ(unread_.queues.held(), 0U) << "what will not be done takes up nothing";
}

TEST_F(RedisTest, ALargeReplyCountsUntilItIsSent) {
  const std::string word(100, 'a');
  ASSERT_TRUE(Exec({{"echo", word}, {"echo", word}}).has_value());
  EXPECT_TRUE(held_.empty());
  ASSERT_TRUE(Exec(std::vector<std::vector<std::string_view>>(500, {"echo", word})).has_value());
  transaction_.reset();
  EXPECT_GE(unread_.queues.held(), reply_->size());
  held_.clear();
  EXPECT_EQ(unread_.queues.held(), 0U);
}

// Clients that queue all they may and send no EXEC. What they hold is bounded, and others go on.
TEST_F(RedisTest, QueuesOfSomeLeaveRoomForOthers) {
  const std::vector<std::string_view> echo{"echo", "a"};
  const auto fill = [&](QueuedCommands& queue, std::size_t most) {
    std::size_t added = 0;
    for (; added < most; ++added) {
      const auto more = queue.Add(backend_, *FindCommand("echo"), echo);
      if (more.ok()) continue;
      EXPECT_EQ(more.error().code, ErrorCode::kUnavailable);
      break;
    }
    return added;
  };
  std::vector<QueuedCommands> greedy(20);
  for (QueuedCommands& queue : greedy) EXPECT_EQ(fill(queue, 4000), 4000U);
  EXPECT_FALSE(unread_.queues.scarce());
  QueuedCommands too_greedy;
  EXPECT_LT(fill(too_greedy, 4000), 4000U);
  // From here on there is less for each; and a short transaction needs none of it.
  std::vector<QueuedCommands> more(2000);
  std::size_t number = 0;
  for (QueuedCommands& queue : more) EXPECT_GE(fill(queue, 250), ++number <= 300 ? 250U : 75U) << number;
  EXPECT_TRUE(unread_.queues.full());
  EXPECT_EQ(unread_.batches.held(), 0U);
  greedy.clear();
  more.clear();
  EXPECT_EQ(unread_.queues.held(), 0U);
}

}  // namespace
}  // namespace leaf::server::resp
