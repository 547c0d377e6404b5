#include "leaf/server/router.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/server/status_json.h"

namespace leaf::server {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Leaf's numbers for what went wrong (SegmentIDGenImpl); they stand inside the error's message.
constexpr int kLeafDisabled = -1;
constexpr int kLeafUnknownTag = -2;
constexpr int kLeafNotReady = -3;

constexpr std::string_view kLeafAllow = "GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS";
constexpr std::string_view kTakeAllow = "GET,HEAD,POST";
constexpr std::string_view kReadAllow = "GET,HEAD";
constexpr std::uint32_t kRetryAfterSeconds = 1;

struct HttpMeaning {
  int status;
  bool retry;  // waiting helps
};

HttpMeaning MeaningOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return {400, false};
    case ErrorCode::kNotFound:
      return {404, false};
    case ErrorCode::kFrozen:
      return {409, false};
    case ErrorCode::kTooLarge:
      return {413, false};
    case ErrorCode::kLimited:
      return {429, true};
    case ErrorCode::kExhausted:
    case ErrorCode::kUnavailable:
    case ErrorCode::kOutcomeUnknown:
    case ErrorCode::kClock:
      return {503, true};
    case ErrorCode::kInternal:
      return {500, false};
    default:
      return {503, false};
  }
}

void AppendIds(std::string& out, const IdSpans& spans, std::string_view before, std::string_view between,
               std::string_view after) {
  bool first = true;
  for (const IdRange& range : spans.ranges()) {
    for (std::uint64_t id = range.begin; id < range.end; ++id) {
      if (!first) out += between;
      first = false;
      out += before;
      AppendId(out, id);
      out += after;
    }
  }
}

std::string IdsBody(const IdSpans& spans, bool as_text) {
  constexpr std::size_t kBytesPerId = 23;  // 20 digits, quotes, comma
  std::string body;
  body.reserve(16 + spans.total() * kBytesPerId);
  if (as_text) {
    AppendIds(body, spans, "", "", "\n");
  } else {
    body += R"({"ids":[)";
    AppendIds(body, spans, "\"", ",", "\"");
    body += "]}";
  }
  return body;
}

std::string RangesBody(const IdSpans& spans, bool as_text) {
  std::string body = as_text ? "" : R"({"ranges":[)";
  bool first = true;
  for (const IdRange& range : spans.ranges()) {
    if (as_text) {
      body += fmt::format("{} {}\n", range.begin, range.end);
    } else {
      body += fmt::format(R"({}{{"begin":"{}","end":"{}"}})", first ? "" : ",", range.begin, range.end);
    }
    first = false;
  }
  if (!as_text) body += "]}";
  return body;
}

Response JsonResponse(int status, const Json& json) {
  Response response;
  response.status = status;
  response.content_type = kJson;
  response.body = Dump(json);
  return response;
}

// Answers now: nothing is left to give up.
Router::Withdraw AtOnce(const Router::Respond& respond, Response response) {
  respond(std::move(response));
  return nullptr;
}

}  // namespace

Router::Router(RouterOptions options, service::IdService& ids, const Clock& clock)
    : options_(std::move(options)), ids_(ids), clock_(clock), started_at_(clock.Monotonic()) {}

Router::Withdraw Router::Handle(const Request& request, Respond respond) const {
  auto target = ParseTarget(request.target);
  const bool v1 = request.target.find("/v1/") != std::string_view::npos;
  if (!target.ok()) {
    return AtOnce(respond,
                  v1 ? V1Error(target.error()) : LeafPlainError(400, target.error().message, request.target));
  }
  const auto& segments = target->segments;
  if (segments.empty()) return AtOnce(respond, LeafPlainError(404, "No message available", target->raw_path));
  if (segments[0] == "v1") return HandleV1(request, *target, std::move(respond));
  if (segments[0] == "health") return HandleHealth(request, *target, std::move(respond));
  return HandleLeaf(request, *target, std::move(respond));
}

Router::Withdraw Router::HandleLeaf(const Request& request, const Target& target, Respond respond) const {
  const auto& segments = target.segments;
  const bool is_get = segments.size() == 4 && segments[0] == "api" && segments[2] == "get";
  const bool is_segment = is_get && segments[1] == "segment";
  const bool is_snowflake = is_get && segments[1] == "snowflake";
  if (!is_segment && !is_snowflake)
    return AtOnce(respond, LeafPlainError(404, "No message available", target.raw_path));
  // Java Leaf takes any method for a request; only these three mean something else.
  if (request.method == "OPTIONS") {
    Response response;
    response.allow = kLeafAllow;
    return AtOnce(respond, std::move(response));
  }
  if (request.method == "TRACE" || request.method == "CONNECT") {
    Response response = LeafPlainError(405, "Request method 'TRACE' not supported", target.raw_path);
    response.allow = kLeafAllow;
    return AtOnce(respond, std::move(response));
  }
  if (request.method == "HEAD") {
    Response response;
    response.content_type = kPlainText;
    return AtOnce(respond, std::move(response));
  }
  if (is_snowflake) return AtOnce(respond, LeafError(500, kLeafDisabled, target.raw_path));
  // A name that cannot be a tag is an unknown tag to Leaf's clients.
  if (!ValidateTag(segments[3]).ok())
    return AtOnce(respond, LeafError(500, kLeafUnknownTag, target.raw_path));
  return TakeIds({.dialect = Dialect::kLeaf,
                  .tag = segments[3],
                  .count = 1,
                  .as_ranges = false,
                  .as_text = true,
                  .raw_path = target.raw_path},
                 std::move(respond));
}

Router::Withdraw Router::HandleV1(const Request& request, const Target& target, Respond respond) const {
  const auto& segments = target.segments;
  if (segments.size() == 3 && segments[1] == "segment")
    return HandleV1Segment(request, target, std::move(respond));
  if (segments.size() == 4 && segments[1] == "segment" && segments[3] == "mark") {
    return HandleMark(segments[2], std::move(respond));
  }
  if (segments.size() == 2 && segments[1] == "snowflake") {
    return AtOnce(respond, V1Error({ErrorCode::kDisabled, "snowflake mode is disabled on this server", ""}));
  }
  if (segments.size() == 2 && segments[1] == "status") {
    if (request.method == "GET" || request.method == "HEAD") return AtOnce(respond, StatusPage());
    Response response =
        V1Error({ErrorCode::kInvalidArgument, fmt::format("{} has no meaning here", request.method), ""});
    response.status = 405;
    response.allow = kReadAllow;
    return AtOnce(respond, std::move(response));
  }
  return AtOnce(respond, V1Error({ErrorCode::kNotFound,
                                  fmt::format("there is nothing at {}", Quoted(target.raw_path)), ""}));
}

Router::Withdraw Router::HandleV1Segment(const Request& request, const Target& target,
                                         Respond respond) const {
  if (request.method == "HEAD") {
    Response response;
    response.content_type = kJson;
    return AtOnce(respond, std::move(response));
  }
  if (request.method != "GET" && request.method != "POST") {
    Response response =
        V1Error({ErrorCode::kInvalidArgument, fmt::format("{} has no meaning here", request.method), ""});
    response.status = 405;
    response.allow = kTakeAllow;
    return AtOnce(respond, std::move(response));
  }
  Take take{.dialect = Dialect::kV1,
            .tag = target.segments[2],
            .count = 1,
            .as_ranges = false,
            .as_text = PrefersText(request.accept),
            .raw_path = target.raw_path};
  const auto parse = [&]() -> Result<void> {
    LEAF_RETURN_IF_ERROR(ValidateTag(take.tag));
    LEAF_ASSIGN_OR_RETURN(const auto count, target.Parameter("count"));
    if (count) {
      LEAF_ASSIGN_OR_RETURN(take.count, ParseUnsigned("count", *count, 1, kIdEnd));
      if (take.count > options_.max_count) {
        return Error{
            ErrorCode::kTooLarge,
            fmt::format("count {} is over this server's limit of {}", take.count, options_.max_count),
            "ask several times, or raise server.max_count"};
      }
    }
    LEAF_ASSIGN_OR_RETURN(const auto form, target.Parameter("form"));
    if (form && *form != "ids" && *form != "range") {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("bad form {}: neither ids nor range", Quoted(*form)), ""};
    }
    take.as_ranges = form == "range";
    return {};
  };
  if (const auto parsed = parse(); !parsed.ok()) return AtOnce(respond, V1Error(parsed.error()));
  return TakeIds(std::move(take), std::move(respond));
}

Router::Withdraw Router::HandleMark(const std::string& tag, Respond respond) const {
  if (const auto valid = ValidateTag(tag); !valid.ok()) return AtOnce(respond, V1Error(valid.error()));
  if (ids_.segment() == nullptr) {
    return AtOnce(respond, V1Error({ErrorCode::kDisabled, "segment mode is disabled on this server", ""}));
  }
  ids_.segment()->LoadMark(tag, [this, tag, respond = std::move(respond)](const Result<std::uint64_t>& mark) {
    if (!mark.ok()) return respond(V1Error(mark.error()));
    respond(JsonResponse(200, Json{{"tag", tag}, {"mark", std::to_string(*mark)}}));
  });
  return nullptr;
}

Router::Withdraw Router::TakeIds(Take take, Respond respond) const {
  service::SegmentService* const segment = ids_.segment();
  if (segment == nullptr) {
    return AtOnce(respond,
                  Answer(take, Error{ErrorCode::kDisabled, "segment mode is disabled on this server", ""}));
  }
  IdSpans spans;
  if (segment->TryNext(take.tag, take.count, spans)) [[likely]]
    return AtOnce(respond, Answer(take, spans));
  const service::ParkLimits limits{
      .wait = options_.request_timeout,
      .wait_while_failing = take.dialect == Dialect::kLeaf ? options_.leaf_wait : options_.request_timeout};
  const auto shared = std::make_shared<const Take>(std::move(take));
  const service::ParkedRequest parked =
      segment->Next(shared->tag, shared->count, limits,
                    [this, shared, respond = std::move(respond)](const Result<IdSpans>& result) {
                      respond(Answer(*shared, result));
                    });
  if (!parked) return nullptr;
  return [parked] { parked.Withdraw(); };
}

Response Router::Answer(const Take& take, const Result<IdSpans>& result) const {
  if (!result.ok()) {
    if (take.dialect == Dialect::kV1) return V1Error(result.error());
    switch (result.error().code) {
      case ErrorCode::kLimited:
        return LeafPlainError(429, result.error().message, take.raw_path);
      case ErrorCode::kNotFound:
        return LeafError(500, kLeafUnknownTag, take.raw_path);
      case ErrorCode::kDisabled:
        return LeafError(500, kLeafDisabled, take.raw_path);
      default:
        return LeafError(500, kLeafNotReady, take.raw_path);
    }
  }
  Response response;
  response.content_type = take.as_text ? kPlainText : kJson;
  if (take.dialect == Dialect::kLeaf) {
    AppendIds(response.body, *result, "", "", "");
  } else {
    response.body = take.as_ranges ? RangesBody(*result, take.as_text) : IdsBody(*result, take.as_text);
  }
  return response;
}

Response Router::LeafError(int status, int leaf_code, std::string_view raw_path) const {
  return JsonResponse(status, Json{{"timestamp", UnixMillis(clock_.Wall())},
                                   {"status", status},
                                   {"error", StatusText(status)},
                                   {"exception", "com.sankuai.inf.leaf.server.exception.LeafServerException"},
                                   {"message", fmt::format("Result{{id={}, status=EXCEPTION}}", leaf_code)},
                                   {"path", raw_path}});
}

Response Router::LeafPlainError(int status, std::string_view message, std::string_view raw_path) const {
  Response response = JsonResponse(status, Json{{"timestamp", UnixMillis(clock_.Wall())},
                                                {"status", status},
                                                {"error", StatusText(status)},
                                                {"message", message},
                                                {"path", raw_path}});
  if (status == 429) response.retry_after_s = kRetryAfterSeconds;
  return response;
}

Response Router::V1Error(const Error& error) const {
  const HttpMeaning meaning = MeaningOf(error.code);
  Json json{{"code", ErrorCodeName(error.code)}, {"message", error.message}, {"hint", error.hint}};
  if (error.code == ErrorCode::kTooLarge) json["max_count"] = options_.max_count;
  Response response = JsonResponse(meaning.status, json);
  if (meaning.retry) response.retry_after_s = kRetryAfterSeconds;
  return response;
}

Router::Withdraw Router::HandleHealth(const Request& request, const Target& target, Respond respond) const {
  const auto& segments = target.segments;
  if (segments.size() != 2 || (segments[1] != "live" && segments[1] != "ready")) {
    return AtOnce(respond, LeafPlainError(404, "No message available", target.raw_path));
  }
  if (request.method != "GET" && request.method != "HEAD") {
    Response response = LeafPlainError(405, "only GET and HEAD", target.raw_path);
    response.allow = kReadAllow;
    return AtOnce(respond, std::move(response));
  }
  const auto answer = [](const service::Readiness& readiness) {
    return JsonResponse(readiness.ready ? 200 : 503, ReadinessJson(readiness));
  };
  // Whoever answers is alive.
  if (segments[1] == "live") return AtOnce(respond, answer({.ready = true, .reasons = {}}));
  const auto tag = target.Parameter("tag");
  if (!tag.ok()) return AtOnce(respond, V1Error(tag.error()));
  if (!*tag || ids_.segment() == nullptr) return AtOnce(respond, answer(ids_.GetReadiness()));
  if (const auto valid = ValidateTag(**tag); !valid.ok()) return AtOnce(respond, V1Error(valid.error()));
  ids_.segment()->CheckTag(
      **tag, [this, answer, respond = std::move(respond)](const Result<void>& can_issue) {
        service::Readiness readiness = ids_.GetReadiness();
        if (!can_issue.ok()) {
          readiness.ready = false;
          readiness.reasons.push_back(
              {std::string(ErrorCodeName(can_issue.error().code)), can_issue.error().message});
        }
        respond(answer(readiness));
      });
  return nullptr;
}

Response Router::StatusPage() const {
  return JsonResponse(200, StatusJson({.version = options_.version,
                                       .store = options_.store,
                                       .listen = options_.listen,
                                       .max_count = options_.max_count,
                                       .uptime = std::chrono::duration_cast<std::chrono::milliseconds>(
                                           clock_.Monotonic() - started_at_),
                                       .now = clock_.Wall()},
                                      ids_));
}

}  // namespace leaf::server
