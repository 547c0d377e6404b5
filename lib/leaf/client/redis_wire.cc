#include "leaf/client/redis_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/write.hpp>
#include <cstddef>
#include <optional>
#include <utility>

#include "leaf/base/duration.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/client/tls_stream.h"
#include "leaf/client/wire.h"

namespace leaf::client {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using beast::error_code;

constexpr std::string_view kTcp = "redis://";
constexpr std::string_view kTls = "rediss://";
constexpr std::string_view kUnix = "redis+unix:";
constexpr std::size_t kReplyBytesMax = std::size_t{64} * 1024 * 1024;
// A range is two numbers; what is not IDs is short.
constexpr std::size_t kReplyBytesForAnId = 64;
constexpr std::size_t kShortReplyBytesMax = std::size_t{64} * 1024;

struct RedisReply {
  char kind = 0;  // '+', '-', ':', '$' or '*'
  std::string text;
  std::vector<RedisReply> items;
};

enum class Read { kMore, kDone, kBroken };

// Reads a reply from `at` on, which moves behind it.
Read ReadReply(std::string_view bytes, std::size_t& at, RedisReply& reply, int depth = 0) {
  constexpr int kDepthMax = 4;
  const std::size_t end = bytes.find("\r\n", at);
  if (end == std::string_view::npos) return Read::kMore;
  if (end == at || depth > kDepthMax) return Read::kBroken;
  reply.kind = bytes[at];
  const std::string_view line = bytes.substr(at + 1, end - at - 1);
  at = end + 2;
  if (reply.kind == '+' || reply.kind == '-' || reply.kind == ':') {
    reply.text = line;
    return Read::kDone;
  }
  const auto size = ParseWhole<std::size_t>(line);
  if (!size || *size > kReplyBytesMax) return Read::kBroken;
  if (reply.kind == '$') {
    if (bytes.size() < at + *size + 2) return Read::kMore;
    reply.text = bytes.substr(at, *size);
    at += *size + 2;
    return Read::kDone;
  }
  if (reply.kind != '*') return Read::kBroken;
  for (std::size_t i = 0; i < *size; ++i) {
    RedisReply item;
    if (const Read read = ReadReply(bytes, at, item, depth + 1); read != Read::kDone) return read;
    reply.items.push_back(std::move(item));
  }
  return Read::kDone;
}

std::string CommandText(const std::vector<std::string>& words) {
  std::string text = fmt::format("*{}\r\n", words.size());
  for (const std::string& word : words) text += fmt::format("${}\r\n{}\r\n", word.size(), word);
  return text;
}

Error NoAnswerOfADaemon(const std::string& server, std::string_view what) {
  return {ErrorCode::kInternal, fmt::format("{} did not answer like a daemon of leafctl: {}", server, what),
          "is that the address of server.redis_listen?"};
}

// One connection, for some commands.
template <typename Socket>
class RedisConnection {
 public:
  // `more`: what the stream is made with besides the loop.
  template <typename... More>
  RedisConnection(asio::io_context& loop, const std::string& server, std::chrono::milliseconds timeout,
                  More&&... more)
      : loop_(loop), stream_(loop, std::forward<More>(more)...), server_(server), timeout_(timeout) {}

  template <typename Endpoints>
  Result<void> Connect(const Endpoints& endpoints) {
    error_code failed = beast::error::timeout;
    stream_.expires_after(timeout_);
    stream_.async_connect(endpoints, [&](error_code result, auto&&...) { failed = result; });
    Run();
    if (!failed) return {};
    auto why = TlsFailureOf(stream_, server_);
    return why ? *std::move(why) : ConnectError(server_, failed);
  }

  // A reply has no more than `bytes_max`.
  Result<RedisReply> Ask(const std::vector<std::string>& words, std::size_t bytes_max = kShortReplyBytesMax) {
    const std::string command = CommandText(words);
    error_code failed = beast::error::timeout;
    stream_.expires_after(timeout_);
    asio::async_write(stream_, asio::buffer(command),
                      [&](error_code result, std::size_t) { failed = result; });
    Run();
    std::string bytes;
    while (!failed) {
      RedisReply reply;
      std::size_t at = 0;
      const Read read = ReadReply(bytes, at, reply);
      if (read == Read::kDone) return reply;
      if (read == Read::kBroken) return NoAnswerOfADaemon(server_, Quoted(bytes));
      if (bytes.size() > bytes_max) return NoAnswerOfADaemon(server_, "its answer is too long");
      std::array<char, std::size_t{64} * 1024> piece{};
      std::size_t size = 0;
      failed = beast::error::timeout;
      stream_.async_read_some(asio::buffer(piece), [&](error_code result, std::size_t got) {
        failed = result;
        size = got;
      });
      Run();
      bytes.append(piece.data(), size);
    }
    if (auto why = TlsFailureOf(stream_, server_)) return *std::move(why);
    if (failed == beast::error::timeout) {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("{} did not answer within {}", server_, FormatDuration(timeout_)), ""};
    }
    return Error{ErrorCode::kUnavailable,
                 fmt::format("{} did not complete its answer: {}", server_, failed.message()), ""};
  }

 private:
  void Run() {
    loop_.restart();
    loop_.run();
  }

  asio::io_context& loop_;
  Socket stream_;
  const std::string& server_;
  const std::chrono::milliseconds timeout_;
};

// What the server said went wrong, from the word that it begins with.
Error ErrorOfReply(const std::string& server, const std::string& text) {
  constexpr std::array<std::pair<std::string_view, ErrorCode>, 15> kWords{
      std::pair{std::string_view("NOTFOUND"), ErrorCode::kNotFound},
      {"FROZEN", ErrorCode::kFrozen},
      {"PAUSED", ErrorCode::kPaused},
      {"LIMITED", ErrorCode::kLimited},
      {"TRYAGAIN", ErrorCode::kUnavailable},
      {"OVERFLOW", ErrorCode::kOverflow},
      {"NOTOWNER", ErrorCode::kNotOwner},
      {"DISABLED", ErrorCode::kDisabled},
      {"CONFIG", ErrorCode::kConfig},
      {"REFUSED", ErrorCode::kRefused},
      {"UNAVAILABLE", ErrorCode::kUnavailable},
      {"NOAUTH", ErrorCode::kPermission},
      {"NOPERM", ErrorCode::kPermission},
      {"WRONGPASS", ErrorCode::kPermission},
      {"ERR", ErrorCode::kInvalidArgument}};
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = std::string_view(text).substr(0, end);
  const auto found =
      std::find_if(kWords.begin(), kWords.end(), [&](const auto& known) { return known.first == word; });
  if (found == kWords.end() || text.starts_with("ERR unknown command"))
    return NoAnswerOfADaemon(server, Printable(text));
  return {found->second, Printable(std::string_view(text).substr(std::min(end + 1, text.size()))), ""};
}

// An ID, or the end of a range of them.
std::optional<std::uint64_t> IdOf(const RedisReply& reply, std::uint64_t max = kMaxIdLimit) {
  const auto id = ParseWhole<std::uint64_t>(reply.text);
  return id && *id <= max ? id : std::nullopt;
}

// The limit in "ERR count 5000 is over this server's limit of 1000 (a hint)" (Issuer::CheckCount); 0 in
// another text.
std::uint64_t LimitIn(std::string_view text) {
  constexpr std::string_view kLimit = " is over this server's limit of ";
  const std::size_t at = text.find(kLimit);
  if (!text.starts_with("ERR count ") || at == std::string_view::npos) return 0;
  const std::string_view rest = text.substr(at + kLimit.size());
  return ParseWhole<std::uint64_t>(rest.substr(0, rest.find(' '))).value_or(0);
}

// The ranges of a reply to `question`; nothing if it is no such reply, or not of so many IDs.
std::optional<std::vector<IdRange>> RangesOfReply(const RedisReply& reply, const IdQuestion& question) {
  std::vector<IdRange> ranges;
  const auto add = [&](std::optional<std::uint64_t> begin, std::optional<std::uint64_t> end) {
    if (!begin || !end || *begin >= *end || (!ranges.empty() && *begin < ranges.back().end)) return false;
    if (!ranges.empty() && ranges.back().end == *begin) {
      ranges.back().end = *end;
    } else {
      ranges.push_back({*begin, *end});
    }
    return true;
  };
  if (question.contiguous) {
    const auto last = IdOf(reply);
    if (reply.kind != ':' || !last || *last + 1 < question.count ||
        !add(*last + 1 - question.count, *last + 1))
      return std::nullopt;
    return ranges;
  }
  if (reply.kind != '*') return std::nullopt;
  std::uint64_t count = 0;
  for (const RedisReply& item : reply.items) {
    bool good = false;
    if (question.snowflake) {
      const auto id = IdOf(item);
      good = id && add(*id, *id + 1);
      count += 1;
    } else if (item.items.size() == 2) {
      const auto begin = IdOf(item.items[0]);
      const auto end = IdOf(item.items[1], kIdEnd);
      good = add(begin, end);
      if (good) count += *end - *begin;
    }
    if (!good) return std::nullopt;
  }
  return count == question.count ? std::optional(ranges) : std::nullopt;
}

template <typename Connection>
Result<RedisIds> Take(Connection& connection, const std::string& server, const IdQuestion& question,
                      const std::string& token) {
  if (!token.empty()) {
    LEAF_ASSIGN_OR_RETURN(const RedisReply login, connection.Ask({"AUTH", "default", token}));
    if (login.kind == '-') return ErrorOfReply(server, login.text);
  }
  std::vector<std::string> words{"LEAF.RANGE", std::string(question.tag), std::to_string(question.count)};
  if (question.snowflake) words = {"LEAF.SNOWFLAKE", std::to_string(question.count)};
  if (question.contiguous) {
    words.front() = "INCRBY";
    LEAF_ASSIGN_OR_RETURN(const RedisReply hello, connection.Ask({"HELLO"}));
    const bool is_ours = hello.items.size() >= 2 && hello.items[1].text == "leafctl";
    if (!is_ours) return NoAnswerOfADaemon(server, "it is another server");
  }
  const std::uint64_t ids_max = kReplyBytesMax / kReplyBytesForAnId;
  const std::size_t bytes_max = kShortReplyBytesMax + std::min(question.count, ids_max) * kReplyBytesForAnId;
  LEAF_ASSIGN_OR_RETURN(const RedisReply reply, connection.Ask(words, bytes_max));
  if (reply.kind == '-') {
    if (const std::uint64_t limit = LimitIn(reply.text); limit > 0 && !question.contiguous)
      return RedisIds{.max_count = limit};
    return ErrorOfReply(server, reply.text);
  }
  auto ranges = RangesOfReply(reply, question);
  if (!ranges) return NoAnswerOfADaemon(server, "its IDs are not what was asked for");
  return RedisIds{.ranges = *std::move(ranges)};
}

}  // namespace

bool IsRedisServer(std::string_view server) {
  return server.starts_with(kTcp) || server.starts_with(kTls) || server.starts_with(kUnix);
}

namespace {

Result<RedisIds> TakeOver(asio::io_context& loop, const std::string& server, const IdQuestion& question,
                          std::chrono::milliseconds timeout, const TlsSource& tls, const std::string& token) {
  // As the same address is written for HTTP.
  const std::string address = server.starts_with(kTcp)   ? "http://" + server.substr(kTcp.size())
                              : server.starts_with(kTls) ? "https://" + server.substr(kTls.size())
                                                         : "unix:" + server.substr(kUnix.size());
  LEAF_ASSIGN_OR_RETURN(const ServerAddress found, FindServer(loop, address));
  if (const auto* const path = std::get_if<asio::local::stream_protocol::endpoint>(&found.endpoints)) {
    RedisConnection<UnixStream> connection(loop, server, timeout);
    LEAF_RETURN_IF_ERROR(connection.Connect(*path));
    return Take(connection, server, question, token);
  }
  const auto& endpoints = std::get<asio::ip::tcp::resolver::results_type>(found.endpoints);
  if (found.is_tls) {
    LEAF_ASSIGN_OR_RETURN(auto context, TlsFrom(tls));
    RedisConnection<TlsStream> connection(loop, server, timeout, std::move(context), found.name);
    LEAF_RETURN_IF_ERROR(connection.Connect(endpoints));
    return Take(connection, server, question, token);
  }
  RedisConnection<beast::tcp_stream> connection(loop, server, timeout);
  LEAF_RETURN_IF_ERROR(connection.Connect(endpoints));
  return Take(connection, server, question, token);
}

}  // namespace

Result<RedisIds> TakeFromRedis(const std::string& server, const IdQuestion& question,
                               std::chrono::milliseconds timeout, const TlsSource& tls,
                               const std::string& token) {
  return WithLoop(
      server, [&](asio::io_context& loop) { return TakeOver(loop, server, question, timeout, tls, token); });
}

}  // namespace leaf::client
