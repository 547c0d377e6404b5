// What the handler of a route gets, and how it answers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "leaf/access/gate.h"
#include "leaf/base/clock.h"
#include "leaf/base/executor.h"
#include "leaf/core/id_layout.h"
#include "leaf/server/http/message.h"
#include "leaf/server/http/metrics_page.h"
#include "leaf/server/http/shared_status.h"
#include "leaf/server/http/shared_workers.h"
#include "leaf/server/http/tag_lane.h"
#include "leaf/server/issue/issuer.h"
#include "leaf/server/net/unread_bytes.h"

namespace leaf::server {

struct RouterOptions {
  std::chrono::milliseconds request_timeout{1000};
  std::chrono::milliseconds leaf_wait{10};
  std::string version;              // for /v1/status
  std::string store;                // "sqlite" | "mysql", for /v1/status
  std::string store_at{};           // which database it is, for /v1/status
  std::string state_dir{};          // for /v1/status
  std::vector<std::string> listen;  // as bound, for /v1/status
  core::IdLayout layout{};          // of the IDs that are decoded
  // Where tags are paused and resumed, which blocks on the disk; null: with the reports.
  Executor* control = nullptr;
  const MetricsPage* metrics = nullptr;  // outlives the router; null: there is no /metrics
  // Where /metrics is made, so that it does not queue behind other reports; null: with them.
  Executor* metrics_lane = nullptr;
  // The same for reports to callers on the Unix socket, so that an operator does not queue behind others;
  // null: with them.
  Executor* local_reports = nullptr;
  // Where callers come from; null: no token is ever asked for. Outlives the router.
  const access::Gate* gate = nullptr;
  // Whether to warn where there are no tokens; null: no. Outlives the router.
  const std::atomic<bool>* warns_if_open = nullptr;
  WorkersReading workers{};  // without `read` there is no registry to tell of
  TagRouting tags{};         // without `desk` tags are neither listed nor changed here
};

// What handlers answer from. Thread-safe; outlives every request.
struct Backend {
  const RouterOptions options;
  const Issuer& issuer;
  // Looked at before more is taken or made than a small answer.
  UnreadAnswers& unread;
  const Clock& clock;
  Executor& reports;  // where answers are made that take longer the more tags there are
  const MonotonicTime started_at;
  SharedStatus status;
  SharedWorkers workers;
  TagLane tags;
};

// Views, good for the call of the handler.
struct Call {
  const Request& request;
  const Target& target;
};

// Called exactly once for each request, at once or later, on any thread.
using Respond = std::function<void(Response)>;

// Gives up a request that has not been answered yet: it is answered with an error, unless its answer is on
// its way. Any thread, any time. Empty if there is nothing to give up.
using Withdraw = Issuer::Withdraw;

// Never blocks. The method is one that the route serves, and the caller has the access that it needs.
using Handler = Withdraw (*)(Backend& backend, const Call& call, Respond respond);

// Answers now: nothing is left to give up.
inline Withdraw AtOnce(const Respond& respond, Response response) {
  respond(std::move(response));
  return nullptr;
}

}  // namespace leaf::server
