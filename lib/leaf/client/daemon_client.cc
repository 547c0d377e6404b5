#include "leaf/client/daemon_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <optional>
#include <utility>

#include "leaf/base/duration.h"
#include "leaf/base/text.h"
#include "leaf/client/tls_stream.h"
#include "leaf/client/wire.h"

namespace leaf::client {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using beast::error_code;

constexpr std::uint64_t kAnswerBytesMax = std::uint64_t{64} * 1024 * 1024;
// What is asked for at once until a server names its own limit; the default of server.max_count.
constexpr std::uint64_t kCountDefault = 100'000;

// One request and its answer on a connected stream, asynchronously; `outcome` is set when the loop has run.
template <typename Stream>
class Exchange {
 public:
  Exchange(Stream& stream, http::verb method, const std::string& host, const std::string& target,
           const std::string& token, const std::string& body)
      : stream_(stream) {
    request_.method(method);
    request_.target(target);
    request_.version(11);
    request_.set(http::field::host, host);
    request_.set(http::field::connection, "close");
    if (!token.empty()) request_.set(http::field::authorization, "Bearer " + token);
    if (!body.empty()) request_.set(http::field::content_type, "application/json");
    request_.body() = body;
    if (method != http::verb::get) request_.content_length(body.size());
    parser_.body_limit(kAnswerBytesMax);
  }

  void Start() {
    http::async_write(stream_, request_, [this](error_code failed, std::size_t) {
      if (failed) return Finish(failed);
      sent = true;
      http::async_read(stream_, buffer_, parser_,
                       [this](error_code read_failed, std::size_t) { Finish(read_failed); });
    });
  }

  std::optional<error_code> outcome;
  bool sent = false;  // whole: the server may have acted upon it
  http::response<http::string_body>& response() { return parser_.get(); }

 private:
  void Finish(error_code result) { outcome = result; }

  Stream& stream_;
  http::request<http::string_body> request_;
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
};

Error NoAnswerIn(const std::string& server, std::chrono::milliseconds timeout) {
  return {ErrorCode::kUnavailable,
          fmt::format("{} did not answer within {}", server, FormatDuration(timeout)), ""};
}

Error NotComplete(const std::string& server, std::string_view why) {
  return {ErrorCode::kUnavailable, fmt::format("{} did not complete its answer: {}", server, why), ""};
}

// A change was asked for, and `what` is no answer to that.
Error MayBeDone(std::string_view what) {
  return {ErrorCode::kOutcomeUnknown, fmt::format("{}; unknown whether the change was made", what),
          "look at the tag before you repeat it"};
}

Error Repeated(const std::string& server) {
  return {ErrorCode::kInternal,
          fmt::format("{} gave IDs that an earlier answer had: they are not used", server),
          "is there a cache, or a proxy that answers by itself, in between?"};
}

// Another server may do better: what comes with a 503 over HTTP.
bool IsOneServersOwn(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUnreachable:
    case ErrorCode::kUnavailable:
    case ErrorCode::kConfig:  // its certificate
    case ErrorCode::kPaused:
    case ErrorCode::kOverflow:
    case ErrorCode::kNotOwner:
    case ErrorCode::kDisabled:
      return true;
    default:
      return false;
  }
}

}  // namespace

Result<DaemonClient::Reply> DaemonClient::Ask(const std::string& server, const Question& question) {
  if (IsRedisServer(server)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{} speaks Redis' protocol, which has IDs only", server),
                 "name the daemon by http://HOST:PORT or unix:/PATH"};
  }
  return WithLoop(server, [&](asio::io_context& loop) { return AskOver(loop, server, question); });
}

Result<DaemonClient::Reply> DaemonClient::AskOver(asio::io_context& loop, const std::string& server,
                                                  const Question& question) {
  constexpr http::verb kVerbs[] = {http::verb::get, http::verb::post, http::verb::patch, http::verb::delete_};
  const auto run = [&](auto& stream, const std::string& host) -> Result<Reply> {
    met_a_server_ = true;
    Exchange exchange(stream, kVerbs[static_cast<std::size_t>(question.method)], host, question.target,
                      token_, question.body);
    stream.expires_after(timeout_);
    loop.restart();
    exchange.Start();
    loop.run();
    const error_code failed = exchange.outcome.value_or(beast::error::timeout);
    if (failed) {
      auto why = TlsFailureOf(stream, server);
      Error error = why                               ? *std::move(why)
                    : failed == beast::error::timeout ? NoAnswerIn(server, timeout_)
                                                      : NotComplete(server, failed.message());
      // Where one of the two does not trust the other, nothing was asked.
      const bool lost = error.code == ErrorCode::kUnavailable && exchange.sent;
      return lost && question.effect == Effect::kChanges ? MayBeDone(error.message) : error;
    }
    was_answered_ = true;
    return Reply{static_cast<int>(exchange.response().result_int()), std::move(exchange.response().body())};
  };
  const auto connect = [&](auto& stream, const auto& endpoints) {
    error_code failed = beast::error::timeout;
    stream.expires_after(timeout_);
    stream.async_connect(endpoints, [&](error_code result, auto&&...) { failed = result; });
    loop.run();
    return failed;
  };

  LEAF_ASSIGN_OR_RETURN(const ServerAddress address, FindServer(loop, server));
  if (const auto* const path = std::get_if<asio::local::stream_protocol::endpoint>(&address.endpoints)) {
    UnixStream stream(loop);
    if (const error_code failed = connect(stream, *path)) return ConnectError(server, failed);
    return run(stream, address.host);
  }
  const auto& endpoints = std::get<asio::ip::tcp::resolver::results_type>(address.endpoints);
  const auto over_tcp = [&](auto& stream) -> Result<Reply> {
    if (const error_code failed = connect(stream, endpoints)) {
      auto why = TlsFailureOf(stream, server);
      return why ? *std::move(why) : ConnectError(server, failed);
    }
    return run(stream, address.host);
  };
  if (address.is_tls) {
    LEAF_ASSIGN_OR_RETURN(auto context, TlsFrom(tls_));
    TlsStream stream(loop, std::move(context), address.name);
    return over_tcp(stream);
  }
  beast::tcp_stream stream(loop);
  return over_tcp(stream);
}

Result<DaemonClient::Reply> DaemonClient::AskRedis(const std::string& server,
                                                   const IdQuestion& question) const {
  LEAF_ASSIGN_OR_RETURN(RedisIds ids, TakeFromRedis(server, question, timeout_, tls_, token_));
  if (ids.max_count > 0) return Reply{.status = 413, .max_count = ids.max_count};
  return Reply{.status = 200, .ranges = std::move(ids.ranges)};
}

Result<DaemonClient::Reply> DaemonClient::AskAny(const std::string& target, const IdQuestion* question) {
  Error first{ErrorCode::kUnreachable, "no daemon to ask", "start one with leafctl serve"};
  bool asked = false;
  for (const std::string& server : servers_) {
    const bool over_redis = question != nullptr && IsRedisServer(server);
    auto reply = over_redis ? AskRedis(server, *question) : Ask(server, {.target = target});
    // A server that knows itself by other names is none of those that were meant.
    if (reply.ok() && reply->status != 503 && reply->status != 421) {
      answered_by_ = server;
      return reply;
    }
    Error error = reply.ok() ? ErrorOf(server, reply->status, reply->body) : std::move(reply).error();
    if (error.code == ErrorCode::kPermission || error.code == ErrorCode::kInvalidArgument) return error;
    if (over_redis && !IsOneServersOwn(error.code)) return error;
    // A server that is there tells more than those that are not; of those, all are named.
    if (!asked || (first.code == ErrorCode::kUnreachable && error.code != ErrorCode::kUnreachable)) {
      first = std::move(error);
    } else if (error.code == ErrorCode::kUnreachable && first.code == ErrorCode::kUnreachable) {
      first.message += "; " + error.message;
    }
    asked = true;
  }
  return first;
}

std::string DaemonClient::PathSegment(std::string_view tag) { return PercentEncode(tag); }

Result<void> DaemonClient::NextSegment(std::string_view tag, std::uint64_t count, const RangeSink& sink) {
  return Next(fmt::format("/v1/segment/{}?form=range", PercentEncode(tag)), {.tag = tag, .count = count},
              sink);
}

Result<void> DaemonClient::NextSnowflake(std::uint64_t count, const RangeSink& sink) {
  return Next("/v1/snowflake?form=range", {.snowflake = true, .count = count}, sink);
}

Result<void> DaemonClient::NextContiguous(std::string_view tag, std::uint64_t count, const RangeSink& sink) {
  const auto one_range = [&](const std::vector<IdRange>& ranges) -> Result<void> {
    if (ranges.size() == 1) return sink(ranges);
    return Error{ErrorCode::kInternal,
                 fmt::format("{} answered with IDs that are not contiguous; they are lost", answered_by_),
                 "it may be an older leafctl, which knows no contiguous requests"};
  };
  return Next(fmt::format("/v1/segment/{}?form=range&contiguous=1", PercentEncode(tag)),
              {.tag = tag, .count = count, .contiguous = true}, one_range);
}

Result<void> DaemonClient::Next(const std::string& path, IdQuestion question, const RangeSink& sink) {
  const bool in_one = question.contiguous;
  std::uint64_t count = question.count;
  std::uint64_t batch = in_one ? count : kCountDefault;
  SeenIds own;
  SeenIds& seen = seen_ != nullptr ? *seen_ : own;
  while (count > 0) {
    question.count = std::min(batch, count);
    const std::uint64_t wanted = question.count;
    LEAF_ASSIGN_OR_RETURN(const Reply reply, AskAny(fmt::format("{}&count={}", path, wanted), &question));
    if (reply.status == 413) {
      const std::uint64_t limit = reply.max_count > 0 ? reply.max_count : MaxCountOf(reply.body);
      if (in_one || limit == 0 || limit >= wanted) return ErrorOf(answered_by_, reply.status, reply.body);
      batch = limit;
      continue;
    }
    if (reply.status != 200) return ErrorOf(answered_by_, reply.status, reply.body);
    std::vector<IdRange> ranges;
    if (reply.ranges) {
      ranges = *reply.ranges;
    } else {
      LEAF_ASSIGN_OR_RETURN(ranges, RangesOf(answered_by_, reply.body, wanted));
    }
    if (!seen.Add(ranges)) return Repeated(answered_by_);
    LEAF_RETURN_IF_ERROR(sink(ranges));
    count -= wanted;
  }
  return {};
}

Result<void> DaemonClient::NextTexts(std::string_view tag, std::string_view form, std::uint64_t count,
                                     bool contiguous, const TextSink& sink) {
  const std::string path = tag.empty() ? fmt::format("/v1/snowflake?form={}", form)
                                       : fmt::format("/v1/segment/{}?form={}{}", PercentEncode(tag), form,
                                                     contiguous ? "&contiguous=1" : "");
  std::uint64_t batch = contiguous ? count : kCountDefault;
  SeenIds own;
  SeenIds& seen = seen_ != nullptr ? *seen_ : own;
  while (count > 0) {
    const std::uint64_t wanted = std::min(batch, count);
    LEAF_ASSIGN_OR_RETURN(const Reply reply, AskAny(fmt::format("{}&count={}", path, wanted)));
    if (reply.status == 413) {
      const std::uint64_t limit = MaxCountOf(reply.body);
      if (contiguous || limit == 0 || limit >= wanted) return ErrorOf(answered_by_, reply.status, reply.body);
      batch = limit;
      continue;
    }
    if (reply.status != 200) return ErrorOf(answered_by_, reply.status, reply.body);
    LEAF_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                          TextsOf(answered_by_, reply.body, form == "code" ? "codes" : "ids", wanted));
    if (!seen.Add(texts)) return Repeated(answered_by_);
    LEAF_RETURN_IF_ERROR(sink(texts));
    count -= wanted;
  }
  return {};
}

Result<std::uint64_t> DaemonClient::Reveal(std::string_view tag, std::string_view code) {
  LEAF_ASSIGN_OR_RETURN(const Reply reply,
                        AskAny(fmt::format("/v1/codes/{}/{}", PercentEncode(tag), PercentEncode(code))));
  if (reply.status != 200) return ErrorOf(answered_by_, reply.status, reply.body);
  return RevealedOf(answered_by_, reply.body);
}

Result<std::string> DaemonClient::Status(StatusTags tags) {
  // The most that a daemon takes for a limit.
  const std::string_view limit = tags == StatusTags::kAll ? "1000000000" : "0";
  LEAF_ASSIGN_OR_RETURN(Reply reply, AskAny(fmt::format("/v1/status?limit={}", limit)));
  if (reply.status != 200) return ErrorOf(answered_by_, reply.status, reply.body);
  return std::move(reply.body);
}

Result<std::string> DaemonClient::SetPaused(std::string_view tag, bool paused, bool dry_run) {
  LEAF_ASSIGN_OR_RETURN(
      Reply reply, AskFirst({.target = fmt::format("/v1/segment/{}/{}{}", PercentEncode(tag),
                                                   paused ? "pause" : "resume", dry_run ? "?dry_run=1" : ""),
                             .method = Method::kPost,
                             .effect = dry_run ? Effect::kNone : Effect::kChanges}));
  if (reply.status != 200) return ErrorOf(answered_by_, reply.status, reply.body);
  return std::move(reply.body);
}

Result<std::string> DaemonClient::AskTags(TagMethod method, Effect effect, const std::string& target,
                                          const std::string& body) {
  const std::string whole = "/v1/tags" + target;
  LEAF_ASSIGN_OR_RETURN(Reply reply, method == TagMethod::kGet
                                         ? AskAny(whole)
                                         : AskFirst({whole, static_cast<Method>(method), effect, body}));
  if (reply.status == 200 || reply.status == 201) return std::move(reply.body);
  Error error = ErrorOf(answered_by_, reply.status, reply.body);
  if (reply.status != 404 || !error.message.starts_with("there is no route")) return error;
  return Error{ErrorCode::kDisabled,
               fmt::format("the daemon at {} is leafctl {}, which does not change tags for others",
                           answered_by_, VersionThere()),
               "upgrade it, or leave --server out and work on the store itself"};
}

Result<DaemonClient::Reply> DaemonClient::AskFirst(const Question& question) {
  Error missing{ErrorCode::kUnreachable, "", "start one with leafctl serve"};
  for (const std::string& server : servers_) {
    auto reply = Ask(server, question);
    // Only a daemon that is not there is passed over: another node's tag is not what was meant.
    if (!reply.ok() && reply.error().code == ErrorCode::kUnreachable) {
      missing.message += (missing.message.empty() ? "" : "; ") + reply.error().message;
      continue;
    }
    if (!reply.ok()) return reply;
    answered_by_ = server;
    if (question.effect != Effect::kChanges) return reply;
    // A proxy in between has lost the answer of the daemon behind it, or a part of it.
    if (reply->status >= 500 && !NamesError(reply->body))
      return MayBeDone(
          fmt::format("no answer of a daemon at {}: something there answered {}", server, reply->status));
    if (reply->status < 300 && !IsJsonObject(reply->body))
      return MayBeDone(NotComplete(server, "it is no JSON object").message);
    return reply;
  }
  return missing;
}

std::string DaemonClient::VersionThere() {
  std::string version = "an older version";
  if (const auto clock = Ask(answered_by_, {.target = "/v1/clock"}); clock.ok() && clock->status == 200) {
    const auto told = ClockOf(answered_by_, clock->body);
    if (told.ok() && !told->version.empty()) version = Printable(told->version);
  }
  return version;
}

Result<std::string> DaemonClient::Advice(std::string_view tag) {
  LEAF_ASSIGN_OR_RETURN(Reply reply, AskAny(fmt::format("/v1/segment/{}/advice", PercentEncode(tag))));
  if (reply.status != 200) return ErrorOf(answered_by_, reply.status, reply.body);
  return std::move(reply.body);
}

Result<NodeMark> DaemonClient::Mark(std::string_view tag) {
  LEAF_ASSIGN_OR_RETURN(const Reply reply, AskAny(fmt::format("/v1/segment/{}/mark", PercentEncode(tag))));
  if (reply.status != 200) return ErrorOf(answered_by_, reply.status, reply.body);
  return MarkOf(answered_by_, reply.body);
}

Result<void> DaemonClient::Live() {
  LEAF_ASSIGN_OR_RETURN(const Reply reply, AskAny("/health/live"));
  if (reply.status != 200) return ErrorOf(answered_by_, reply.status, reply.body);
  return {};
}

Result<std::string> DaemonClient::Workers() {
  LEAF_ASSIGN_OR_RETURN(Reply reply, AskAny("/v1/workers"));
  if (reply.status == 200) return std::move(reply.body);
  Error error = ErrorOf(answered_by_, reply.status, reply.body);
  // Newer ones always have the route.
  if (reply.status != 404 || error.code != ErrorCode::kNotFound) return error;
  return Error{ErrorCode::kDisabled,
               fmt::format("the daemon at {} is leafctl {}, which does not tell of worker numbers",
                           answered_by_, VersionThere()),
               "upgrade it, or leave --server out and read the registry itself"};
}

Result<NodeClock> DaemonClient::WallClock() {
  LEAF_ASSIGN_OR_RETURN(const Reply reply, AskAny("/v1/clock"));
  if (reply.status != 200) return ErrorOf(answered_by_, reply.status, reply.body);
  return ClockOf(answered_by_, reply.body);
}

}  // namespace leaf::client
