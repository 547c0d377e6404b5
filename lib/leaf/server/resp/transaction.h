// What a client queued between MULTI and EXEC: its commands are done one after the other, and answered
// together. redis-py's pipelines are transactions unless told otherwise.
//
// Nothing is undone: an ID that was taken is taken. Others may take IDs in between.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/mutex.h"
#include "leaf/server/issue/issuer.h"
#include "leaf/server/net/unread_bytes.h"
#include "leaf/server/resp/commands.h"
#include "leaf/server/resp/take.h"

namespace leaf::server::resp {

// The queue. Not thread-safe.
class QueuedCommands {
 public:
  static constexpr std::size_t kCommandsMax = 10'000;
  // Of the commands and of their replies.
  static constexpr std::size_t kBytesMax = std::size_t{1024} * 1024;

  struct Queued {
    const CommandSpec* command;
    std::vector<std::string> words;
  };

  // Errors, after which nothing of the queue can be done any more: kTooLarge, kUnavailable (the queues of all
  // connections take up too much), and those of ReadTake.
  Result<void> Add(const RedisBackend& backend, const CommandSpec& command, Words words);
  // A command could not be queued: the others will not be done either.
  void Spoil();
  bool is_spoilt() const { return is_spoilt_; }
  std::vector<Queued> Take() { return std::move(queued_); }
  // The memory that counts for the queue; to be kept for as long as it exists.
  std::vector<UnreadBytes::Held> TakeHeld() { return std::move(held_); }

 private:
  std::vector<Queued> queued_;
  std::size_t bytes_ = 0;
  std::vector<UnreadBytes::Held> held_;  // kHeldBytes each
  bool is_spoilt_ = false;
};

// One EXEC. Thread-safe as told.
class Transaction : public std::enable_shared_from_this<Transaction> {
 public:
  // The memory that counts for the reply, to be kept until it is sent. Nothing for a short one.
  using Held = std::vector<UnreadBytes::Held>;
  // What became of a command, for the metrics.
  struct Outcome {
    Route route;
    int status;
  };
  struct Answer {
    std::string reply;
    Held held;
    std::vector<Outcome> outcomes;  // of each command
  };
  using Done = std::function<void(Answer answer)>;

  // `backend` outlives it.
  Transaction(const RedisBackend& backend, QueuedCommands queue, const Session& session, Done done)
      : backend_(backend),
        queued_(queue.Take()),
        held_(queue.TakeHeld()),
        visitor_(*session.visitor),
        session_(session),
        done_(std::move(done)) {
    session_.visitor = nullptr;  // the connection's
  }

  // Once. Never blocks; `done` is called once, at once or later, on any thread.
  void Run();
  // Gives up what waits, and what follows it: done with errors. Any thread, any time.
  void Withdraw();

 private:
  bool RunOne();
  bool RunTake(const TakeCommand& take, Route route);
  // True.
  bool Ended(Route route, int status);

  const RedisBackend& backend_;
  const std::vector<QueuedCommands::Queued> queued_;
  Held held_;
  // The caller of the connection, as it is by now: tokens may expire, go, or lose roles while commands wait.
  Visitor visitor_;
  Session session_;
  const Done done_;
  // Only one thread at a time works on these: the one that runs, or that of the answer it waits for.
  std::size_t next_ = 0;
  std::string replies_;
  std::vector<Outcome> outcomes_;
  // Whether the one of the two that Park makes has been here: the second goes on.
  std::atomic<bool> met_{false};

  Mutex mutex_;
  bool is_withdrawn_ LEAF_GUARDED_BY(mutex_) = false;
  Issuer::Withdraw withdraw_ LEAF_GUARDED_BY(mutex_);  // of the request that waits
};

}  // namespace leaf::server::resp
