// The pages for people, for Prometheus and for health checks, and what stands where there is nothing.
#include <string>
#include <utility>

#include "leaf/base/text.h"
#include "leaf/server/http/dashboard.h"
#include "leaf/server/http/errors.h"
#include "leaf/server/http/handlers.h"
#include "leaf/server/http/report.h"
#include "leaf/server/http/status_json.h"

namespace leaf::server {
namespace {

Response ReadinessResponse(const service::Readiness& readiness) {
  return JsonResponse(readiness.ready ? 200 : 503, ReadinessJson(readiness));
}

}  // namespace

// Whatever answers is alive.
Withdraw HealthLive(Backend&, const Call&, Respond respond) {
  return AtOnce(respond, ReadinessResponse({.ready = true, .reasons = {}}));
}

Withdraw HealthReady(Backend& backend, const Call& call, Respond respond) {
  service::IdService& ids = backend.issuer.ids();
  const auto tag = call.target.Parameter("tag");
  if (!tag.ok()) return AtOnce(respond, V1Error(backend, tag.error()));
  if (!*tag || ids.segment() == nullptr) return AtOnce(respond, ReadinessResponse(ids.GetReadiness()));
  if (const auto valid = ValidateTag(**tag); !valid.ok())
    return AtOnce(respond, V1Error(backend, valid.error()));
  ids.segment()->CheckReady(**tag, [&ids, respond = std::move(respond)](const Result<void>& can_issue) {
    service::Readiness readiness = ids.GetReadiness();
    if (!can_issue.ok()) {
      readiness.ready = false;
      readiness.reasons.push_back({std::string(ErrorCodeName(can_issue.error().code)),
                                   can_issue.error().message, can_issue.error().hint});
    }
    respond(ReadinessResponse(readiness));
  });
  return nullptr;
}

Withdraw Metrics(Backend& backend, const Call& call, Respond respond) {
  const RouterOptions& options = backend.options;
  if (options.metrics == nullptr) return Nothing(backend, call, std::move(respond));
  Executor& lane = options.metrics_lane != nullptr ? *options.metrics_lane : backend.reports;
  return PostReport(backend, lane, backend.unread.metrics, std::move(respond), [metrics = options.metrics] {
    Response response;
    response.content_type = MetricsPage::kContentType;
    response.body = metrics->Render();
    return response;
  });
}

Withdraw Dashboard(Backend&, const Call& call, Respond respond) {
  const auto& segments = call.target.segments;
  return AtOnce(respond, DashboardFile(segments.empty() ? "" : segments[0]));
}

Withdraw Nothing(Backend& backend, const Call& call, Respond respond) {
  return AtOnce(respond, LeafPlainError(backend, 404, "No message available", call.target.raw_path));
}

}  // namespace leaf::server
