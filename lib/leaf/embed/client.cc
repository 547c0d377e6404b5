// leaf::Client: which daemons are asked, in which order.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "leaf/base/endpoint.h"
#include "leaf/base/text.h"
#include "leaf/client/daemon_client.h"
#include "leaf/client/server_groups.h"
#include "leaf/embed/client_token.h"
#include "leaf/embed/tls_files.h"
#include "leaf/leaf.h"
#include "leaf/sys/system_clock.h"

namespace leaf {
namespace {

constexpr std::string_view kHttps = "https://";

Result<void> CheckServer(const std::string& server) {
  if (server.starts_with("unix:/")) return {};
  for (const std::string_view scheme : {std::string_view("http://"), kHttps}) {
    if (!server.starts_with(scheme)) continue;
    std::string_view authority = std::string_view(server).substr(scheme.size());
    if (authority.ends_with('/')) authority.remove_suffix(1);
    const auto endpoint = ParseEndpoint(authority, 0);
    if (endpoint.ok() && endpoint->port != 0) return {};
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("bad server {}: none of http://HOST:PORT, https://HOST:PORT and unix:/PATH",
                           Quoted(server)),
               ""};
}

// Whether another daemon may do what this one did not.
bool MayDoElsewhere(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUnreachable:
    case ErrorCode::kUnavailable:
    case ErrorCode::kExhausted:
    case ErrorCode::kClock:
    case ErrorCode::kNotOwner:
    case ErrorCode::kPaused:    // on that node
    case ErrorCode::kDisabled:  // there
    case ErrorCode::kPermission:
    case ErrorCode::kConfig:  // its certificate
      return true;
    default:
      return false;
  }
}

// Whether the daemon itself is away, and not only short of what it was asked for.
bool IsAway(ErrorCode code) {
  return code == ErrorCode::kUnreachable || code == ErrorCode::kUnavailable ||
         code == ErrorCode::kPermission || code == ErrorCode::kConfig;
}

// The key or the shape of codes is not the daemon's trouble with anything else.
bool IsAwayForCodes(ErrorCode code) { return IsAway(code) && code != ErrorCode::kConfig; }

// The longest of ClientOptions' times: what is added to a clock must not overflow.
constexpr std::chrono::milliseconds kTimeMax = std::chrono::hours{24};

// As codes::kSnowflakeTag; this part knows nothing of codes.
constexpr std::string_view kSnowflakeCodes = "snowflake";

}  // namespace

class Client::Impl {
 public:
  Impl(const ClientOptions& options, client::TlsSource tls, std::string token)
      : timeout_(std::min(options.timeout, kTimeMax)),
        tls_(std::move(tls)),
        token_(std::move(token)),
        groups_(options.groups, std::min(options.away, kTimeMax)) {}

  // `ask` asks one daemon. What it was given before an error is dropped: ranges of two daemons would not
  // ascend.
  template <typename Ask>
  Result<IdRanges> RangesFromAny(const Ask& ask) {
    return FromAny<IdRanges>(IsAway, [&](client::DaemonClient& daemon) -> Result<IdRanges> {
      IdRanges ranges;
      LEAF_RETURN_IF_ERROR(ask(daemon, [&](const std::vector<IdRange>& more) -> Result<void> {
        ranges.insert(ranges.end(), more.begin(), more.end());
        return {};
      }));
      return ranges;
    });
  }

  template <typename Answer, typename Ask>
  Result<Answer> FromAny(bool (*is_away)(ErrorCode), const Ask& ask) {
    Error error;
    bool asked = false;
    for (const std::size_t server : groups_.Order(clock_.Monotonic())) {
      client::DaemonClient daemon({groups_.name(server)}, timeout_, tls_, token_);
      Result<Answer> answer = ask(daemon);
      if (answer.ok()) {
        groups_.Answered(server);
        return answer;
      }
      Error why = std::move(answer).error();
      if (is_away(why.code)) {
        groups_.DidNotAnswer(server, clock_.Monotonic());
      } else {
        groups_.Answered(server);
      }
      if (!MayDoElsewhere(why.code)) return why;
      // The nearest daemon that is there tells more than those that are not; of those, all are named.
      if (!asked || (error.code == ErrorCode::kUnreachable && why.code != ErrorCode::kUnreachable)) {
        error = std::move(why);
      } else if (error.code == ErrorCode::kUnreachable && why.code == ErrorCode::kUnreachable) {
        error.message += "; " + why.message;
      }
      asked = true;
    }
    return error;
  }

 private:
  const std::chrono::milliseconds timeout_;
  const client::TlsSource tls_;
  const std::string token_;
  const sys::SystemClock clock_;
  client::ServerGroups groups_;
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;

Result<Client> Client::Open(ClientOptions options) {
  bool any = false;
  bool any_tls = false;
  for (const auto& group : options.groups) {
    for (const std::string& server : group) {
      LEAF_RETURN_IF_ERROR(CheckServer(server));
      any = true;
      any_tls = any_tls || server.starts_with(kHttps);
    }
  }
  if (!any) return Error{ErrorCode::kInvalidArgument, "no daemon to ask: groups is empty", ""};
  if (options.timeout.count() <= 0 || options.away.count() < 0)
    return Error{ErrorCode::kInvalidArgument,
                 "bad time-outs: `timeout` has to be above 0, `away` not below it", ""};
  if (options.cert.empty() != options.key.empty())
    return Error{ErrorCode::kInvalidArgument, "`cert` and `key` are of no use without each other", ""};
  client::TlsSource tls;
  if (any_tls) {
    LEAF_ASSIGN_OR_RETURN(
        auto context,
        embed::LoadClientTls({.servers = {}, .ca = options.ca, .cert = options.cert, .key = options.key}));
    // Without a lock, which no thread would give back in a child of fork.
    tls = [context]() -> Result<std::shared_ptr<const tls::ClientContext>> { return context; };
  }
  LEAF_ASSIGN_OR_RETURN(std::string token, embed::ReadClientToken(options.token_file));
  return Client(std::make_unique<Impl>(options, std::move(tls), std::move(token)));
}

Result<IdRanges> Client::Next(std::string_view tag, std::uint64_t count) {
  LEAF_CHECK(impl_ != nullptr);
  LEAF_RETURN_IF_ERROR(ValidateTag(tag));
  if (count == 0) return Error{ErrorCode::kInvalidArgument, "bad count 0: at least one ID", ""};
  return impl_->RangesFromAny([&](client::DaemonClient& daemon, const client::DaemonClient::RangeSink& sink) {
    return daemon.NextSegment(tag, count, sink);
  });
}

Result<IdRanges> Client::NextSnowflake(std::uint64_t count) {
  LEAF_CHECK(impl_ != nullptr);
  if (count == 0) return Error{ErrorCode::kInvalidArgument, "bad count 0: at least one ID", ""};
  return impl_->RangesFromAny([&](client::DaemonClient& daemon, const client::DaemonClient::RangeSink& sink) {
    return daemon.NextSnowflake(count, sink);
  });
}

Result<std::vector<std::string>> Client::NextCodes(std::string_view tag, std::uint64_t count) {
  LEAF_CHECK(impl_ != nullptr);
  LEAF_RETURN_IF_ERROR(ValidateTag(tag));
  if (count == 0) return Error{ErrorCode::kInvalidArgument, "bad count 0: at least one ID", ""};
  using Codes = std::vector<std::string>;
  return impl_->FromAny<Codes>(IsAwayForCodes, [&](client::DaemonClient& daemon) -> Result<Codes> {
    Codes codes;
    LEAF_RETURN_IF_ERROR(daemon.NextTexts(tag == kSnowflakeCodes ? "" : tag, "code", count, false,
                                          [&](const Codes& more) -> Result<void> {
                                            codes.insert(codes.end(), more.begin(), more.end());
                                            return {};
                                          }));
    return codes;
  });
}

Result<std::uint64_t> Client::Reveal(std::string_view tag, std::string_view code) {
  LEAF_CHECK(impl_ != nullptr);
  LEAF_RETURN_IF_ERROR(ValidateTag(tag));
  return impl_->FromAny<std::uint64_t>(
      IsAwayForCodes, [&](client::DaemonClient& daemon) { return daemon.Reveal(tag, code); });
}

}  // namespace leaf
