#include "leaf/server/resp/transaction.h"

#include <fmt/format.h>

#include <utility>

#include "leaf/base/check.h"
#include "leaf/server/error_meaning.h"

namespace leaf::server::resp {
namespace {

// The memory of queues counts in steps of this size, over all connections. Each connection has the first one
// in any case, and where memory is scarce a few of them: clients that queue as much as they may and send no
// EXEC must not keep others from short transactions.
constexpr std::size_t kHeldBytes = std::size_t{16} * 1024;
constexpr std::size_t kHeldInScarcity = 3;
// What a queued command takes up beside its words, and a reply other than a batch.
constexpr std::size_t kCommandBytes = 128;
constexpr std::size_t kWordBytes = sizeof(std::string);
// Of an ID, or the longest other form, in a reply, with its length and two ends of lines.
constexpr std::size_t kIdBytes = 26;
constexpr std::size_t kTextBytes = 64;

std::vector<std::string_view> ViewsOf(const std::vector<std::string>& words) {
  return {words.begin(), words.end()};
}

}  // namespace

Result<void> QueuedCommands::Add(const RedisBackend& backend, const CommandSpec& command, Words words) {
  const auto add = [&]() -> Result<void> {
    bytes_ += kCommandBytes;
    if (command.kind == CommandKind::kTakesIds) {
      LEAF_ASSIGN_OR_RETURN(const TakeCommand take, ReadTake(backend, command, words));
      LEAF_RETURN_IF_ERROR(CheckTag(take));
      // The answer to a transaction stands in memory as a whole.
      if (IsLong(take)) {
        return Error{ErrorCode::kTooLarge,
                     fmt::format("count {} is over a transaction's limit of {}", take.ids.count, kSmallBatch),
                     "take more IDs at once outside of MULTI, or with INCRBY or LEAF.RANGE"};
      }
      if (take.reply == IdReply::kIds) bytes_ += static_cast<std::size_t>(take.ids.count) * kIdBytes;
      if (take.reply == IdReply::kTexts) bytes_ += static_cast<std::size_t>(take.ids.count) * kTextBytes;
    }
    // Once for the command, and once for a reply that repeats it.
    for (const std::string_view word : words) bytes_ += 2 * word.size() + kWordBytes;
    if (bytes_ > kBytesMax || queued_.size() >= kCommandsMax)
      return Error{ErrorCode::kTooLarge, "too many commands in one transaction", "use several"};
    while ((held_.size() + 1) * kHeldBytes < bytes_) {
      UnreadBytes& queues = backend.unread.queues;
      if (held_.size() >= kHeldInScarcity && queues.scarce()) return TooManyUnread();
      auto held = queues.Hold(kHeldBytes);
      if (!held) return TooManyUnread();
      held_.push_back(std::move(held));
    }
    queued_.push_back({&command, {words.begin(), words.end()}});
    return {};
  };
  auto added = is_spoilt_ ? Result<void>() : add();
  if (!added.ok()) Spoil();
  return added;
}

void QueuedCommands::Spoil() {
  is_spoilt_ = true;
  std::vector<Queued>().swap(queued_);
  held_.clear();
}

void Transaction::Run() {
  if (next_ == 0) ReplyWriter(session_.version, replies_).Array(queued_.size());
  while (next_ < queued_.size()) {
    if (!RunOne()) return;
  }
  done_({std::move(replies_), std::move(held_), std::move(outcomes_)});
}

// False if the command waits: the thread that ends the wait goes on.
bool Transaction::RunOne() {
  const QueuedCommands::Queued& queued = queued_[next_++];
  const std::vector<std::string_view> words = ViewsOf(queued.words);
  ReplyWriter reply(session_.version, replies_);
  visitor_.Current();
  session_.caller = visitor_.held();
  const Route route = queued.command->route;
  if (const auto refused = RefuseCommand(*queued.command, session_, reply)) return Ended(route, *refused);
  if (queued.command->kind == CommandKind::kTakesIds) {
    const auto take = ReadTake(backend_, *queued.command, words);
    return take.ok() ? RunTake(*take, route) : Ended(route, Fail(reply, take.error()));
  }
  LEAF_CHECK(queued.command->handler != nullptr);
  return Ended(route, queued.command->handler({backend_, session_, words}, reply));
}

bool Transaction::Ended(Route route, int status) {
  outcomes_.push_back({route, status});
  return true;
}

bool Transaction::RunTake(const TakeCommand& take, Route route) {
  ReplyWriter reply(session_.version, replies_);
  const auto answer = [this, take, route](const Result<IssuedIds>& ids) {
    ReplyWriter writer(session_.version, replies_);
    Result<void> written;
    if (!ids.ok()) {
      written = ids.error();
    } else if (const auto done = WriteIds(backend_, take, *ids, writer); !done.ok()) {
      written = done.error();
    }
    Ended(route, written.ok() ? kFine : Fail(writer, written.error()));
  };
  {
    const MutexLock lock(mutex_);
    if (is_withdrawn_)
      return Ended(route, Fail(reply, Error{ErrorCode::kExhausted, "the client hung up", ""}));
  }
  if (const auto denied = RefuseCaller(backend_, take, session_, reply)) return Ended(route, *denied);
  if (const auto refused = RefuseTake(backend_, take)) return Ended(route, Fail(reply, *refused));
  IssuedIds ids;
  if (backend_.issuer.TryTake(take.ids, ids)) {
    answer(ids);
    return true;
  }
  met_.store(false);
  auto withdraw =
      backend_.issuer.Park(take.ids, [self = shared_from_this(), answer](const Result<IssuedIds>& result) {
        answer(result);
        if (self->met_.exchange(true)) self->Run();
      });
  bool give_up = false;
  {
    const MutexLock lock(mutex_);
    give_up = is_withdrawn_;
    // Of a request that is done by now it does nothing.
    withdraw_ = withdraw;
  }
  if (give_up && withdraw) withdraw();
  return met_.exchange(true);
}

void Transaction::Withdraw() {
  Issuer::Withdraw withdraw;
  {
    const MutexLock lock(mutex_);
    is_withdrawn_ = true;
    withdraw = std::move(withdraw_);
  }
  if (withdraw) withdraw();
}

}  // namespace leaf::server::resp
