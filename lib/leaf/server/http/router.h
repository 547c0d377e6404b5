// Routes: what each request means. Knows HTTP's words but no socket; never blocks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/executor.h"
#include "leaf/core/id_layout.h"
#include "leaf/server/http/message.h"
#include "leaf/server/http/metrics_page.h"
#include "leaf/server/http/shared_status.h"
#include "leaf/server/http/status_json.h"
#include "leaf/server/issue/issuer.h"
#include "leaf/server/net/unread_bytes.h"
#include "leaf/server/request_metrics.h"

namespace leaf::server {

struct RouterOptions {
  std::chrono::milliseconds request_timeout{1000};
  std::chrono::milliseconds leaf_wait{10};
  std::string version;              // for /v1/status
  std::string store;                // "sqlite" | "mysql", for /v1/status
  std::string state_dir{};          // for /v1/status
  std::vector<std::string> listen;  // as bound, for /v1/status
  core::IdLayout layout{};          // of the IDs that are decoded
  // Where tags are paused and resumed, which blocks on the disk; null: with the reports.
  Executor* control = nullptr;
  const MetricsPage* metrics = nullptr;  // outlives the router; null: there is no /metrics
  // Where /metrics is made, so that it does not queue behind other reports; null: with them.
  Executor* metrics_lane = nullptr;
};

// Thread-safe. What it is given outlives it.
class Router {
 public:
  // Called exactly once for each request, at once or later, on any thread.
  using Respond = std::function<void(Response)>;

  // Gives up a request that has not been answered yet: it is answered with an error, unless its answer is on
  // its way. Any thread, any time. Empty if there is nothing to give up.
  using Withdraw = std::function<void()>;

  // `reports`: where answers are made that take longer the more tags there are; nothing that blocks.
  Router(RouterOptions options, const Issuer& issuer, const Clock& clock, Executor& reports);

  // `request` need not outlive the call. `route`, unless null, is told what it is for, before it is answered.
  Withdraw Handle(const Request& request, Respond respond, Route* route = nullptr) const;

  // An operator changed something: the next /v1/status has it. Any time.
  void Changed() const { status_.Invalidate(); }
  // What the server counts there is looked at before more is taken or made.
  UnreadAnswers& unread() const { return unread_; }

 private:
  enum class Dialect { kLeaf, kV1 };
  // Views of the request.
  struct Take {
    Dialect dialect = Dialect::kV1;
    IdRequest ids;
    bool as_ranges = false;
    bool as_text = false;
    std::string_view raw_path;
  };
  struct ParkedTake;

  Withdraw HandleLeaf(const Request& request, const Target& target, Respond respond) const;
  Withdraw HandleV1(const Request& request, const Target& target, Respond respond) const;
  Withdraw HandleV1Segment(const Request& request, const Target& target, Respond respond) const;
  Withdraw HandleV1Snowflake(const Request& request, const Target& target, Respond respond) const;
  Withdraw HandleV1Read(const Request& request, const Target& target, Respond respond) const;
  Withdraw HandleLeafDecode(const Request& request, const Target& target, Respond respond) const;
  // The response to a request that takes no IDs although its route is for taking them, if it is one.
  static bool IsTakingMethod(std::string_view method);
  static Response Nothing(const Take& take);
  Withdraw LookAtIds(const Take& take, Respond respond) const;
  // Reads count and form. Errors: kInvalidArgument, kTooLarge.
  Result<void> ParseTake(const Target& target, Take& take) const;
  // POST /v1/segment/{tag}/pause and /resume.
  Withdraw HandleControl(const Request& request, const Target& target, Respond respond) const;
  Withdraw HandleAdvice(const Request& request, const Target& target, Respond respond) const;
  // The error to answer a batch with that would have to wait in memory until the client reads it.
  std::optional<Error> OverMemory(const Take& take) const;
  static Route RouteOf(const Target& target);
  // The pages for people and for Prometheus, and what belongs to them.
  Withdraw HandlePage(Route route, const Request& request, const Target& target, Respond respond) const;
  Withdraw HandleLeafPage(const Request& request, const Target& target, Respond respond) const;
  // Runs `make` on `lane`, unless the request is given up before that, or `unread` is full. The answer counts
  // there.
  Withdraw PostReport(Executor& lane, UnreadBytes& unread, Respond respond,
                      std::function<Response()> make) const;
  Withdraw HandleHealth(const Request& request, const Target& target, Respond respond) const;
  Withdraw HandleMark(const Request& request, std::string_view tag, Respond respond) const;
  Withdraw TakeIds(const Take& take, Respond respond) const;
  static Response Answer(const Take& take, const IssuedIds& ids);
  Response AnswerError(const Take& take, const Error& error) const;
  Response LeafError(int status, int leaf_code, std::string_view raw_path) const;
  Response LeafPlainError(int status, std::string_view message, std::string_view raw_path) const;
  // `max_count`: what is said with kTooLarge; 0 for the configured one.
  Response V1Error(const Error& error, std::uint64_t max_count = 0) const;
  // 405. `allow` is static text.
  Response NotAllowed(std::string_view method, std::string_view allow) const;
  Withdraw HandleStatus(const Request& request, const Target& target, Respond respond) const;
  NodeFacts Facts() const;

  const RouterOptions options_;
  const Issuer& issuer_;
  service::IdService& ids_;
  const Clock& clock_;
  Executor& reports_;
  const MonotonicTime started_at_;
  mutable SharedStatus status_;
  mutable UnreadAnswers unread_;
};

}  // namespace leaf::server
