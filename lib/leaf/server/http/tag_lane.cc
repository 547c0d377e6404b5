#include "leaf/server/http/tag_lane.h"

#include <fmt/format.h>

#include <atomic>
#include <utility>

#include "leaf/base/duration.h"
#include "leaf/server/error_meaning.h"

namespace leaf::server {
namespace {

enum class TicketState : std::uint8_t { kWaiting, kBegun, kSettled };

bool IsRead(TagLane::Kind kind) { return kind == TagLane::Kind::kRead || kind == TagLane::Kind::kLocalRead; }

}  // namespace

struct TagLane::Ticket {
  Kind kind = Kind::kRead;
  std::chrono::milliseconds patience{};
  Work work;
  Fail fail;
  Respond respond;
  std::atomic<TicketState> state{TicketState::kWaiting};

  // By the one call that has settled it. The timer keeps the ticket, and need not keep what it holds.
  void Answer(Response response) {
    fail = nullptr;
    std::exchange(respond, nullptr)(std::move(response));
  }
};

std::size_t& TagLane::CountOf(Kind kind) {
  if (kind == Kind::kLocalRead) return local_reads_;
  return kind == Kind::kRead ? reads_ : changes_;
}

Executor& TagLane::ExecutorFor(Kind kind) const {
  if (!IsRead(kind)) return *routing_.changes;
  return kind == Kind::kLocalRead && routing_.local_reads != nullptr ? *routing_.local_reads
                                                                     : *routing_.reads;
}

bool TagLane::Enter(Kind kind) {
  const MutexLock lock(mutex_);
  std::size_t& count = CountOf(kind);
  if (count >= (IsRead(kind) ? kReadsMax : kChangesMax)) return false;
  ++count;
  return true;
}

void TagLane::Leave(Kind kind) {
  const MutexLock lock(mutex_);
  --CountOf(kind);
}

std::function<void()> TagLane::Run(Kind kind, Work work, Fail fail, Respond respond) {
  if (!Enter(kind)) {
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
  ExecutorFor(kind).Post([this, ticket] { Begin(ticket); });
  routing_.timers->PostAt(clock_.Monotonic() + ticket->patience, [this, ticket] { Expire(ticket); });
  return [ticket] {
    auto waiting = TicketState::kWaiting;
    // One that was begun is answered when it ends.
    if (!ticket->state.compare_exchange_strong(waiting, TicketState::kSettled)) return;
    ticket->Answer(ticket->fail({ErrorCode::kUnavailable, "the client hung up before it was begun", ""}));
  };
}

// Counts a large answer among those that clients have not read yet. False if it has to give way to others.
bool TagLane::Hold(Kind kind, Response& response) {
  UnreadBytes& room = kind == Kind::kLocalRead ? unread_.local : unread_.reports;
  const std::size_t bytes = response.body.capacity();
  response.held = room.Hold(bytes);
  // A change has been made by now: its answer must not be refused.
  if (!response.held && !IsRead(kind)) response.held = room.HoldAnyway(bytes);
  return static_cast<bool>(response.held);
}

void TagLane::Begin(const std::shared_ptr<Ticket>& ticket) {
  const Work work = std::exchange(ticket->work, nullptr);
  auto waiting = TicketState::kWaiting;
  if (ticket->state.compare_exchange_strong(waiting, TicketState::kBegun)) {
    Response response = work();
    // The timer may have answered meanwhile: then the ticket holds nothing any more.
    if (ticket->state.exchange(TicketState::kSettled) == TicketState::kBegun) {
      if (response.is_large() && !Hold(ticket->kind, response)) response = ticket->fail(TooManyUnread());
      ticket->Answer(std::move(response));
    }
  }
  Leave(ticket->kind);
}

void TagLane::Expire(const std::shared_ptr<Ticket>& ticket) {
  const TicketState before = ticket->state.exchange(TicketState::kSettled);
  if (before == TicketState::kSettled) return;
  const std::string patience = FormatDuration(ticket->patience);
  Error error{ErrorCode::kUnavailable, "", "retry later"};
  if (IsRead(ticket->kind)) {
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
  if (routing_.changes == nullptr || !Enter(Kind::kChange)) return;
  routing_.changes->Post([this, task = std::move(task)] {
    task();
    Leave(Kind::kChange);
  });
}

}  // namespace leaf::server
