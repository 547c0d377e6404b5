#include "leaf/server/http/router.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "leaf/server/http/errors.h"
#include "leaf/server/http/routes.h"

namespace leaf::server {
namespace {

bool HasEncodedSlashOrNul(std::string_view path) {
  for (std::size_t at = 0; (at = path.find('%', at)) != std::string_view::npos; ++at) {
    const std::string_view code = path.substr(at + 1, 2);
    if (code == "2F" || code == "2f" || code == "00") return true;
  }
  return false;
}

// The answer to a method that the route does not serve.
Response MethodResponse(const Backend& backend, const RouteRow& row, const Call& call) {
  const std::string_view path = call.target.raw_path;
  Response response;
  switch (row.dialect) {
    case Dialect::kLeaf:
      if (call.request.method != "OPTIONS")
        response = LeafPlainError(backend, 405, "Request method 'TRACE' not supported", path);
      break;
    case Dialect::kPage:
      response = LeafPlainError(backend, 405, "only GET and HEAD", path);
      break;
    case Dialect::kV1:
      response = V1Error(backend, {ErrorCode::kInvalidArgument,
                                   fmt::format("method {} is not supported here", call.request.method), ""});
      response.status = 405;
      break;
  }
  response.allow = row.methods;
  return response;
}

std::optional<access::Role> RoleFor(Access access) {
  switch (access) {
    case Access::kFree:
      return std::nullopt;
    case Access::kIds:
      return access::Role::kIds;
    case Access::kRead:
      return access::Role::kRead;
    case Access::kAdmin:
    case Access::kReadOrAdmin:
      break;
  }
  return access::Role::kAdmin;
}

Response Denied(const Backend& backend, const RouteRow& row, const Call& call, int status, Error why) {
  Response response = row.dialect == Dialect::kV1
                          ? V1Error(backend, why)
                          : LeafPlainError(backend, status, why.message, call.target.raw_path);
  response.status = status;
  return response;
}

// With Basic a browser asks for the token by itself.
constexpr std::string_view kChallenges =
    "WWW-Authenticate: Bearer realm=\"leafctl\"\r\n"
    "WWW-Authenticate: Basic realm=\"leafctl\", charset=\"UTF-8\"\r\n";
constexpr std::string_view kChallengeOfScripts = "WWW-Authenticate: Bearer realm=\"leafctl\"\r\n";

// Why the caller may not use the route; nothing if it may.
std::optional<Response> RefuseCaller(const Backend& backend, const RouteRow& row, const Call& call) {
  const auto role = RoleFor(row.AccessFor(call.request.method));
  if (!role) return std::nullopt;
  const Request& request = call.request;
  const access::Caller& caller = *request.caller;
  if (caller.roles.Has(*role)) [[likely]] {
    if (!request.from_other_site || *role == access::Role::kRead) [[likely]]
      return std::nullopt;
    return Denied(backend, row, call, 403,
                  {ErrorCode::kPermission, "a web page of another site may not do this",
                   "if the page is this server's own behind a proxy, add its name to server.allowed_hosts"});
  }
  const bool may_log_in = backend.options.gate != nullptr && backend.options.gate->has_tokens();
  if (may_log_in && !caller.is_known) {
    Response response = Denied(
        backend, row, call, 401,
        {ErrorCode::kPermission,
         request.wrong_credentials.empty() ? fmt::format("a token with role {} is needed", RoleName(*role))
                                           : std::string(request.wrong_credentials),
         "send it as Authorization: Bearer TOKEN; leafctl token add makes one"});
    response.headers = request.from_script ? kChallengeOfScripts : kChallenges;
    return response;
  }
  return Denied(backend, row, call, 403,
                {ErrorCode::kPermission, fmt::format("{} lacks role {}", caller.name, RoleName(*role)),
                 *role == access::Role::kAdmin
                     ? "run leafctl as the server's user on its machine, without --server or with "
                       "unix:/PATH; or use a token with role admin (auth.tokens_file)"
                     : "auth.anonymous is what callers without a token may do"});
}

}  // namespace

Router::Router(RouterOptions options, const Issuer& issuer, UnreadAnswers& unread, const Clock& clock,
               Executor& reports)
    : backend_{
          .options = options,
          .issuer = issuer,
          .unread = unread,
          .clock = clock,
          .reports = reports,
          .started_at = clock.Monotonic(),
          .status = {clock, issuer.ids(), [this] { return StatusSnapshot(Facts(), backend_.issuer.ids()); }},
          .workers = {clock, std::move(options.workers)},
          .tags = {clock, options.tags, unread}} {}

Withdraw Router::Handle(const Request& request, Respond respond, Route* label) const {
  if (label != nullptr) *label = Route::kOther;
  const auto target = ParseTarget(request.target);
  const auto is_v1 = [&] { return request.target.find("/v1/") != std::string_view::npos; };
  if (!target.ok()) {
    return AtOnce(respond, is_v1() ? V1Error(backend_, target.error())
                                   : LeafPlainError(backend_, 400, target.error().message, request.target));
  }
  // As Java Leaf's server has it. Elsewhere a tag may be named like that: tables of Java Leaf may hold one.
  if (HasEncodedSlashOrNul(target->raw_path) && !is_v1()) {
    return AtOnce(respond,
                  LeafPlainError(backend_, 400, "an encoded slash or NUL in the path", target->raw_path));
  }
  const RouteRow* found = &FindRoute(target->segments);
  if (request.is_public_door && found->doors == Doors::kOperators) found = &NoRoute(found->dialect);
  const RouteRow& row = *found;
  if (label != nullptr) *label = row.label;
  const Call call{request, *target};
  if (!row.Serves(request.method)) return AtOnce(respond, MethodResponse(backend_, row, call));
  if (auto refused = RefuseCaller(backend_, row, call)) return AtOnce(respond, *std::move(refused));
  return row.handle(backend_, call, std::move(respond));
}

bool Router::IsForWatchers(std::string_view target) {
  const auto parsed = ParseTarget(target);
  return parsed.ok() && FindRoute(parsed->segments).for_watchers;
}

NodeFacts Router::Facts() const {
  const RouterOptions& options = backend_.options;
  return {.version = options.version,
          .store = options.store,
          .store_at = options.store_at,
          .state_dir = options.state_dir,
          .listen = options.listen,
          .gate = options.gate,
          .is_open = options.warns_if_open != nullptr && options.warns_if_open->load() &&
                     options.gate != nullptr && !options.gate->has_tokens(),
          .max_count = backend_.issuer.MaxCount(IdSource::kSegment),
          .uptime = std::chrono::duration_cast<std::chrono::milliseconds>(backend_.clock.Monotonic() -
                                                                          backend_.started_at),
          .now = backend_.clock.Wall()};
}

}  // namespace leaf::server
