// Asks a running daemon, over TCP or its Unix socket.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/id_range.h"
#include "leaf/base/result.h"
#include "leaf/base/time.h"
#include "leaf/client/answers.h"
#include "leaf/client/redis_wire.h"
#include "leaf/client/seen_ids.h"
#include "leaf/client/trust.h"

namespace boost::asio {
class io_context;
}

namespace leaf::client {

// Not thread-safe. Calls block up to the time-out, for each server.
class DaemonClient {
 public:
  // `servers`: "http://HOST:PORT", "https://HOST:PORT" or "unix:/PATH", tried in order: the next one is asked
  // if one cannot be reached, is not trusted, does not answer in time, or says 503. "redis://HOST:PORT",
  // "rediss://HOST:PORT" and "redis+unix:/PATH" give IDs, and nothing else: kInvalidArgument. `tls`: for
  // those that speak TLS. `token`: what the servers ask for (leafctl-access(7)); "" for none.
  DaemonClient(std::vector<std::string> servers, std::chrono::milliseconds timeout, TlsSource tls,
               std::string token = "")
      : servers_(std::move(servers)), timeout_(timeout), tls_(std::move(tls)), token_(std::move(token)) {}

  // `count` IDs of `tag`, as ascending ranges, in as many requests as the server's max_count asks for. Calls
  // `sink` with the ranges of each complete answer, in order. On an error, what `sink` was given is valid and
  // spent. Errors: kUnreachable (nothing listens there), kPermission (the socket may not be opened), kConfig
  // (it is not trusted over TLS, or does not trust us), and what the server says: kNotFound, kFrozen,
  // kExhausted, kUnavailable, kLimited, kInvalidArgument, …; kInternal for an answer with IDs that an earlier
  // one had, of this call or of those that share what was seen (Remember).
  using RangeSink = std::function<Result<void>(const std::vector<IdRange>&)>;
  Result<void> NextSegment(std::string_view tag, std::uint64_t count, const RangeSink& sink);
  // The same of the server's snowflake worker. Further errors: kClock, kNotOwner.
  Result<void> NextSnowflake(std::uint64_t count, const RangeSink& sink);
  // `count` IDs of `tag` that follow each other without a gap, in one request: kTooLarge if that is more than
  // the server's max_count, and kInternal if the server's version does not know such requests.
  Result<void> NextContiguous(std::string_view tag, std::uint64_t count, const RangeSink& sink);

  // `count` IDs in a form of HTTP other than numbers ("code", "uuid", "ulid"), as the server writes them: of
  // `tag`, or for an empty one of its snowflake worker. `contiguous` and `sink` as above. Errors: the same;
  // kInvalidArgument if the server's version does not know the form.
  using TextSink = std::function<Result<void>(const std::vector<std::string>&)>;
  Result<void> NextTexts(std::string_view tag, std::string_view form, std::uint64_t count, bool contiguous,
                         const TextSink& sink);

  // The ID that a code of `tag` stands for. Errors: as of Status, and what the server says: kInvalidArgument,
  // kNotFound, kConfig.
  Result<std::uint64_t> Reveal(std::string_view tag, std::string_view code);

  // The body of /v1/status, a JSON object, with all tags or with none of them. Errors: kUnreachable,
  // kPermission, kUnavailable.
  enum class StatusTags { kNone, kAll };
  Result<std::string> Status(StatusTags tags);

  // Whether a server answers at all, however it is. Errors: as of Status.
  Result<void> Live();

  // What the server's node was ever granted for `tag`. Errors: as of Status, and what the server says.
  Result<NodeMark> Mark(std::string_view tag);

  // The body of /v1/workers: the registry as the server reads it. Errors: as of Status, kDisabled (the server
  // issues no snowflake IDs, or its version has no such route).
  Result<std::string> Workers();

  // The server's wall clock, and its version. Errors: as of Status.
  Result<NodeClock> WallClock();

  // Cuts `tag` off on the first server that is there, or lets it go on; `dry_run` only asks. The body of the
  // answer, a JSON object. Errors: kUnreachable, kPermission (also if the server is not on this machine),
  // kOutcomeUnknown (the answer is lost; never of a dry run), and what the server says.
  Result<std::string> SetPaused(std::string_view tag, bool paused, bool dry_run);
  // The body of /v1/segment/{tag}/advice. Errors: as of Status, and what the server says.
  Result<std::string> Advice(std::string_view tag);

  // A request below /v1/tags; `target` is what follows that, `body` JSON or "". The body of the answer. What
  // is no kGet is asked of the first server that is there: whether another one works on the same table is not
  // known. Errors: as of SetPaused, kOutcomeUnknown of what kChanges; kDisabled for a server whose version
  // has no such route.
  enum class TagMethod { kGet, kPost, kPatch, kDelete };
  enum class Effect { kNone, kChanges };
  Result<std::string> AskTags(TagMethod method, Effect effect, const std::string& target,
                              const std::string& body);

  // The tag as a segment of a server's path, with % codes where needed.
  static std::string PathSegment(std::string_view tag);

  // Calls for IDs, of one tag or of snowflake IDs, go on with what `seen` has, and add to it; it outlives
  // them.
  void Remember(SeenIds& seen) { seen_ = &seen; }

  // Which server answered last, "" if none did.
  const std::string& answered_by() const { return answered_by_; }
  // Whether any server took a connection, be it leafctl's or not.
  bool met_a_server() const { return met_a_server_; }
  // Whether any answered over HTTP, be it only that it cannot.
  bool was_answered() const { return was_answered_; }

 private:
  struct Reply {
    int status = 0;
    std::string body{};
    // Of a Redis port, instead of the body; the second with status 413.
    std::optional<std::vector<IdRange>> ranges{};
    std::uint64_t max_count = 0;
  };
  // `path`: with a parameter already. A question that is contiguous is asked in one request.
  Result<void> Next(const std::string& path, IdQuestion question, const RangeSink& sink);
  enum class Method { kGet, kPost, kPatch, kDelete };
  struct Question {
    std::string target;
    Method method = Method::kGet;
    Effect effect = Effect::kNone;
    std::string body{};
  };
  Result<Reply> Ask(const std::string& server, const Question& question);
  Result<Reply> AskOver(boost::asio::io_context& loop, const std::string& server, const Question& question);
  // Of the first server that is there.
  Result<Reply> AskFirst(const Question& question);
  // What a server that answered last says of its version.
  std::string VersionThere();
  Result<Reply> AskRedis(const std::string& server, const IdQuestion& question) const;
  // `question`: what the target asks for, if that is IDs.
  Result<Reply> AskAny(const std::string& target, const IdQuestion* question = nullptr);

  const std::vector<std::string> servers_;
  const std::chrono::milliseconds timeout_;
  const TlsSource tls_;
  const std::string token_;
  std::string answered_by_;
  bool met_a_server_ = false;
  bool was_answered_ = false;
  SeenIds* seen_ = nullptr;
};

}  // namespace leaf::client
