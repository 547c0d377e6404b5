#include "leaf/sql/connection_pool.h"

#include <fmt/format.h>
#include <soci/soci.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "leaf/base/check.h"

namespace leaf::sql {
namespace {

// A server at its limit may refuse and accept in turns for hours.
constexpr std::chrono::minutes kTellEach{1};

}  // namespace

struct ConnectionPool::Waiter {
  explicit Waiter(Use its_use) : use(its_use) {}
  const Use use;
  bool asks = false;
  std::optional<Result<PooledConnection>> answer;
  Condition answered;
};

struct ConnectionPool::Idle {
  PooledConnection connection;
  MonotonicTime since;
};

ConnectionPool::ConnectionPool(const Options& options, const Clock* clock, Logger* log)
    : options_(options), clock_(clock), log_(log) {
  LEAF_CHECK(options_.connections_max > 0);
}

ConnectionPool::~ConnectionPool() = default;

ConnectionPool::Place::Place(ConnectionPool* pool, Use use, bool asks, PooledConnection connection)
    : connection_(std::move(connection)), pool_(pool), use_(use), asks_(asks) {}

ConnectionPool::Place::Place(Place&& other) noexcept
    : connection_(std::move(other.connection_)),
      pool_(std::exchange(other.pool_, nullptr)),
      use_(other.use_),
      asks_(other.asks_) {}

ConnectionPool::Place::~Place() {
  if (pool_ != nullptr) pool_->Free(*this);
}

void ConnectionPool::ReserveUrgentPlace() {
  const MutexLock lock(mutex_);
  urgent_reserved_ = true;
}

std::size_t ConnectionPool::open() const {
  const MutexLock lock(mutex_);
  return taken_ + idle_.size() + closing_;
}

std::size_t ConnectionPool::waiting() const {
  const MutexLock lock(mutex_);
  return waiters_.size();
}

Result<ConnectionPool::Place> ConnectionPool::Take(Use use, MonotonicTime deadline) {
  const MutexLock lock(mutex_);
  Waiter waiter(use);
  waiters_.push_back(&waiter);
  ServeLocked();
  while (!waiter.answer) {
    const MonotonicTime now = Now();
    if (now >= deadline) {
      std::erase(waiters_, &waiter);
      return BusyLocked(use);
    }
    MonotonicTime until = deadline;
    if (refusal_ && !asking_ && ask_again_at_ > now) until = std::min(until, ask_again_at_);
    waiter.answered.WaitFor(mutex_, until - now);
    ServeLocked();
  }
  LEAF_ASSIGN_OR_RETURN(PooledConnection connection, *std::move(waiter.answer));
  return Place(this, use, waiter.asks, std::move(connection));
}

std::size_t ConnectionPool::UpLocked() const { return taken_ - connecting_ + idle_.size(); }

bool ConnectionPool::IsFreeForLocked(Use use) const {
  if (use == Use::kUrgent) return true;
  std::size_t not_urgent = options_.connections_max - (urgent_reserved_ ? 1 : 0);
  // A server that refuses lets in as many as are up: none of them can be kept for a task that may not come.
  if (refusal_) not_urgent = UpLocked() + (MayConnectLocked() ? 1 : 0);
  not_urgent = std::max<std::size_t>(1, not_urgent);
  if (not_urgent_ >= not_urgent) return false;
  return use != Use::kPatient || patient_ < std::max<std::size_t>(1, not_urgent / 2);
}

bool ConnectionPool::MayConnectLocked() const {
  if (taken_ + idle_.size() + closing_ >= options_.connections_max) return false;
  return !refusal_ || (!asking_ && Now() >= ask_again_at_);
}

ConnectionPool::Waiter* ConnectionPool::NextLocked() {
  if (idle_.empty() && !MayConnectLocked()) return nullptr;
  const auto first = [&](const auto& suits) LEAF_REQUIRES(mutex_) -> Waiter* {
    const auto found = std::find_if(waiters_.begin(), waiters_.end(), suits);
    return found == waiters_.end() ? nullptr : *found;
  };
  if (Waiter* const urgent = first([](const Waiter* waiter) { return waiter->use == Use::kUrgent; }))
    return urgent;
  return first([&](const Waiter* waiter) LEAF_REQUIRES(mutex_) { return IsFreeForLocked(waiter->use); });
}

void ConnectionPool::ServeLocked() {
  while (Waiter* const waiter = NextLocked()) {
    std::erase(waiters_, waiter);
    PooledConnection connection;
    if (idle_.empty()) {
      ++connecting_;
      waiter->asks = asking_ = refusal_.has_value();
    } else {
      connection = std::move(idle_.back().connection);
      idle_.pop_back();
    }
    ++taken_;
    if (waiter->use != Use::kUrgent) ++not_urgent_;
    if (waiter->use == Use::kPatient) ++patient_;
    waiter->answer = std::move(connection);
    waiter->answered.NotifyOne();
  }
  if (refusal_ && taken_ == 0 && idle_.empty() && closing_ == 0 && !MayConnectLocked())
    FailAllLocked(*refusal_);
}

void ConnectionPool::FailAllLocked(const Error& why) {
  for (Waiter* const waiter : std::exchange(waiters_, {})) {
    waiter->answer = why;
    waiter->answered.NotifyOne();
  }
}

Error ConnectionPool::BusyLocked(Use use) const {
  Error error{ErrorCode::kUnavailable, "", "retry later"};
  if (use == Use::kPatient && patient_ > 0) {
    error.message =
        fmt::format("its row is locked by another client, and {} connections wait for such rows", patient_);
  } else if (refusal_) {
    error.message =
        fmt::format("all {} connections that the server allows are busy: {}", UpLocked(), refusal_->message);
  } else {
    error.message = fmt::format("all {} connections to the database are busy", options_.connections_max);
    error.hint = "retry later, or raise mysql.max_connections";
  }
  return error;
}

void ConnectionPool::FreeLocked(Use use) {
  --taken_;
  if (use != Use::kUrgent) --not_urgent_;
  if (use == Use::kPatient) --patient_;
}

void ConnectionPool::Free(Place& place) {
  {
    const MutexLock lock(mutex_);
    FreeLocked(place.use_);
    if (place.connection_.session == nullptr) --connecting_;
    if (place.asks_) asking_ = false;
    // Until it is closed it counts as one that is being closed.
    ++closing_;
  }
  place.connection_.session.reset();
  const MutexLock lock(mutex_);
  --closing_;
  ServeLocked();
}

void ConnectionPool::GiveBack(Place place) {
  LEAF_CHECK(place.connection_.session != nullptr);
  std::vector<Idle> outdated;
  {
    const MutexLock lock(mutex_);
    place.pool_ = nullptr;
    FreeLocked(place.use_);
    idle_.push_back({std::move(place.connection_), Now()});
    ServeLocked();
    outdated = OutdatedLocked();
  }
  Close(std::move(outdated));
}

void ConnectionPool::Made(Place& place, PooledConnection connection) {
  const MutexLock lock(mutex_);
  LEAF_CHECK(place.connection_.session == nullptr && connection.session != nullptr);
  place.connection_ = std::move(connection);
  --connecting_;
  if (!std::exchange(place.asks_, false)) return;
  asking_ = false;
  pause_ = {};
  ask_again_at_ = Now();
  // One at a time, for as long as there are tasks that want more.
  ServeLocked();
  if (asking_) return;
  EndRefusalLocked();
  ServeLocked();
}

void ConnectionPool::EndRefusalLocked() {
  refusal_.reset();
  if (std::exchange(told_, false)) log_->Info("the database server accepts new connections again");
}

void ConnectionPool::TellRefusedLocked(const Error& why) {
  const MonotonicTime now = Now();
  if (log_ == nullptr || (told_at_ && now - *told_at_ < kTellEach)) return;
  told_at_ = now;
  told_ = true;
  log_->Warning(
      "the database server accepts no more connections than the {} of this process; trying again at most "
      "once a second: {}",
      UpLocked(), why.message);
}

bool ConnectionPool::Refused(Place place, const Error& why) {
  const MutexLock lock(mutex_);
  place.pool_ = nullptr;
  FreeLocked(place.use_);
  --connecting_;
  const MonotonicTime now = Now();
  // Of several that were on their way when the first was refused none counts.
  if (!refusal_ || place.asks_) {
    pause_ = std::clamp<std::chrono::nanoseconds>(2 * pause_, kPauseMin, kPauseMax);
    ask_again_at_ = now + pause_;
    asking_ = false;
  }
  refusal_ = why;
  TellRefusedLocked(why);
  const bool others = UpLocked() + closing_ > 0;
  ServeLocked();
  return others;
}

void ConnectionPool::Failed(Place place, const Error& why) {
  const MutexLock lock(mutex_);
  place.pool_ = nullptr;
  FreeLocked(place.use_);
  --connecting_;
  // The server failed for another reason than too many connections.
  refusal_.reset();
  asking_ = false;
  if (UpLocked() == 0) FailAllLocked(why);
  ServeLocked();
}

void ConnectionPool::Discard(Place& place) {
  std::vector<Idle> dead;
  {
    const MutexLock lock(mutex_);
    dead.swap(idle_);
    dead.push_back({std::move(place.connection_), MonotonicTime{}});
    ++connecting_;
    closing_ += dead.size();
  }
  Close(std::move(dead));
}

void ConnectionPool::DropIdle() {
  std::vector<Idle> dead;
  {
    const MutexLock lock(mutex_);
    dead.swap(idle_);
    closing_ += dead.size();
    // It may be another server by now, or one that has begun anew.
    ask_again_at_ = Now();
  }
  Close(std::move(dead));
}

void ConnectionPool::CloseIdle() {
  std::vector<Idle> outdated;
  {
    const MutexLock lock(mutex_);
    outdated = OutdatedLocked();
  }
  Close(std::move(outdated));
}

std::vector<ConnectionPool::Idle> ConnectionPool::OutdatedLocked() {
  const MonotonicTime now = Now();
  const std::size_t beyond = idle_.size() - std::min(idle_.size(), options_.idle_kept);
  const auto end = std::find_if(idle_.begin(), idle_.begin() + static_cast<std::ptrdiff_t>(beyond),
                                [&](const Idle& idle) { return now - idle.since < options_.idle_time; });
  std::vector<Idle> outdated(std::make_move_iterator(idle_.begin()), std::make_move_iterator(end));
  idle_.erase(idle_.begin(), end);
  closing_ += outdated.size();
  return outdated;
}

void ConnectionPool::Close(std::vector<Idle> idle) {
  const std::size_t count = idle.size();
  if (count == 0) return;
  idle.clear();
  const MutexLock lock(mutex_);
  closing_ -= count;
  ServeLocked();
}

}  // namespace leaf::sql
