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
#include "leaf/server/http/caller.h"
#include "leaf/server/http/errors.h"
#include "leaf/server/http/handlers.h"

namespace leaf::server {
namespace {

using Json = nlohmann::ordered_json;

// A slip of the pen would be answered "paused", and the tag that was meant would go on.
Error UnknownTag(const service::SegmentService& segment, std::string_view tag) {
  std::vector<std::string> known;
  segment.Visit([&](service::TagStatus&& status) { known.push_back(std::move(status.tag)); });
  const auto nearest = NearestName(tag, known);
  return {ErrorCode::kNotFound, fmt::format("unknown tag {}", Quoted(tag)),
          nearest ? fmt::format("did you mean {}?", *nearest) : "leafctl tag list shows those that exist"};
}

Withdraw SetPaused(Backend& backend, const Call& call, bool pause, Respond respond) {
  const auto fail = [&](const Error& error) { return AtOnce(respond, V1Error(backend, error)); };
  const std::string tag(call.target.segments[2]);
  if (const auto valid = ValidateTag(tag); !valid.ok()) return fail(valid.error());
  const auto dry_run = call.target.Flag("dry_run");
  if (!dry_run.ok()) return fail(dry_run.error());
  if (const auto disabled = backend.issuer.Disabled(IdSource::kSegment)) return fail(*disabled);
  service::SegmentService* const segment = backend.issuer.ids().segment();
  if (segment->paused() == nullptr)
    return fail({ErrorCode::kDisabled, "tags cannot be paused on this server", ""});
  Executor& executor = backend.options.control != nullptr ? *backend.options.control : backend.reports;
  const auto act = [&backend, &executor, segment, tag, pause, dry = *dry_run,
                    caller = TagDesk::Caller{.who = CallerOf(call.request)},
                    respond = std::move(respond)](const Result<void>& exists) {
    // Only an answer of the store that the tag does not exist counts. During an outage a tag can be paused.
    if (!exists.ok() && exists.error().code == ErrorCode::kNotFound) {
      // Looks for names like it among all tags: not on a thread that serves connections.
      return executor.Post(
          [&backend, segment, tag, respond] { respond(V1Error(backend, UnknownTag(*segment, tag))); });
    }
    executor.Post([&backend, segment, tag, pause, dry, caller, respond] {
      Result<bool> changed = segment->paused()->Contains(tag) != pause;
      if (!dry) changed = segment->SetPaused(tag, pause, caller.who);
      if (!dry) backend.status.Invalidate();  // before the answer: what is asked for after it has the change
      if (!changed.ok()) return respond(V1Error(backend, changed.error()));
      if (*changed && !dry && backend.tags.desk() != nullptr)
        backend.tags.Post(
            [&backend, tag, pause, caller] { backend.tags.desk()->Paused(tag, pause, caller); });
      respond(JsonResponse(200, Json{{"tag", tag},
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

}  // namespace

Withdraw V1Pause(Backend& backend, const Call& call, Respond respond) {
  return SetPaused(backend, call, true, std::move(respond));
}

Withdraw V1Resume(Backend& backend, const Call& call, Respond respond) {
  return SetPaused(backend, call, false, std::move(respond));
}

Withdraw V1Advice(Backend& backend, const Call& call, Respond respond) {
  const auto fail = [&](const Error& error) { return AtOnce(respond, V1Error(backend, error)); };
  const std::string tag(call.target.segments[2]);
  if (const auto valid = ValidateTag(tag); !valid.ok()) return fail(valid.error());
  if (const auto disabled = backend.issuer.Disabled(IdSource::kSegment)) return fail(*disabled);
  const auto status = backend.issuer.ids().segment()->StatusOf(tag);
  if (!status) {
    return fail({ErrorCode::kNotFound, fmt::format("this node does not serve tag {}", Quoted(tag)),
                 TagCommand("show", tag)});
  }
  return AtOnce(respond,
                JsonResponse(200, AdviceJson(*status, backend.clock.Monotonic() - backend.started_at)));
}

}  // namespace leaf::server
