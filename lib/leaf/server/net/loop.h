// One thread with its own event loop. Connections stay with the loop that accepted them, and are its alone.
#pragma once

#include <atomic>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/server/net/connection.h"
#include "leaf/server/net/deadline_queue.h"
#include "leaf/server/net/high_water.h"
#include "leaf/server/net/listener.h"
#include "leaf/server/net/memory_return.h"
#include "leaf/server/net/places.h"
#include "leaf/server/net/protocol.h"
#include "leaf/server/net/unread_bytes.h"
#include "leaf/server/request_metrics.h"
#include "leaf/tls/context.h"

namespace leaf::server {

// What the loops of a server share. Thread-safe; outlives them.
struct SharedByLoops {
  SharedByLoops(UnreadAnswers& unread_answers, const Clock& time, Logger& logger)
      : clock(time), log(logger), unread(unread_answers), places(logger) {}

  // A connection is gone.
  void CountClosed();
  // Certificate and key for connections that begin now; null where no listener speaks TLS.
  std::shared_ptr<const tls::ServerContext> Tls();
  // The one that was in force.
  std::shared_ptr<const tls::ServerContext> SetTls(std::shared_ptr<const tls::ServerContext> context);

  const Clock& clock;
  Logger& log;
  UnreadAnswers& unread;
  Places places;
  MemoryReturn memory;
  std::atomic<std::chrono::milliseconds> header_timeout{};
  std::atomic<std::chrono::milliseconds> idle_timeout{};
  std::atomic<std::size_t> connections{0};
  HighWater most_connections{};  // since memory was given back
  std::atomic<bool> draining{false};
  Mutex mutex;
  Condition connection_closed;
  std::size_t loops_draining LEAF_GUARDED_BY(mutex) = 0;  // how many have emptied their queues
  std::shared_ptr<const tls::ServerContext> tls LEAF_GUARDED_BY(mutex);
};

class Loop {
 public:
  // `surplus_max`: how many connections over a limit it has at most.
  Loop(SharedByLoops& shared, RequestMetrics::Shard& metrics, std::size_t surplus_max);

  // Before Start. `protocol` outlives the loop.
  void AddListener(const Listener& listener, const ProtocolFactory& protocol, bool is_public_door);
  void Start();
  // Any thread. Stops accepting, and closes what is idle; SharedByLoops::loops_draining tells when it has.
  void BeginDrain();
  // Any thread, after `context` is in force. Closes the connections that began with another one and whose
  // clients would not be accepted now. A client in the middle of its handshake has to begin again.
  void CheckClients(std::shared_ptr<const tls::ServerContext> context);
  // Any thread. Runs `task` on the loop's.
  void Post(std::function<void()> task) { boost::asio::post(loop_, std::move(task)); }
  // Any thread but the loop's. Joins it; cuts off what is left.
  void Stop();

  // Any thread. See WayBack::Deliver.
  template <typename Answer>
  void Deliver(ConnectionId id, std::type_identity_t<Answer>&& answer, void (*write)(Stream&, Answer&));

  SharedByLoops& shared() { return shared_; }
  RequestMetrics::Shard& metrics() { return metrics_; }

  // On the loop's thread:

  DeadlineQueue& deadlines() { return deadlines_; }
  // Lets the protocol of `connection` handle the next request. If it is answered before that returns, that
  // costs nothing but the call.
  Protocol::Step Handle(Connection& connection);
  void Forget(ConnectionId id) {
    connections_.erase(id);
    surplus_.erase(id);
  }
  // Of a connection over a limit.
  void SetSurplusAnswering(ConnectionId id, bool answering) {
    if (const auto found = surplus_.find(id); found != surplus_.end()) found->second = answering;
  }
  // The connection's TakeTurn is called once those had theirs that wait already. One turn for each round of
  // the loop: requests that have arrived meanwhile never wait for more than one piece of long answers.
  void AwaitTurn(ConnectionId id) {
    if (turns_.empty() && handshakes_.empty()) PostTurn();
    turns_.push_back(id);
  }
  // The same for a step of a handshake: one for each round, too, so that a crowd of them does not delay the
  // pieces of long answers either.
  void AwaitHandshake(ConnectionId id) {
    if (turns_.empty() && handshakes_.empty()) PostTurn();
    handshakes_.push_back(id);
  }
  // Where a piece is written out. Good up to the end of the turn.
  std::string& piece() { return piece_; }

 private:
  using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol, LoopExecutor>;
  struct Accepting {
    Acceptor socket;
    const ProtocolFactory& protocol;
    bool is_passed = false;
    bool is_unix = false;
    Origin origin{};
  };

  struct ClientCheck;

  void PostTurn();
  void CheckNextClient(const std::shared_ptr<ClientCheck>& check);
  void Accept(Accepting& accepting);
  void StopAccepting(Accepting& accepting);
  void Serve(const Accepting& accepting, StreamSocket socket);
  void TakeSurplusPlace(ConnectionId id);
  void ScheduleSweep();
  void ReturnMemory(MonotonicTime now);
  // Null if it is gone. Held, since what is done to it may close it.
  std::shared_ptr<Connection> Find(ConnectionId id) const {
    const auto found = connections_.find(id);
    return found == connections_.end() ? nullptr : found->second;
  }

  SharedByLoops& shared_;
  RequestMetrics::Shard& metrics_;
  const std::size_t surplus_max_;
  DeadlineQueue deadlines_;  // before the loop, whose handlers hold connections
  boost::asio::io_context loop_;
  std::unordered_map<ConnectionId, std::shared_ptr<Connection>> connections_;
  // Those over a limit, the oldest first, and whether each is being answered.
  std::map<ConnectionId, bool> surplus_;
  ConnectionId next_id_ = 0;
  // While one of them is not empty a turn is posted.
  std::deque<ConnectionId> turns_;
  std::deque<ConnectionId> handshakes_;
  std::string piece_;
  boost::asio::steady_timer sweep_timer_;
  std::deque<Accepting> listeners_;
  Connection* handled_ = nullptr;  // by Handle, at this moment
  std::thread thread_;
  // Whose thread this is.
  static constinit thread_local Loop* current_;
};

template <typename Answer>
void Loop::Deliver(ConnectionId id, std::type_identity_t<Answer>&& answer, void (*write)(Stream&, Answer&)) {
  const bool handling = current_ == this && handled_ != nullptr;
  if (handling && handled_->id() == id) return write(*handled_, answer);
  auto deliver = [this, id, write, kept = std::move(answer)]() mutable {
    const auto connection = Find(id);
    if (connection == nullptr || !connection->is_parked()) return;
    write(*connection, kept);
    connection->GoOn();
  };
  // Another one's answer waits until this request is done with, since its connection goes on to its next.
  if (handling) return boost::asio::post(loop_, std::move(deliver));
  // At once if this is the loop's thread already; a parked request is answered from another.
  boost::asio::dispatch(loop_, std::move(deliver));
}

template <typename Answer>
void WayBack::Deliver(std::type_identity_t<Answer>&& answer, void (*write)(Stream&, Answer&)) const {
  loop_->Deliver(id_, std::move(answer), write);
}

}  // namespace leaf::server
