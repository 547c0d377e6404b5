#include "leaf/server/http/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/server/http/dashboard.h"
#include "leaf/server/http/leaf_pages.h"
#include "leaf/server/http/status_json.h"
#include "leaf/server/ids_text.h"

namespace leaf::server {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Leaf's numbers for what went wrong (SegmentIDGenImpl); they stand inside the error's message.
constexpr int kLeafDisabled = -1;
constexpr int kLeafUnknownTag = -2;
constexpr int kLeafNotReady = -3;
constexpr int kLeafNotOwner = -4;  // of the best-known fork: the worker number is lost

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
    case ErrorCode::kPaused:
      return {503, false};
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

std::string RangesBody(std::span<const IdRange> ranges, bool as_text) {
  std::string body = as_text ? "" : R"({"ranges":[)";
  bool first = true;
  for (const IdRange& range : ranges) {
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

Error TooManyUnread() {
  return {ErrorCode::kUnavailable, "too many answers of this server wait until their clients read them", ""};
}

bool HasEncodedSlashOrNul(std::string_view path) {
  for (std::size_t at = 0; (at = path.find('%', at)) != std::string_view::npos; ++at) {
    const std::string_view code = path.substr(at + 1, 2);
    if (code == "2F" || code == "2f" || code == "00") return true;
  }
  return false;
}

// What Java's Long.parseLong makes of a text in ASCII; nothing where it throws.
std::optional<std::int64_t> ParseJavaLong(std::string_view text) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  std::int64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Json FieldsJson(std::uint64_t id, const core::IdFields& fields) {
  return {{"id", std::to_string(id)},
          {"time", FormatRfc3339(fields.time)},
          {"time_ms", UnixMillis(fields.time)},
          {"worker", fields.worker},
          {"sequence", fields.sequence}};
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

// One that outlives its request.
struct Router::ParkedTake {
  explicit ParkedTake(const Take& parked) : tag(parked.ids.tag), raw_path(parked.raw_path), take(parked) {
    take.ids.tag = tag;
    take.raw_path = raw_path;
  }
  ParkedTake(const ParkedTake&) = delete;
  ParkedTake& operator=(const ParkedTake&) = delete;

  const std::string tag;
  const std::string raw_path;
  Take take;
};

Router::Router(RouterOptions options, const Issuer& issuer, const Clock& clock, Executor& reports)
    : options_(std::move(options)),
      issuer_(issuer),
      ids_(issuer.ids()),
      clock_(clock),
      reports_(reports),
      started_at_(clock.Monotonic()),
      status_(clock, ids_, [this] { return StatusSnapshot(Facts(), ids_); }) {}

Route Router::RouteOf(const Target& target) {
  const auto& segments = target.segments;
  if (segments.empty()) return Route::kDashboard;
  const std::string_view first = segments[0];
  const std::size_t size = segments.size();
  if (first == "api" && size == 4 && segments[2] == "get") {
    if (segments[1] == "segment") return Route::kLeafSegment;
    if (segments[1] == "snowflake") return Route::kLeafSnowflake;
  }
  if (first == "v1" && size >= 2) {
    const std::string_view second = segments[1];
    if (second == "segment" && size == 3) return Route::kV1Segment;
    if (second == "segment" && size == 4 && segments[3] == "mark") return Route::kV1Mark;
    if (second == "snowflake" && size == 2) return Route::kV1Snowflake;
    if (second == "decode" && size == 3) return Route::kV1Decode;
    if (second == "clock" && size == 2) return Route::kV1Clock;
    if (second == "status" && size == 2) return Route::kV1Status;
  }
  if (first == "health") return Route::kHealth;
  if (size > 1) return Route::kOther;
  if (first == "metrics") return Route::kMetrics;
  if (first == "dashboard.css" || first == "dashboard.js") return Route::kDashboard;
  // Java Leaf cuts a suffix off.
  const std::string_view name = first.substr(0, first.find('.'));
  if (name == "decodeSnowflakeId") return Route::kLeafDecode;
  if (name == "cache" || name == "db") return Route::kLeafPages;
  return Route::kOther;
}

Router::Withdraw Router::Handle(const Request& request, Respond respond, Route* route) const {
  if (route != nullptr) *route = Route::kOther;
  auto target = ParseTarget(request.target);
  const bool v1 = request.target.find("/v1/") != std::string_view::npos;
  if (!target.ok()) {
    return AtOnce(respond,
                  v1 ? V1Error(target.error()) : LeafPlainError(400, target.error().message, request.target));
  }
  // As Java Leaf's server has it. Elsewhere a tag may be named like that: tables of Java Leaf may hold one.
  if (!v1 && HasEncodedSlashOrNul(target->raw_path))
    return AtOnce(respond, LeafPlainError(400, "an encoded slash or NUL in the path", target->raw_path));
  const auto& segments = target->segments;
  const Route found = RouteOf(*target);
  if (route != nullptr) *route = found;
  if (found == Route::kDashboard || found == Route::kMetrics || found == Route::kLeafPages)
    return HandlePage(found, request, *target, std::move(respond));
  if (segments[0] == "v1") return HandleV1(request, *target, std::move(respond));
  if (segments[0] == "health") return HandleHealth(request, *target, std::move(respond));
  return HandleLeaf(request, *target, std::move(respond));
}

Router::Withdraw Router::HandleLeaf(const Request& request, const Target& target, Respond respond) const {
  const auto& segments = target.segments;
  // Java Leaf cuts a suffix off.
  if (segments.size() == 1 &&
      (segments[0] == "decodeSnowflakeId" || segments[0].starts_with("decodeSnowflakeId.")))
    return HandleLeafDecode(request, target, std::move(respond));
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
  Take take{.dialect = Dialect::kLeaf,
            .ids = {.source = is_segment ? IdSource::kSegment : IdSource::kSnowflake,
                    .tag = segments[3],
                    .patience = {options_.request_timeout, options_.leaf_wait}},
            .as_ranges = false,
            .as_text = true,
            .raw_path = target.raw_path};
  // A name that cannot be a tag is an unknown tag to Leaf's clients. For a snowflake ID any name will do:
  // Java Leaf does not look at it.
  if (is_segment && !ValidateTag(segments[3]).ok())
    return AtOnce(respond, LeafError(500, kLeafUnknownTag, target.raw_path));
  return request.method == "HEAD" ? LookAtIds(take, std::move(respond)) : TakeIds(take, std::move(respond));
}

Router::Withdraw Router::HandleLeafDecode(const Request& request, const Target& target,
                                          Respond respond) const {
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
  if (const auto over = issuer_.RefuseOther())
    return AtOnce(respond, LeafPlainError(429, over->message, target.raw_path));
  // A servlet's parameters are those of the query and those of a posted form, together.
  const bool has_query = request.target.find('?') != std::string_view::npos;
  const std::string text = fmt::format("{}{}{}", request.target, has_query ? '&' : '?', request.form);
  const auto with_form = ParseTarget(text);
  const auto parameter = (with_form.ok() ? *with_form : target).Parameter("snowflakeId");
  if (parameter.ok() && !*parameter) {
    return AtOnce(
        respond,
        JsonResponse(
            400, Json{{"timestamp", UnixMillis(clock_.Wall())},
                      {"status", 400},
                      {"error", StatusText(400)},
                      {"exception", "org.springframework.web.bind.MissingServletRequestParameterException"},
                      {"message", "Required String parameter 'snowflakeId' is not present"},
                      {"path", target.raw_path}}));
  }
  // One that is there twice is joined by a comma in Java, which is no number either.
  const auto id = parameter.ok() ? ParseJavaLong(**parameter) : std::nullopt;
  if (!id) return AtOnce(respond, JsonResponse(200, Json{{"errorMsg", "snowflake Id反解析发生异常!"}}));
  // Signed, as in Java: a negative number has a time before the epoch.
  const core::IdLayout& layout = options_.layout;
  const std::int64_t time = *id >> (layout.worker_bits() + layout.sequence_bits());
  const core::IdFields fields = layout.Decompose(static_cast<std::uint64_t>(*id) & kMaxIdLimit);
  const WallTime wall = WallTimeOf(time + layout.epoch_ms());
  return AtOnce(
      respond,
      JsonResponse(200, Json{{"workerId", std::to_string(fields.worker)},
                             {"sequenceId", std::to_string(fields.sequence)},
                             {"timestamp", fmt::format("{}({})", UnixMillis(wall), FormatLocal(wall))}}));
}

Router::Withdraw Router::HandleV1(const Request& request, const Target& target, Respond respond) const {
  const auto& segments = target.segments;
  if (segments.size() == 3 && segments[1] == "segment")
    return HandleV1Segment(request, target, std::move(respond));
  if (segments.size() == 4 && segments[1] == "segment" && segments[3] == "mark")
    return HandleMark(request, segments[2], std::move(respond));
  if (segments.size() == 4 && segments[1] == "segment" && (segments[3] == "pause" || segments[3] == "resume"))
    return HandleControl(request, target, std::move(respond));
  if (segments.size() == 4 && segments[1] == "segment" && segments[3] == "advice")
    return HandleAdvice(request, target, std::move(respond));
  if (segments.size() == 2 && segments[1] == "snowflake")
    return HandleV1Snowflake(request, target, std::move(respond));
  if ((segments.size() == 3 && segments[1] == "decode") || (segments.size() == 2 && segments[1] == "clock"))
    return HandleV1Read(request, target, std::move(respond));
  if (segments.size() == 2 && segments[1] == "status")
    return HandleStatus(request, target, std::move(respond));
  return AtOnce(respond, V1Error({ErrorCode::kNotFound,
                                  fmt::format("there is nothing at {}", Quoted(target.raw_path)), ""}));
}

Response Router::NotAllowed(std::string_view method, std::string_view allow) const {
  Response response =
      V1Error({ErrorCode::kInvalidArgument, fmt::format("{} has no meaning here", method), ""});
  response.status = 405;
  response.allow = allow;
  return response;
}

bool Router::IsTakingMethod(std::string_view method) {
  return method == "GET" || method == "POST" || method == "HEAD";
}

Response Router::Nothing(const Take& take) {
  Response response;
  response.content_type = take.as_text ? kPlainText : kJson;
  return response;
}

// The status that a GET would have now, as far as that can be told without taking an ID: health checks ask
// like this.
Router::Withdraw Router::LookAtIds(const Take& take, Respond respond) const {
  const auto asked = std::make_shared<const ParkedTake>(take);
  issuer_.Look(take.ids, [this, asked, respond = std::move(respond)](const Result<void>& can) {
    respond(can.ok() ? Nothing(asked->take) : AnswerError(asked->take, can.error()));
  });
  return nullptr;
}

Result<void> Router::ParseTake(const Target& target, Take& take) const {
  LEAF_ASSIGN_OR_RETURN(const auto count, target.Parameter("count"));
  if (count) {
    LEAF_ASSIGN_OR_RETURN(take.ids.count, ParseUnsigned("count", *count, 1, kIdEnd));
    LEAF_RETURN_IF_ERROR(issuer_.CheckCount(take.ids.source, take.ids.count));
  }
  LEAF_ASSIGN_OR_RETURN(const auto form, target.Parameter("form"));
  if (form && *form != "ids" && *form != "range") {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("bad form {}: neither ids nor range", Quoted(*form)), ""};
  }
  take.as_ranges = form == "range";
  return {};
}

Router::Withdraw Router::HandleV1Segment(const Request& request, const Target& target,
                                         Respond respond) const {
  if (!IsTakingMethod(request.method)) return AtOnce(respond, NotAllowed(request.method, kTakeAllow));
  Take take{
      .dialect = Dialect::kV1,
      .ids = {.tag = target.segments[2], .patience = {options_.request_timeout, options_.request_timeout}},
      .as_ranges = false,
      .as_text = PrefersText(request.accept),
      .raw_path = target.raw_path};
  if (const auto valid = ValidateTag(take.ids.tag); !valid.ok())
    return AtOnce(respond, V1Error(valid.error()));
  if (const auto parsed = ParseTake(target, take); !parsed.ok())
    return AtOnce(respond, V1Error(parsed.error()));
  return request.method == "HEAD" ? LookAtIds(take, std::move(respond)) : TakeIds(take, std::move(respond));
}

Router::Withdraw Router::HandleV1Snowflake(const Request& request, const Target& target,
                                           Respond respond) const {
  if (!IsTakingMethod(request.method)) return AtOnce(respond, NotAllowed(request.method, kTakeAllow));
  Take take{.dialect = Dialect::kV1,
            .ids = {.source = IdSource::kSnowflake,
                    .patience = {options_.request_timeout, options_.request_timeout}},
            .as_ranges = false,
            .as_text = PrefersText(request.accept),
            .raw_path = target.raw_path};
  if (const auto disabled = issuer_.Disabled(take.ids.source)) return AtOnce(respond, V1Error(*disabled));
  if (const auto parsed = ParseTake(target, take); !parsed.ok())
    return AtOnce(respond, V1Error(parsed.error(), issuer_.MaxCount(take.ids.source)));
  return request.method == "HEAD" ? LookAtIds(take, std::move(respond)) : TakeIds(take, std::move(respond));
}

Router::Withdraw Router::HandleV1Read(const Request& request, const Target& target, Respond respond) const {
  if (request.method != "GET" && request.method != "HEAD") {
    return AtOnce(respond, NotAllowed(request.method, kReadAllow));
  }
  if (target.segments[1] == "clock") {
    const WallTime now = clock_.Wall();
    return AtOnce(respond,
                  JsonResponse(200, Json{{"time", FormatRfc3339(now)}, {"time_ms", UnixMillis(now)}}));
  }
  if (const auto over = issuer_.RefuseOther()) return AtOnce(respond, V1Error(*over));
  const auto format = target.Parameter("format");
  if (!format.ok()) return AtOnce(respond, V1Error(format.error()));
  std::optional<IdFormat> id_format;
  if (*format) {
    id_format = ParseIdFormat(**format);
    if (!id_format) {
      return AtOnce(respond,
                    V1Error({ErrorCode::kInvalidArgument,
                             fmt::format("bad format {}: none of dec, hex, base62", Quoted(**format)), ""}));
    }
  }
  const auto id = ParseId(target.segments[2], id_format);
  if (!id.ok()) return AtOnce(respond, V1Error(id.error()));
  return AtOnce(respond, JsonResponse(200, FieldsJson(*id, options_.layout.Decompose(*id))));
}

Router::Withdraw Router::HandleMark(const Request& request, std::string_view tag, Respond respond) const {
  if (request.method != "GET" && request.method != "HEAD")
    return AtOnce(respond, NotAllowed(request.method, kReadAllow));
  if (const auto valid = ValidateTag(tag); !valid.ok()) return AtOnce(respond, V1Error(valid.error()));
  if (const auto disabled = issuer_.Disabled(IdSource::kSegment)) return AtOnce(respond, V1Error(*disabled));
  ids_.segment()->LoadMark(tag, [this, tag = std::string(tag), respond = std::move(respond)](
                                    const Result<service::SegmentService::MarkReport>& report) {
    if (!report.ok()) return respond(V1Error(report.error()));
    respond(JsonResponse(200, MarkJson(tag, report->mark, report->status)));
  });
  return nullptr;
}

Router::Withdraw Router::TakeIds(const Take& take, Respond respond) const {
  if (const auto refused = issuer_.Refuse(take.ids)) return AtOnce(respond, AnswerError(take, *refused));
  if (const auto over = OverMemory(take)) return AtOnce(respond, AnswerError(take, *over));
  IssuedIds ids;
  if (issuer_.TryTake(take.ids, ids)) [[likely]]
    return AtOnce(respond, Answer(take, ids));
  const auto waiting = std::make_shared<const ParkedTake>(take);
  return issuer_.Park(
      take.ids, [this, waiting, respond = std::move(respond)](const Result<IssuedIds>& result) {
        respond(result.ok() ? Answer(waiting->take, *result) : AnswerError(waiting->take, result.error()));
      });
}

Response Router::Answer(const Take& take, const IssuedIds& ids) {
  Response response;
  response.content_type = take.as_text ? kPlainText : kJson;
  ids.With([&](std::span<const IdRange> ranges) {
    if (take.as_ranges) {
      response.body = RangesBody(ranges, take.as_text);
      return;
    }
    const IdsForm& form = take.dialect == Dialect::kLeaf ? kIdAlone : take.as_text ? kIdsAsText : kIdsAsJson;
    if (take.ids.count > kSmallBatch) {
      response.ids = std::make_unique<IdsText>(ranges, form);
      return;
    }
    // An ID alone, Leaf's, nearly always fits without an allocation.
    if (take.dialect == Dialect::kV1) response.body.reserve(16 + take.ids.count * 23);
    AppendIds(ranges, form, response.body);
  });
  return response;
}

std::optional<Error> Router::OverMemory(const Take& take) const {
  if (take.as_ranges || take.ids.count <= kSmallBatch || !unread_.batches.full()) [[likely]]
    return std::nullopt;
  return TooManyUnread();
}

Response Router::AnswerError(const Take& take, const Error& error) const {
  if (take.dialect == Dialect::kV1) return V1Error(error);
  switch (error.code) {
    case ErrorCode::kLimited:
      return LeafPlainError(429, error.message, take.raw_path);
    case ErrorCode::kNotFound:
      return LeafError(500, kLeafUnknownTag, take.raw_path);
    case ErrorCode::kDisabled:
      return LeafError(500, kLeafDisabled, take.raw_path);
    case ErrorCode::kNotOwner:
      return LeafError(500, kLeafNotOwner, take.raw_path);
    default:
      return LeafError(500, kLeafNotReady, take.raw_path);
  }
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

Response Router::V1Error(const Error& error, std::uint64_t max_count) const {
  const HttpMeaning meaning = MeaningOf(error.code);
  Json json{{"code", ErrorCodeName(error.code)}, {"message", error.message}, {"hint", error.hint}};
  if (error.code == ErrorCode::kTooLarge)
    json["max_count"] = max_count == 0 ? issuer_.MaxCount(IdSource::kSegment) : max_count;
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
          readiness.reasons.push_back({std::string(ErrorCodeName(can_issue.error().code)),
                                       can_issue.error().message, can_issue.error().hint});
        }
        respond(answer(readiness));
      });
  return nullptr;
}

Router::Withdraw Router::PostReport(Executor& lane, UnreadBytes& unread, Respond respond,
                                    std::function<Response()> make) const {
  struct Report {
    std::atomic<bool> settled{false};  // it is being made, or given up
    Respond respond;
    std::function<Response()> make;
  };
  const auto report = std::make_shared<Report>();
  report->respond = std::move(respond);
  report->make = std::move(make);
  lane.Post([this, report, &unread] {
    if (report->settled.exchange(true)) return;
    if (unread.full()) return report->respond(V1Error(TooManyUnread()));
    Response response = report->make();
    // Where others have filled it up meanwhile the server counts this one among the reports.
    if (response.is_large()) response.held = unread.Hold(response.body.capacity());
    report->respond(std::move(response));
  });
  return [this, report] {
    if (report->settled.exchange(true)) return;
    report->respond(V1Error({ErrorCode::kUnavailable, "the client hung up while the report waited", ""}));
  };
}

Router::Withdraw Router::HandlePage(Route route, const Request& request, const Target& target,
                                    Respond respond) const {
  if (route == Route::kLeafPages) return HandleLeafPage(request, target, std::move(respond));
  if (request.method != "GET" && request.method != "HEAD") {
    Response response = LeafPlainError(405, "only GET and HEAD", target.raw_path);
    response.allow = kReadAllow;
    return AtOnce(respond, std::move(response));
  }
  if (route == Route::kDashboard)
    return AtOnce(respond, DashboardFile(target.segments.empty() ? "" : target.segments[0]));
  if (options_.metrics == nullptr)
    return AtOnce(respond, LeafPlainError(404, "No message available", target.raw_path));
  Executor& lane = options_.metrics_lane != nullptr ? *options_.metrics_lane : reports_;
  return PostReport(lane, unread_.metrics, std::move(respond), [metrics = options_.metrics] {
    Response response;
    response.content_type = MetricsPage::kContentType;
    response.body = metrics->Render();
    return response;
  });
}

Router::Withdraw Router::HandleLeafPage(const Request& request, const Target& target, Respond respond) const {
  if (request.method == "OPTIONS" || request.method == "TRACE" || request.method == "CONNECT") {
    Response response;
    if (request.method != "OPTIONS")
      response = LeafPlainError(405, "Request method 'TRACE' not supported", target.raw_path);
    response.allow = kLeafAllow;
    return AtOnce(respond, std::move(response));
  }
  service::SegmentService* const segment = ids_.segment();
  if (segment == nullptr) {
    return AtOnce(respond,
                  JsonResponse(500, Json{{"timestamp", UnixMillis(clock_.Wall())},
                                         {"status", 500},
                                         {"error", StatusText(500)},
                                         {"exception", "java.lang.IllegalArgumentException"},
                                         {"message", "You should config leaf.segment.enable=true first"},
                                         {"path", target.raw_path}}));
  }
  if (unread_.reports.full()) return AtOnce(respond, V1Error(TooManyUnread()));
  const auto page = [](std::string body) {
    Response response;
    response.content_type = kHtml;
    response.headers = kNothingActive;
    response.body = std::move(body);
    return response;
  };
  const std::string language(request.accept_language);
  if (target.segments[0].starts_with("cache")) {
    return PostReport(reports_, unread_.reports, std::move(respond),
                      [segment, page, language] { return page(CachePage(segment->LeafViews(), language)); });
  }
  segment->ReadTable([this, page, language, path = std::string(target.raw_path),
                      respond = std::move(respond)](Result<std::vector<core::TagRow>> table) {
    if (!table.ok()) {
      return respond(
          LeafPlainError(table.error().code == ErrorCode::kLimited ? 429 : 500, table.error().message, path));
    }
    respond(page(DbPage(std::move(*table), language)));
  });
  return nullptr;
}

Router::Withdraw Router::HandleStatus(const Request& request, const Target& target, Respond respond) const {
  if (request.method != "GET" && request.method != "HEAD")
    return AtOnce(respond, NotAllowed(request.method, kReadAllow));
  auto query = ParseStatusQuery(target);
  if (!query.ok()) return AtOnce(respond, V1Error(query.error()));
  UnreadBytes& unread = request.is_local ? unread_.local : unread_.reports;
  return PostReport(reports_, unread, std::move(respond), [this, query = *std::move(query)] {
    Response response;
    response.content_type = kJson;
    response.body = status_.Answer(query);
    return response;
  });
}

NodeFacts Router::Facts() const {
  return {.version = options_.version,
          .store = options_.store,
          .state_dir = options_.state_dir,
          .listen = options_.listen,
          .max_count = issuer_.MaxCount(IdSource::kSegment),
          .uptime = std::chrono::duration_cast<std::chrono::milliseconds>(clock_.Monotonic() - started_at_),
          .now = clock_.Wall()};
}

}  // namespace leaf::server
