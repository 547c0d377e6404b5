// The connections of one process to one database: how many there may be, which task gets the next one, and
// which are kept while there is nothing to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/base/result.h"

namespace soci {
class session;
}

namespace leaf::sql {

struct PooledConnection {
  std::unique_ptr<soci::session> session;  // null: none
  std::uint64_t term = 0;                  // MysqlConnector's
};

// What a connection is asked for.
enum class Use {
  kOrdinary,
  // Keeps a worker number alive: goes before all others, and there is always a place for it.
  kUrgent,
  // Waits for a row that another client holds: half of the places at most, so that no number of such rows
  // keeps the others from theirs.
  kPatient,
};

// A task takes a *place*, works with its connection, and gives it back. A place may come without a
// connection: then the task makes one, and tells what came of it. Invariant: places that are taken,
// connections that rest and those that are being closed are `connections_max` together at most.
//
// A server that accepts no more connections (too many of them) is asked again by one task at a time, and not
// before a pause that grows from kPauseMin to kPauseMax. Until then tasks share the connections that there
// are; where there is none, they get the server's refusal at once. The first place that is free is an urgent
// task's.
//
// Thread-safe. Places are given in the order in which tasks came, but for urgent ones. A task that waits for
// a second place while it has one may wait as long as it waits at all: none should.
class ConnectionPool {
 public:
  struct Options {
    std::size_t connections_max = 0;
    // Connections that are kept for as long as the server keeps them; each of the others is closed, by the
    // next one that calls CloseIdle or gives a place back, once it has not been used for `idle_time`.
    std::size_t idle_kept = 0;
    std::chrono::nanoseconds idle_time{};
    std::chrono::nanoseconds wait{};  // how long a task waits for a place
  };
  static constexpr std::chrono::seconds kPauseMin{1};
  static constexpr std::chrono::seconds kPauseMax{8};

  // `clock`: null where nothing is waited for and nothing rests for a time. `log` hears of refusals; null for
  // none. Both outlive this.
  ConnectionPool(const Options& options, const Clock* clock, Logger* log);
  ~ConnectionPool();
  ConnectionPool(const ConnectionPool&) = delete;
  ConnectionPool& operator=(const ConnectionPool&) = delete;

  // From now on there is a place for kUrgent.
  void ReserveUrgentPlace();

  // Frees itself, and closes its connection, unless it is given back.
  class Place {
   public:
    Place(Place&& other) noexcept;
    Place& operator=(Place&&) = delete;
    ~Place();

    PooledConnection& connection() { return connection_; }

   private:
    friend class ConnectionPool;
    Place(ConnectionPool* pool, Use use, bool asks, PooledConnection connection);
    PooledConnection connection_;
    ConnectionPool* pool_;
    Use use_;
    bool asks_;  // is the task that asks a server which refused the ones before
  };

  // What the clock says; always the same without one.
  MonotonicTime Now() const { return clock_ == nullptr ? MonotonicTime{} : clock_->Monotonic(); }
  // When a task that comes now gives up waiting.
  MonotonicTime Deadline() const { return Now() + options_.wait; }
  // Blocks for so long, if there is a clock.
  void Pause(std::chrono::milliseconds time) const {
    if (clock_ != nullptr) clock_->WaitUntil(Now() + time);
  }

  // Whether a task for `use` that comes now need not wait for another one to end.
  bool HasPlaceFor(Use use) const {
    const MutexLock lock(mutex_);
    return waiters_.empty() && IsFreeForLocked(use);
  }
  // Blocks until `deadline` at most. Errors, without "cannot …": kUnavailable.
  Result<Place> Take(Use use, MonotonicTime deadline);
  // For another task, or to rest.
  void GiveBack(Place place);

  // The three ends of making a connection for a place that has none.
  void Made(Place& place, PooledConnection connection);
  // The server accepts no more connections. Whether there are other connections to wait for; if not, `why`
  // goes to all tasks.
  bool Refused(Place place, const Error& why);
  // Where no other connection is up, all tasks that wait get `why` as well.
  void Failed(Place place, const Error& why);
  // The connection of `place` is not what it was: closes it, and all that rest. The place is kept.
  void Discard(Place& place);

  // Closes all that rest: the server they belong to is not to be trusted.
  void DropIdle();
  // Closes what has rested for too long.
  void CloseIdle();

  // Connections that are open, or are being made.
  std::size_t open() const;
  // Of those, the ones that were made, and are not about to be closed.
  std::size_t up() const {
    const MutexLock lock(mutex_);
    return UpLocked();
  }
  // Tasks that wait for a place.
  std::size_t waiting() const;

 private:
  struct Waiter;
  struct Idle;

  bool IsFreeForLocked(Use use) const LEAF_REQUIRES(mutex_);
  bool MayConnectLocked() const LEAF_REQUIRES(mutex_);
  // Connections that are up, and will be given back.
  std::size_t UpLocked() const LEAF_REQUIRES(mutex_);
  // Gives out what there is, and refuses where there is nothing to wait for.
  void ServeLocked() LEAF_REQUIRES(mutex_);
  Waiter* NextLocked() LEAF_REQUIRES(mutex_);
  void FailAllLocked(const Error& why) LEAF_REQUIRES(mutex_);
  void FreeLocked(Use use) LEAF_REQUIRES(mutex_);
  void Free(Place& place);
  Error BusyLocked(Use use) const LEAF_REQUIRES(mutex_);
  void TellRefusedLocked(const Error& why) LEAF_REQUIRES(mutex_);
  void EndRefusalLocked() LEAF_REQUIRES(mutex_);
  // Takes those out that are to be closed; they count until Closed() was called.
  std::vector<Idle> OutdatedLocked() LEAF_REQUIRES(mutex_);
  void Close(std::vector<Idle> idle);

  const Options options_;
  const Clock* const clock_;
  Logger* const log_;

  mutable Mutex mutex_;
  bool urgent_reserved_ LEAF_GUARDED_BY(mutex_) = false;
  std::list<Waiter*> waiters_ LEAF_GUARDED_BY(mutex_);  // in the order in which they came
  std::vector<Idle> idle_ LEAF_GUARDED_BY(mutex_);      // the one that was used last is the last
  std::size_t taken_ LEAF_GUARDED_BY(mutex_) = 0;       // places
  std::size_t connecting_ LEAF_GUARDED_BY(mutex_) = 0;  // of those, without a connection yet
  std::size_t not_urgent_ LEAF_GUARDED_BY(mutex_) = 0;  // of those taken
  std::size_t patient_ LEAF_GUARDED_BY(mutex_) = 0;     // of those taken
  std::size_t closing_ LEAF_GUARDED_BY(mutex_) = 0;
  // The server accepts no more connections, or did not when it was asked last.
  std::optional<Error> refusal_ LEAF_GUARDED_BY(mutex_);
  bool asking_ LEAF_GUARDED_BY(mutex_) = false;  // a task asks whether that is still so
  MonotonicTime ask_again_at_ LEAF_GUARDED_BY(mutex_);
  std::chrono::nanoseconds pause_ LEAF_GUARDED_BY(mutex_){};
  std::optional<MonotonicTime> told_at_ LEAF_GUARDED_BY(mutex_);  // the log was told of a refusal
  bool told_ LEAF_GUARDED_BY(mutex_) = false;                     // of the one that lasts
};

}  // namespace leaf::sql
