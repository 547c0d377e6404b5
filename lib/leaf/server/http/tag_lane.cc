#include "leaf/server/http/tag_lane.h"

#include <fmt/format.h>

#include <atomic>
#include <utility>

#include "leaf/base/duration.h"

namespace leaf::server {
namespace {

enum class TicketState : std::uint8_t { kWaiting, kBegun, kSettled };

}  // namespace

struct TagLane::Ticket {
  Kind kind = Kind::kRead;
  std::chrono::milliseconds patience{};
  Work work;
  Fail fail;
  Respond respond;
  std::atomic<TicketState> state{TicketState::kWaiting};

  bool is_read() const { return kind == Kind::kRead; }
  // By the one call that has settled it. The timer keeps the ticket, and need not keep what it holds.
  void Answer(Response response) {
    fail = nullptr;
    std::exchange(respond, nullptr)(std::move(response));
  }
};

bool TagLane::Enter(bool is_read) {
  const MutexLock lock(mutex_);
  std::size_t& count = is_read ? reads_ : changes_;
  if (count >= (is_read ? kReadsMax : kChangesMax)) return false;
  ++count;
  return true;
}

void TagLane::Leave(bool is_read) {
  const MutexLock lock(mutex_);
  --(is_read ? reads_ : changes_);
}

std::function<void()> TagLane::Run(Kind kind, Work work, Fail fail, Respond respond) {
  const bool is_read = kind == Kind::kRead;
  if (!Enter(is_read)) {
    respond(fail({ErrorCode::kUnavailable,
                  "too many requests about tags wait for the database; nothing was done", "retry later"}));
    return nullptr;
  }
  const auto ticket = std::make_shared<Ticket>();
  ticket->kind = kind;
  ticket->patience = kind == Kind::kRepair ? routing_.repair_patience : routing_.patience;
  ticket->work = std::move(work);
  ticket->fail = std::move(fail);
  ticket->respond = std::move(respond);
  (is_read ? routing_.reads : routing_.changes)->Post([this, ticket] { Begin(ticket); });
  routing_.timers->PostAt(clock_.Monotonic() + ticket->patience, [this, ticket] { Expire(ticket); });
  return [ticket] {
    auto waiting = TicketState::kWaiting;
    // One that was begun is answered when it ends.
    if (!ticket->state.compare_exchange_strong(waiting, TicketState::kSettled)) return;
    ticket->Answer(ticket->fail({ErrorCode::kUnavailable, "the client hung up before it was begun", ""}));
  };
}

void TagLane::Begin(const std::shared_ptr<Ticket>& ticket) {
  const Work work = std::exchange(ticket->work, nullptr);
  auto waiting = TicketState::kWaiting;
  if (ticket->state.compare_exchange_strong(waiting, TicketState::kBegun)) {
    Response response = work();
    if (response.is_large()) response.held = unread_.reports.Hold(response.body.capacity());
    if (ticket->state.exchange(TicketState::kSettled) == TicketState::kBegun)
      ticket->Answer(std::move(response));
  }
  Leave(ticket->is_read());
}

void TagLane::Expire(const std::shared_ptr<Ticket>& ticket) {
  const TicketState before = ticket->state.exchange(TicketState::kSettled);
  if (before == TicketState::kSettled) return;
  const std::string patience = FormatDuration(ticket->patience);
  Error error{ErrorCode::kUnavailable, "", "retry later"};
  if (ticket->is_read()) {
    error.message = fmt::format("the database has not answered within {}", patience);
  } else if (before == TicketState::kWaiting) {
    error.message = fmt::format("other changes have taken longer than {}; nothing was done", patience);
  } else {
    error = {ErrorCode::kOutcomeUnknown,
             fmt::format("the change has not ended within {}: unknown whether it was done", patience), ""};
  }
  ticket->Answer(ticket->fail(error));
}

void TagLane::Post(std::function<void()> task) {
  if (routing_.changes == nullptr || !Enter(false)) return;
  routing_.changes->Post([this, task = std::move(task)] {
    task();
    Leave(false);
  });
}

}  // namespace leaf::server
