#include "leaf/server/http/report.h"

#include <atomic>
#include <memory>
#include <utility>

#include "leaf/server/error_meaning.h"
#include "leaf/server/http/errors.h"

namespace leaf::server {

Executor& ReportLane(const Backend& backend, const Call& call) {
  Executor* const local = backend.options.local_reports;
  return call.request.is_local && local != nullptr ? *local : backend.reports;
}

Withdraw PostReport(const Backend& backend, Executor& lane, UnreadBytes& unread, Respond respond,
                    std::function<Response()> make) {
  struct Report {
    std::atomic<bool> settled{false};  // it is being made, or given up
    Respond respond;
    std::function<Response()> make;
  };
  const auto report = std::make_shared<Report>();
  report->respond = std::move(respond);
  report->make = std::move(make);
  lane.Post([&backend, report, &unread] {
    if (report->settled.exchange(true)) return;
    if (unread.full()) return report->respond(V1Error(backend, TooManyUnread()));
    Response response = report->make();
    // Where others have filled it up meanwhile the connection counts this one among the reports.
    if (response.is_large()) response.held = unread.Hold(response.body.capacity());
    report->respond(std::move(response));
  });
  return [&backend, report] {
    if (report->settled.exchange(true)) return;
    report->respond(
        V1Error(backend, {ErrorCode::kUnavailable, "the client hung up while the report waited", ""}));
  };
}

}  // namespace leaf::server
