// The routes under /v1 that give IDs or tell something.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "leaf/base/id_text.h"
#include "leaf/base/text.h"
#include "leaf/base/time.h"
#include "leaf/server/error_meaning.h"
#include "leaf/server/http/errors.h"
#include "leaf/server/http/handlers.h"
#include "leaf/server/http/report.h"
#include "leaf/server/http/status_json.h"
#include "leaf/server/http/take.h"

namespace leaf::server {
namespace {

using Json = nlohmann::ordered_json;

Take V1Take(const Backend& backend, const Call& call, IdSource source, std::string_view tag) {
  return {.dialect = Dialect::kV1,
          .ids = {.source = source,
                  .tag = tag,
                  .patience = {backend.options.request_timeout, backend.options.request_timeout}},
          .type = PreferredType(call.request.accept),
          .raw_path = call.target.raw_path};
}

// Errors: kInvalidArgument.
Result<void> ReadForm(const Backend& backend, std::string_view form, Take& take) {
  if (form == "range") {
    take.as_ranges = true;
    return {};
  }
  const auto format = ParseIdForm(form);
  if (!format) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("bad form {}: none of range, {}", Quoted(form), FormNames()), ""};
  }
  take.ids.as_code = *format == IdFormat::kCode;
  if (!IdFormatRowOf(*format).has_time) return {};
  if (take.ids.source != IdSource::kSnowflake) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("form {} is for snowflake IDs, which have a time", Quoted(form)),
                 "ask /v1/snowflake"};
  }
  LEAF_ASSIGN_OR_RETURN(TimedIdText text, TimedIdText::Make(*format, backend.options.layout.TimeSplit()));
  take.text = std::make_shared<const TimedIdText>(text);
  return {};
}

// Bytes have one form, ranges of numbers; for another one they are no choice, and the answer is JSON.
void SettleBytes(Take& take) {
  if (take.type != IdsType::kRangeBytes) return;
  if (take.ids.as_code || take.text != nullptr) {
    take.type = IdsType::kJsonObject;
  } else {
    take.as_ranges = true;
  }
}

// Reads count, form and contiguous. Errors: kInvalidArgument, kTooLarge.
Result<void> ReadParameters(const Backend& backend, const Target& target, Take& take) {
  const Issuer& issuer = backend.issuer;
  LEAF_ASSIGN_OR_RETURN(const auto count, target.Parameter("count"));
  if (count) {
    LEAF_ASSIGN_OR_RETURN(take.ids.count, ParseUnsigned("count", *count, 1, kIdEnd));
    LEAF_RETURN_IF_ERROR(issuer.CheckCount(take.ids.source, take.ids.count));
  }
  LEAF_ASSIGN_OR_RETURN(const auto form, target.Parameter("form"));
  if (form) LEAF_RETURN_IF_ERROR(ReadForm(backend, *form, take));
  SettleBytes(take);
  LEAF_ASSIGN_OR_RETURN(take.ids.contiguous, target.Flag("contiguous"));
  if (take.ids.contiguous && take.ids.source == IdSource::kSnowflake)
    return Error{ErrorCode::kInvalidArgument, "snowflake IDs are not contiguous", "ask for a tag's IDs"};
  return {};
}

}  // namespace

Withdraw V1Segment(Backend& backend, const Call& call, Respond respond) {
  Take take = V1Take(backend, call, IdSource::kSegment, call.target.segments[2]);
  if (const auto valid = ValidateTag(take.ids.tag); !valid.ok())
    return AtOnce(respond, V1Error(backend, valid.error()));
  if (const auto read = ReadParameters(backend, call.target, take); !read.ok())
    return AtOnce(respond, V1Error(backend, read.error()));
  return ServeTake(backend, take, call.request, std::move(respond));
}

Withdraw V1Snowflake(Backend& backend, const Call& call, Respond respond) {
  Take take = V1Take(backend, call, IdSource::kSnowflake, "");
  if (const auto disabled = backend.issuer.Disabled(take.ids.source))
    return AtOnce(respond, V1Error(backend, *disabled));
  if (const auto read = ReadParameters(backend, call.target, take); !read.ok())
    return AtOnce(respond, V1Error(backend, read.error(), backend.issuer.MaxCount(take.ids.source)));
  return ServeTake(backend, take, call.request, std::move(respond));
}

Withdraw V1Mark(Backend& backend, const Call& call, Respond respond) {
  const std::string_view tag = call.target.segments[2];
  if (const auto valid = ValidateTag(tag); !valid.ok())
    return AtOnce(respond, V1Error(backend, valid.error()));
  if (const auto disabled = backend.issuer.Disabled(IdSource::kSegment))
    return AtOnce(respond, V1Error(backend, *disabled));
  backend.issuer.ids().segment()->LoadMark(
      tag, [&backend, tag = std::string(tag),
            respond = std::move(respond)](const Result<service::SegmentService::MarkReport>& report) {
        if (!report.ok()) return respond(V1Error(backend, report.error()));
        respond(JsonResponse(200, MarkJson(tag, report->mark, report->status)));
      });
  return nullptr;
}

Withdraw V1Decode(Backend& backend, const Call& call, Respond respond) {
  const auto fail = [&](const Error& error) { return AtOnce(respond, V1Error(backend, error)); };
  if (const auto over = backend.issuer.RefuseOther()) return fail(*over);
  const auto format = call.target.Parameter("format");
  if (!format.ok()) return fail(format.error());
  std::optional<IdFormat> id_format;
  if (*format) {
    id_format = ParseIdFormat(**format);
    if (!id_format || *id_format == IdFormat::kCode) {
      return fail({ErrorCode::kInvalidArgument,
                   fmt::format("bad format {}: none of {}", Quoted(**format), ReadFormatNames()), ""});
    }
  }
  const auto id = ParseAnyId(call.target.segments[2], id_format, backend.options.layout.TimeSplit());
  if (!id.ok()) return fail(id.error());
  const core::IdFields fields = backend.options.layout.Decompose(*id);
  return AtOnce(respond, JsonResponse(200, Json{{"id", std::to_string(*id)},
                                                {"time", FormatRfc3339(fields.time)},
                                                {"time_ms", UnixMillis(fields.time)},
                                                {"worker", fields.worker},
                                                {"sequence", fields.sequence}}));
}

Withdraw V1Codes(Backend& backend, const Call& call, Respond respond) {
  const std::string_view tag = call.target.segments[2];
  const std::string_view code = call.target.segments[3];
  const auto fail = [&](const Error& error) { return AtOnce(respond, V1Error(backend, error)); };
  if (const auto valid = ValidateTag(tag); !valid.ok()) return fail(valid.error());
  CodeDesk* const desk = backend.issuer.codes();
  if (desk == nullptr) return fail(Issuer::NoCodes());
  if (const auto over = backend.issuer.RefuseOther()) return fail(*over);
  const auto answer = [&backend](const CodeDesk::Codes& codes, std::string_view text) {
    const auto id = codes->Reveal(text);
    if (!id.ok()) return V1Error(backend, id.error());
    return JsonResponse(200, Json{{"tag", codes->record().tag}, {"id", std::to_string(*id)}});
  };
  const CodeDesk::Codes codes = desk->Find(tag, CodeDesk::Purpose::kReveal);
  if (codes != nullptr && codes->KnowsLengthOf(code)) return AtOnce(respond, answer(codes, code));
  // Codes of another node may have become longer.
  desk->Open(tag, CodeDesk::Purpose::kReveal,
             [&backend, answer, code = std::string(code),
              respond = std::move(respond)](const Result<CodeDesk::Codes>& opened) {
               respond(opened.ok() ? answer(*opened, code) : V1Error(backend, opened.error()));
             });
  return nullptr;
}

Withdraw V1Clock(Backend& backend, const Call&, Respond respond) {
  const WallTime now = backend.clock.Wall();
  return AtOnce(respond, JsonResponse(200, Json{{"time", FormatRfc3339(now)},
                                                {"time_ms", UnixMillis(now)},
                                                {"version", backend.options.version}}));
}

Withdraw V1Status(Backend& backend, const Call& call, Respond respond) {
  auto query = ParseStatusQuery(call.target);
  if (!query.ok()) return AtOnce(respond, V1Error(backend, query.error()));
  UnreadBytes& unread = call.request.is_local ? backend.unread.local : backend.unread.reports;
  return PostReport(backend, ReportLane(backend, call), unread, std::move(respond),
                    [&backend, query = *std::move(query)] {
                      Response response;
                      response.content_type = kJson;
                      response.body = backend.status.Answer(query);
                      return response;
                    });
}

Withdraw V1Workers(Backend& backend, const Call& call, Respond respond) {
  if (const auto disabled = backend.issuer.Disabled(IdSource::kSnowflake))
    return AtOnce(respond, V1Error(backend, *disabled));
  if (!backend.options.workers.read) {
    return AtOnce(respond, V1Error(backend, {ErrorCode::kDisabled,
                                             "the registry cannot be read through this server", ""}));
  }
  UnreadBytes& unread = call.request.is_local ? backend.unread.local : backend.unread.reports;
  return backend.workers.Ask(
      [&backend, &unread, respond = std::move(respond)](const Result<std::string>& workers) {
        if (!workers.ok()) {
          Response response = V1Error(backend, workers.error());
          // The request was right, so an error of the registry is not the caller's.
          response.status = 503;
          return respond(std::move(response));
        }
        if (unread.full()) return respond(V1Error(backend, TooManyUnread()));
        Response response;
        response.content_type = kJson;
        response.body = *workers;
        if (response.is_large()) response.held = unread.Hold(response.body.capacity());
        respond(std::move(response));
      });
}

Withdraw V1Nothing(Backend& backend, const Call& call, Respond respond) {
  return AtOnce(respond,
                V1Error(backend, {ErrorCode::kNotFound,
                                  fmt::format("there is no route {}", Quoted(call.target.raw_path)), ""}));
}

}  // namespace leaf::server
