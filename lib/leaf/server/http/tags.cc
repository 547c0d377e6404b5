// Routes of the table of tags: listed, added, changed, removed, repaired, with what was done to them.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/server/http/caller.h"
#include "leaf/server/http/errors.h"
#include "leaf/server/http/handlers.h"
#include "leaf/server/http/short_body.h"
#include "leaf/server/http/tag_body.h"

namespace leaf::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kHistoryDefault = 100;
constexpr std::uint64_t kHistoryMax = 10'000;

// A change that meets another state of the table than it needs is a conflict.
Response TagError(const Backend& backend, Error error) {
  if (error.code == ErrorCode::kOutcomeUnknown && error.hint.empty())
    error.hint = "unknown whether it was done: read the tag before you repeat it";
  Response response = V1Error(backend, error);
  switch (error.code) {
    case ErrorCode::kAlreadyExists:
    case ErrorCode::kRefused:
      response.status = 409;
      break;
    case ErrorCode::kOutcomeUnknown:
      // To be read first, and not to be repeated as it is.
      response.retry_after_s.reset();
      break;
    default:
      break;
  }
  return response;
}

Response Unconfirmed(const std::string& tag, const TagDesk::Unconfirmed& unconfirmed) {
  return JsonResponse(
      428, Json{{"code", ErrorCodeName(ErrorCode::kRefused)},
                {"message", fmt::format("refusing to {} without confirmation", unconfirmed.action)},
                {"hint", fmt::format("send \"confirm\": {}", Json(tag).dump())}});
}

Response OutcomeResponse(const Backend& backend, const std::string& tag,
                         const Result<TagDesk::Outcome<Json>>& outcome) {
  if (!outcome.ok()) return TagError(backend, outcome.error());
  if (outcome->unconfirmed) return Unconfirmed(tag, *outcome->unconfirmed);
  return JsonResponse(200, outcome->done);
}

Response JsonOrError(const Backend& backend, const Result<Json>& json, int status = 200) {
  return json.ok() ? JsonResponse(status, *json) : TagError(backend, json.error());
}

// What of a request has to be right before its body is read. The error's answer.
std::optional<Response> WrongBody(const Backend& backend, const Request& request) {
  const auto refuse = [&](int status, Error error) {
    Response response = V1Error(backend, error);
    response.status = status;
    return response;
  };
  if (!IsJsonOrUnsaid(request.content_type)) {
    return refuse(415, {ErrorCode::kInvalidArgument,
                        fmt::format("a body of type {} is not read", Quoted(request.content_type)),
                        "send JSON, with Content-Type: application/json"});
  }
  switch (request.body_lost) {
    case BodyLost::kNo:
      return std::nullopt;
    case BodyLost::kTooLong:
      return refuse(413, {ErrorCode::kInvalidArgument, "the body is too long for this path", ""});
    case BodyLost::kNoRoom:
      break;
  }
  return refuse(503,
                {ErrorCode::kUnavailable, "the bodies of too many requests are being read", "retry later"});
}

// A request about tags as all handlers begin with it; `tag` is "" where the path has none.
class TagCall {
 public:
  TagCall(Backend& backend, const Call& call, Respond respond)
      : backend_(backend), call_(call), respond_(std::move(respond)) {}

  Backend& backend() { return backend_; }
  const std::string& tag() const { return tag_; }
  std::string_view body() const { return call_.request.body; }
  bool is_change() const { return call_.request.method != "GET" && call_.request.method != "HEAD"; }
  TagDesk::Caller caller() const {
    return {CallerOf(call_.request), dry_run_ ? core::WriteMode::kDryRun : core::WriteMode::kCommit};
  }
  bool dry_run() const { return dry_run_; }

  // False if it was answered already.
  bool Begin(bool has_tag) {
    if (const auto disabled = backend_.issuer.Disabled(IdSource::kSegment)) return Refuse(*disabled);
    if (backend_.tags.desk() == nullptr)
      return Refuse({ErrorCode::kDisabled, "this server does not change the table of tags", ""});
    if (has_tag) {
      tag_ = call_.target.segments[2];
      if (const auto valid = ValidateTag(tag_); !valid.ok()) return Refuse(valid.error());
    }
    if (!is_change()) return true;
    if (auto wrong = WrongBody(backend_, call_.request)) {
      respond_(*std::move(wrong));
      return false;
    }
    const auto dry_run = call_.target.Flag("dry_run");
    if (!dry_run.ok()) return Refuse(dry_run.error());
    dry_run_ = *dry_run;
    return true;
  }

  // Always false.
  bool Refuse(const Error& error) {
    respond_(TagError(backend_, error));
    return false;
  }

  Withdraw Run(TagLane::Kind kind, TagLane::Work work) {
    if (kind == TagLane::Kind::kRead && call_.request.is_local) kind = TagLane::Kind::kLocalRead;
    return backend_.tags.Run(
        kind, std::move(work), [&backend = backend_](const Error& error) { return TagError(backend, error); },
        std::move(respond_));
  }

 private:
  Backend& backend_;
  const Call& call_;
  Respond respond_;
  std::string tag_;
  bool dry_run_ = false;
};

Result<TagDesk::Listing> ReadListing(const Target& target) {
  constexpr std::uint64_t kMost = 1'000'000'000;
  TagDesk::Listing listing;
  LEAF_ASSIGN_OR_RETURN(const auto search, target.Parameter("search"));
  if (search) listing.search = *search;
  LEAF_ASSIGN_OR_RETURN(const auto sort, target.Parameter("sort"));
  if (sort) listing.sort = *sort;
  LEAF_ASSIGN_OR_RETURN(const auto reverse, target.Parameter("reverse"));
  listing.reverse = reverse == "1";
  LEAF_ASSIGN_OR_RETURN(const auto offset, target.Parameter("offset"));
  if (offset) {
    LEAF_ASSIGN_OR_RETURN(listing.offset, ParseUnsigned("offset", *offset, 0, kMost));
  }
  LEAF_ASSIGN_OR_RETURN(const auto limit, target.Parameter("limit"));
  if (limit) {
    LEAF_ASSIGN_OR_RETURN(listing.limit, ParseUnsigned("limit", *limit, 0, kMost));
  }
  return listing;
}

// The tag's name, which confirms a removal, is in the body or in the query.
Result<std::string> ConfirmOf(const Call& call) {
  LEAF_ASSIGN_OR_RETURN(std::string confirm, ReadConfirm(call.request.body));
  LEAF_ASSIGN_OR_RETURN(const auto parameter, call.target.Parameter("confirm"));
  if (parameter && !confirm.empty() && *parameter != confirm)
    return Error{ErrorCode::kInvalidArgument, "confirm is there twice, with two values", ""};
  return parameter ? std::string(*parameter) : std::move(confirm);
}

Withdraw ListTags(TagCall& request, const Call& call) {
  auto listing = ReadListing(call.target);
  if (!listing.ok()) {
    request.Refuse(listing.error());
    return nullptr;
  }
  return request.Run(TagLane::Kind::kRead, [&backend = request.backend(), listing = *std::move(listing)] {
    return JsonOrError(backend, backend.tags.desk()->List(listing));
  });
}

// A tag becomes strict when all nodes have acknowledged it, which takes longer than a change of the table.
TagLane::Kind LaneOf(std::optional<core::TagOrder> order) {
  return order == core::TagOrder::kStrict ? TagLane::Kind::kRepair : TagLane::Kind::kChange;
}

Withdraw PatchTag(TagCall& request) {
  auto patch = ReadTagPatch(request.body());
  if (!patch.ok()) {
    request.Refuse(patch.error());
    return nullptr;
  }
  const TagLane::Kind lane = LaneOf(patch->change.order);
  return request.Run(lane, [&backend = request.backend(), tag = request.tag(), patch = *std::move(patch),
                            caller = request.caller()] {
    return OutcomeResponse(backend, tag,
                           backend.tags.desk()->Change(tag, patch.change, patch.confirm, caller));
  });
}

Withdraw DeleteTag(TagCall& request, const Call& call) {
  auto confirm = ConfirmOf(call);
  if (!confirm.ok()) {
    request.Refuse(confirm.error());
    return nullptr;
  }
  return request.Run(TagLane::Kind::kChange, [&backend = request.backend(), tag = request.tag(),
                                              confirm = *std::move(confirm), caller = request.caller()] {
    return OutcomeResponse(backend, tag, backend.tags.desk()->Remove(tag, confirm, caller));
  });
}

}  // namespace

Withdraw V1Tags(Backend& backend, const Call& call, Respond respond) {
  TagCall request(backend, call, std::move(respond));
  if (!request.Begin(false)) return nullptr;
  if (!request.is_change()) return ListTags(request, call);
  auto tag = ReadNewTag(request.body());
  if (!tag.ok()) {
    request.Refuse(tag.error());
    return nullptr;
  }
  const int done = request.dry_run() ? 200 : 201;
  const TagLane::Kind lane = LaneOf(tag->order);
  return request.Run(lane, [&backend, tag = *std::move(tag), caller = request.caller(), done] {
    return JsonOrError(backend, backend.tags.desk()->Add(tag, caller), done);
  });
}

Withdraw V1Tag(Backend& backend, const Call& call, Respond respond) {
  TagCall request(backend, call, std::move(respond));
  if (!request.Begin(true)) return nullptr;
  if (call.request.method == "PATCH") return PatchTag(request);
  if (call.request.method == "DELETE") return DeleteTag(request, call);
  return request.Run(TagLane::Kind::kRead, [&backend, tag = request.tag()] {
    return JsonOrError(backend, backend.tags.desk()->Show(tag));
  });
}

Withdraw V1TagHistory(Backend& backend, const Call& call, Respond respond) {
  TagCall request(backend, call, std::move(respond));
  if (!request.Begin(true)) return nullptr;
  std::uint64_t limit = kHistoryDefault;
  const auto read = [&]() -> Result<void> {
    LEAF_ASSIGN_OR_RETURN(const auto text, call.target.Parameter("limit"));
    if (!text) return {};
    LEAF_ASSIGN_OR_RETURN(limit, ParseUnsigned("limit", *text, 1, kHistoryMax));
    return {};
  };
  if (const auto valid = read(); !valid.ok()) {
    request.Refuse(valid.error());
    return nullptr;
  }
  return request.Run(TagLane::Kind::kRead, [&backend, tag = request.tag(), limit] {
    return JsonOrError(backend, backend.tags.desk()->History(tag, limit));
  });
}

Withdraw V1TagRepair(Backend& backend, const Call& call, Respond respond) {
  TagCall request(backend, call, std::move(respond));
  if (!request.Begin(true)) return nullptr;
  auto repair = ReadTagRepair(request.body());
  if (!repair.ok()) {
    request.Refuse(repair.error());
    return nullptr;
  }
  return request.Run(TagLane::Kind::kRepair, [&backend, tag = request.tag(), repair = *std::move(repair),
                                              caller = request.caller()] {
    return JsonOrError(backend, backend.tags.desk()->Repair(tag, repair.to, repair.confirm, caller));
  });
}

}  // namespace leaf::server
