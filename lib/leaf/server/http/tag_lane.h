// Where requests about the table of tags wait for it: threads of their own, a bounded number of requests, and
// a bounded time for each.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

#include "leaf/base/clock.h"
#include "leaf/base/executor.h"
#include "leaf/base/mutex.h"
#include "leaf/base/result.h"
#include "leaf/server/http/message.h"
#include "leaf/server/http/tag_desk.h"
#include "leaf/server/net/unread_bytes.h"

namespace leaf::server {

// All of it outlives the router.
struct TagRouting {
  TagDesk* desk = nullptr;    // null: there is none
  Executor* reads = nullptr;  // lists, looks and histories
  // The same for callers on the Unix socket, so that an operator does not queue behind others; null: with
  // them.
  Executor* local_reads = nullptr;
  Executor* changes = nullptr;  // changes wait for each other only
  Executor* timers = nullptr;   // never blocks
  // A request is answered after these, also if its change goes on. A repair asks other daemons.
  std::chrono::milliseconds patience{10'000};
  std::chrono::milliseconds repair_patience{60'000};
};

// Thread-safe. The clock outlives it, and it outlives what runs on the executors.
class TagLane {
 public:
  // How many may wait or be under way: reads of each of both kinds of callers, and changes.
  static constexpr std::size_t kReadsMax = 32;
  static constexpr std::size_t kChangesMax = 64;

  TagLane(const Clock& clock, TagRouting routing, UnreadAnswers& unread)
      : clock_(clock), routing_(routing), unread_(unread) {}

  // Null if there is none.
  TagDesk* desk() const { return routing_.desk; }

  enum class Kind { kRead, kLocalRead, kChange, kRepair };
  using Work = std::function<Response()>;
  using Respond = std::function<void(Response)>;
  using Fail = std::function<Response(const Error&)>;
  // Calls `respond` once: with what `work` has made on its executor, or with what `fail` makes of
  // kUnavailable (too many wait; it was not begun in time, and is not begun any more; a read took too long),
  // or of kOutcomeUnknown (a change was begun and has not ended in time: it may still be made). What is
  // returned gives up a request that has not begun. Requires: desk() is not null.
  std::function<void()> Run(Kind kind, Work work, Fail fail, Respond respond);
  // Runs `task` where changes are made; nothing waits for it. Dropped where there is no room.
  void Post(std::function<void()> task);

 private:
  struct Ticket;

  bool Enter(Kind kind);
  void Leave(Kind kind);
  std::size_t& CountOf(Kind kind) LEAF_REQUIRES(mutex_);
  Executor& ExecutorFor(Kind kind) const;
  bool Hold(Kind kind, Response& response);
  void Begin(const std::shared_ptr<Ticket>& ticket);
  void Expire(const std::shared_ptr<Ticket>& ticket);

  const Clock& clock_;
  const TagRouting routing_;
  UnreadAnswers& unread_;
  Mutex mutex_;
  std::size_t reads_ LEAF_GUARDED_BY(mutex_) = 0;
  std::size_t local_reads_ LEAF_GUARDED_BY(mutex_) = 0;
  std::size_t changes_ LEAF_GUARDED_BY(mutex_) = 0;
};

}  // namespace leaf::server
