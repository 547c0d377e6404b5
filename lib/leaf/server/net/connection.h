// One connection: its socket, what is read and sent, its deadlines. What requests mean is its protocol's
// business.
#pragma once

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "leaf/base/time.h"
#include "leaf/server/net/deadline_queue.h"
#include "leaf/server/net/places.h"
#include "leaf/server/net/protocol.h"
#include "leaf/tls/session.h"

namespace leaf::server {

// The loop is known to everything that works on it: nothing has to be asked of it through a table.
using LoopExecutor = boost::asio::io_context::executor_type;
// TCP or Unix.
using StreamSocket = boost::asio::basic_stream_socket<boost::asio::generic::stream_protocol, LoopExecutor>;

// Lives, works and dies on its loop's thread: what other threads hold of it is its number. Only the
// constructor may run before that thread.
//
// Requests that arrive together are answered together: their answers gather in out_, and leave before the
// connection reads again, waits for an answer from elsewhere, or ends, or once they are kGatherBytes; after
// kBurstBytes other connections have their turn. A long answer stays what it is until it is sent, and no
// further request is looked at before that: a client that does not read holds a few hundred bytes of a batch
// of any size, and no more than one report.
//
// With TLS the same happens to what is in its records. A client has a handshake first, for which it has as
// much time as for a request: until its first message is there it costs no more than a client without TLS,
// and each step has a turn (Loop::AwaitHandshake), so that a crowd of them does not delay requests.
class Connection final : public Stream, public std::enable_shared_from_this<Connection> {
 public:
  Connection(Loop& loop, ConnectionId id, StreamSocket socket, Places::Place place, const Origin& origin,
             std::unique_ptr<Protocol> protocol);
  ~Connection();

  void Start();
  // Its deadline has passed.
  void TimeOut(MonotonicTime now);
  // Closes if no request is under way, else after its answer.
  void BeginDrain();
  // Sends what there is room for, and a piece of a long answer at most.
  void TakeTurn();
  // Does a step of the handshake.
  void Shake();
  void Close();

  // Whether a handshake has begun, or is done.
  bool has_begun_tls() const { return tls_ != nullptr; }
  // Whether a handshake with `context` would take what the client has shown. Only if it has_begun_tls.
  bool WouldPass(const tls::ServerContext& context) const { return tls_->WouldPass(context); }

  ConnectionId id() const { return id_; }
  bool is_parked() const { return is_parked_; }
  // The parked request is answered.
  void GoOn();

 private:
  enum class State : std::uint8_t { kIdle, kReading, kAnswering };

  bool is_surplus() const { return !origin_.refusal.empty(); }
  void AwaitHello();
  void TakeHello();
  void EndShaking(bool good);
  void RefuseNoTls();
  void BeginTalk();
  void BeIdle(MonotonicTime now);
  void LeaveIdle();
  bool HasUnread() const;
  void Advance();
  void BeginReading();
  void ReadMore();
  void AwaitRecord();
  void TakeInput(boost::system::error_code failed, std::size_t bytes);
  std::size_t ReadSome(boost::asio::mutable_buffer room, boost::system::error_code& failed);
  std::size_t WriteRecords(std::string_view bytes, boost::system::error_code& failed,
                           tls::Session::Part part = tls::Session::Part::kSome);
  bool HandleRequest(Protocol::Step step);
  void BeginAnswering();
  bool EndRequest();
  void WatchPeer();
  bool ReadAhead();
  void GiveUp();
  bool Flush(tls::Session::Part part = tls::Session::Part::kSome);
  void BeginSending();
  void AwaitRoom(bool moved);
  bool NoteTaken();
  void Drop(std::size_t sent);
  void Sent();
  void FinishAndClose();
  void DiscardInput();
  void Abort();

  Loop& loop_;
  const ConnectionId id_;
  const Places::Place place_;
  DeadlineQueue::Member deadline_;
  StreamSocket socket_;
  std::unique_ptr<tls::Session> tls_;  // null without TLS, and until the client's first message is there
  // What reading waits for: with TLS something may have to be sent first.
  StreamSocket::wait_type input_wait_ = StreamSocket::wait_read;
  State state_ = State::kIdle;
  bool is_shaking_ = false;  // hands
  bool is_parked_ = false;
  bool is_sending_ = false;
  bool watches_peer_ = false;
  bool timed_out_ = false;
  bool came_in_pieces_ = false;  // the request that is being read
  MonotonicTime idle_since_;
  std::size_t burst_bytes_ = 0;     // of answers, since it has read, or had its turn
  std::int64_t written_bytes_ = 0;  // to the socket, without TLS
  std::int64_t taken_bytes_ = 0;    // of these by the client, when it was last looked at
};

}  // namespace leaf::server
