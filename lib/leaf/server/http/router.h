// From a request to the handler of its route. Knows HTTP's words but no socket; never blocks.
#pragma once

#include <string_view>

#include "leaf/server/http/handler.h"
#include "leaf/server/http/take.h"
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

  // What becomes of a request that is like one which Handle has answered.
  enum class Again {
    kTaken,
    kHandle,         // nothing has happened: Handle it
    kHandleCounted,  // the same, and Request::is_counted holds: the IDs are not in reserve
  };
  // Takes its IDs, if its caller may have them, and now.
  Again TryTake(const SmallTake& take, const access::Caller& caller, IssuedIds& ids) const {
    const IdRequest request{
        .source = take.source, .tag = take.tag, .count = take.count, .contiguous = take.contiguous};
    if (!MayTake(take, caller) || take.count > backend_.issuer.MaxCount(take.source) ||
        backend_.issuer.Refuse(request))
      return Again::kHandle;
    return backend_.issuer.TryTake(request, ids) ? Again::kTaken : Again::kHandleCounted;
  }
  // The same for one ID of a tag.
  Again TryTakeOne(const SmallTake& take, const access::Caller& caller, std::uint64_t& id) const {
    if (!MayTake(take, caller) || backend_.issuer.Refuse({.tag = take.tag})) return Again::kHandle;
    return backend_.issuer.TryTakeOne(take.tag, id) ? Again::kTaken : Again::kHandleCounted;
  }

  // What of answers and requests is in memory.
  UnreadAnswers& unread() const { return backend_.unread; }

  // Whether a connection over a limit may ask for `target`.
  static bool IsForWatchers(std::string_view target);

  // An operator changed something: the next /v1/status has it. Any time.
  void Changed() const { backend_.status.Invalidate(); }

 private:
  NodeFacts Facts() const;
  // Whether the caller has the right, and no limit of its own that would have to be counted.
  static bool MayTake(const SmallTake& take, const access::Caller& caller) {
    if (!caller.roles.Has(access::Role::kIds) || caller.limit != nullptr) return false;
    return take.source == IdSource::kSnowflake ? caller.snowflakes
                                               : caller.tags.matches_all() || caller.tags.Matches(take.tag);
  }

  mutable Backend backend_;
};

}  // namespace leaf::server
