#include "leaf/server/http/router.h"

#include <fmt/format.h>

#include <chrono>
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

Response AdminOnly(const Backend& backend, const RouteRow& row) {
  const std::string_view what = row.label == Route::kV1Tags ? "changed" : "paused and resumed";
  Response response =
      V1Error(backend, {ErrorCode::kPermission, fmt::format("tags are {} over the Unix socket only", what),
                        "run leafctl on that machine, without --server or with unix:/PATH"});
  response.status = 403;
  return response;
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
  const RouteRow& row = FindRoute(target->segments);
  if (label != nullptr) *label = row.label;
  const Call call{request, *target};
  if (!row.Serves(request.method)) return AtOnce(respond, MethodResponse(backend_, row, call));
  if (row.AccessFor(request.method) == Access::kAdmin && !request.from_operator)
    return AtOnce(respond, AdminOnly(backend_, row));
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
          .max_count = backend_.issuer.MaxCount(IdSource::kSegment),
          .uptime = std::chrono::duration_cast<std::chrono::milliseconds>(backend_.clock.Monotonic() -
                                                                          backend_.started_at),
          .now = backend_.clock.Wall()};
}

}  // namespace leaf::server
