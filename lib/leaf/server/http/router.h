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

  // Takes one ID of a tag for a request that is like one that Handle has answered. False if it has to be
  // handled as any other: the ID is not in reserve, or the caller may not have it, or not now.
  bool TryTakeOne(std::string_view tag, const access::Caller& caller, std::uint64_t& id) const {
    const bool may = caller.roles.Has(access::Role::kIds) && caller.limit == nullptr &&
                     (caller.tags.matches_all() || caller.tags.Matches(tag));
    return may && !backend_.issuer.Refuse({.tag = tag}) && backend_.issuer.TryTakeOne(tag, id);
  }

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
