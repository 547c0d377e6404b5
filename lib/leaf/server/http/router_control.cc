// Routes of operators: a tag is cut off, let go on, or looked at for advice.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/text.h"
#include "leaf/server/http/advice_json.h"
#include "leaf/server/http/router.h"

namespace leaf::server {
namespace {

using Json = nlohmann::ordered_json;

Response JsonAnswer(const Json& json) {
  Response response;
  response.content_type = kJson;
  response.body = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return response;
}

// A slip of the pen would be answered "paused", and the tag that was meant would go on.
Error UnknownTag(const service::SegmentService& segment, std::string_view tag) {
  std::vector<std::string> known;
  segment.Visit([&](service::TagStatus&& status) { known.push_back(std::move(status.tag)); });
  const auto nearest = NearestName(tag, known);
  return {ErrorCode::kNotFound, fmt::format("unknown tag {}", Quoted(tag)),
          nearest ? fmt::format("did you mean {}?", *nearest) : "leafctl tag list shows those that exist"};
}

}  // namespace

Router::Withdraw Router::HandleControl(const Request& request, const Target& target, Respond respond) const {
  const std::string tag(target.segments[2]);
  const bool pause = target.segments[3] == "pause";
  const auto answer = [&](Response response) -> Withdraw {
    respond(std::move(response));
    return nullptr;
  };
  if (request.method != "POST") {
    return answer(NotAllowed(request.method, "POST"));
  }
  if (!request.from_operator) {
    Response response =
        V1Error({ErrorCode::kPermission, "tags are paused and resumed over the Unix socket only",
                 "run leafctl on that machine, without --server or with unix:/PATH"});
    response.status = 403;
    return answer(std::move(response));
  }
  if (const auto valid = ValidateTag(tag); !valid.ok()) return answer(V1Error(valid.error()));
  const auto dry_run = target.Parameter("dry_run");
  if (!dry_run.ok()) return answer(V1Error(dry_run.error()));
  if (const auto disabled = issuer_.Disabled(IdSource::kSegment)) return answer(V1Error(*disabled));
  service::SegmentService* const segment = ids_.segment();
  if (segment->paused() == nullptr)
    return answer(V1Error({ErrorCode::kDisabled, "tags cannot be paused on this server", ""}));
  Executor& executor = options_.control != nullptr ? *options_.control : reports_;
  const auto act = [this, &executor, segment, tag, pause, dry = *dry_run == "1",
                    respond = std::move(respond)](const Result<void>& exists) {
    // Only an answer of the store that the tag does not exist counts. During an outage a tag can be paused.
    if (!exists.ok() && exists.error().code == ErrorCode::kNotFound)
      return respond(V1Error(UnknownTag(*segment, tag)));
    executor.Post([this, segment, tag, pause, dry, respond] {
      Result<bool> changed = segment->paused()->Contains(tag) != pause;
      if (!dry) changed = segment->SetPaused(tag, pause);
      if (!dry) Changed();  // before the answer: what is asked for after it has the change
      if (!changed.ok()) return respond(V1Error(changed.error()));
      respond(JsonAnswer(Json{{"tag", tag},
                              {"paused", pause},
                              {"changed", *changed},
                              {"known", segment->StatusOf(tag).has_value()},
                              {"dry_run", dry}}));
    });
  };
  // One that is paused may be resumed although it was removed.
  if (segment->paused()->Contains(tag)) {
    act({});
  } else {
    segment->CheckTag(tag, act);
  }
  return nullptr;
}

Router::Withdraw Router::HandleAdvice(const Request& request, const Target& target, Respond respond) const {
  const auto answer = [&](Response response) -> Withdraw {
    respond(std::move(response));
    return nullptr;
  };
  if (request.method != "GET" && request.method != "HEAD") {
    return answer(NotAllowed(request.method, "GET,HEAD"));
  }
  const std::string tag(target.segments[2]);
  if (const auto valid = ValidateTag(tag); !valid.ok()) return answer(V1Error(valid.error()));
  if (const auto disabled = issuer_.Disabled(IdSource::kSegment)) return answer(V1Error(*disabled));
  const auto status = ids_.segment()->StatusOf(tag);
  if (!status) {
    return answer(V1Error({ErrorCode::kNotFound, fmt::format("this node does not serve tag {}", Quoted(tag)),
                           TagCommand("show", tag)}));
  }
  return answer(JsonAnswer(AdviceJson(*status, clock_.Monotonic() - started_at_)));
}

}  // namespace leaf::server
