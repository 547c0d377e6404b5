// From a request to the handler of its route. Knows HTTP's words but no socket; never blocks.
#pragma once

#include <string_view>

#include "leaf/server/http/handler.h"
#include "leaf/server/request_metrics.h"

namespace leaf::server {

// Thread-safe. What it is given outlives it.
class Router {
 public:
  // `reports`: where answers are made that take longer the more tags there are; nothing that blocks.
  Router(RouterOptions options, const Issuer& issuer, UnreadAnswers& unread, const Clock& clock,
         Executor& reports);

  // `respond` is called exactly once. `request` need not outlive the call. `label`, unless null, is told what
  // the request is for, before it is answered.
  Withdraw Handle(const Request& request, Respond respond, Route* label = nullptr) const;

  // What of answers and requests is in memory.
  UnreadAnswers& unread() const { return backend_.unread; }

  // Whether a connection over a limit may ask for `target`.
  static bool IsForWatchers(std::string_view target);

  // An operator changed something: the next /v1/status has it. Any time.
  void Changed() const { backend_.status.Invalidate(); }

 private:
  NodeFacts Facts() const;

  mutable Backend backend_;
};

}  // namespace leaf::server
