#include "leaf/server/net/connection.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/socket_base.hpp>
#include <chrono>
#include <utility>

#include "leaf/server/net/loop.h"

namespace leaf::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// How long a peer may take to close a connection that we have closed.
constexpr std::chrono::milliseconds kLingerTime{1000};
// How long a client that stopped sending while its request is parked is believed to be still there. Most have
// gone; some shut down one direction only, and a grant takes less than this where all is well.
constexpr std::chrono::milliseconds kHalfClosedTime{250};
// How long a connection over a limit may take to send its first request.
constexpr std::chrono::milliseconds kSurplusTime{1000};
// A long answer is sent in pieces of this size, and other connections of the loop have their turn between
// two. It takes some 50 us to write one out and send it.
constexpr std::size_t kPieceBytes = std::size_t{32} * 1024;
// So much of answers is sent before further requests are looked at that have arrived.
constexpr std::size_t kGatherBytes = std::size_t{4} * 1024;

// What the client, or its kernel, has not taken of what was written to its socket.
std::int64_t BytesNotTaken(int fd) {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

}  // namespace

Connection::Connection(Loop& loop, ConnectionId id, StreamSocket socket, Places::Place place,
                       const Origin& origin, std::unique_ptr<Protocol> protocol)
    : Stream(origin, std::move(protocol), WayBack(loop, id), loop.shared().clock, loop.shared().draining,
             loop.metrics()),
      loop_(loop),
      id_(id),
      place_(std::move(place)),
      deadline_(loop.deadlines(), id),
      socket_(std::move(socket)) {
  // What the kernel has room for is sent without waiting to be told so.
  error_code failed;
  socket_.non_blocking(true, failed);
}

Connection::~Connection() {
  metrics_.CountClosed();
  loop_.shared().CountClosed();
}

void Connection::Start() {
  const MonotonicTime now = Now();
  BeIdle(now);
  if (!protocol_->may_begin_silent())
    deadline_.Set(std::min(deadline_.deadline(), now + loop_.shared().header_timeout.load()));
  Advance();
}

void Connection::TimeOut(MonotonicTime now) {
  if (is_sending_) {
    // A slow client goes on as long as it takes anything at all.
    if (!NoteTaken()) return Abort();
    return deadline_.Set(now + loop_.shared().header_timeout.load());
  }
  if (is_parked_) return GiveUp();
  if (state_ != State::kReading || timed_out_) return Close();
  // A client that is too slow is told so, once the read under way has ended: there is one reader.
  timed_out_ = true;
  deadline_.Set(now + kLingerTime);
  error_code ignored;
  socket_.cancel(ignored);
}

void Connection::Close() {
  error_code ignored;
  socket_.close(ignored);  // pending operations end with an error and let go of this object
  deadline_.Set(DeadlineQueue::kNever);
  loop_.Forget(id_);
  GiveUp();
}

void Connection::BeginDrain() {
  if (state_ == State::kIdle && !is_sending_) LeaveIdle();
}

void Connection::GoOn() {
  is_parked_ = false;
  withdraw_ = nullptr;
  // Once: cancel() ends every wait of the socket, and a wait for room may begin before the handler of this
  // one runs.
  if (std::exchange(watches_peer_, false)) {
    error_code ignored;
    socket_.cancel(ignored);
  }
  if (EndRequest()) Advance();
}

void Connection::TakeTurn() {
  if (!socket_.is_open()) return;
  std::string_view piece;
  if (long_answer_) piece = long_answer_->Peek(kPieceBytes, loop_.piece());
  const std::size_t wanted = out_.size() + piece.size();
  const std::array<asio::const_buffer, 2> buffers{asio::buffer(out_), asio::buffer(piece)};
  error_code failed;
  const std::size_t sent = socket_.write_some(buffers, failed);
  if (failed && failed != asio::error::would_block) return Close();
  Drop(sent);
  if (out_.empty() && !long_answer_) return Sent();
  if (sent == wanted) return loop_.AwaitTurn(id_);
  AwaitRoom(sent > 0);
}

void Connection::BeIdle(MonotonicTime now) {
  state_ = State::kIdle;
  idle_since_ = now;
  deadline_.Set(now + (is_surplus() ? kSurplusTime : loop_.shared().idle_timeout.load()));
}

// While draining: an idle connection is closed, but not one whose first request, or next one, is on its way:
// a client that got an answer a moment ago may be sending already, and is told to go elsewhere with the next
// answer.
void Connection::LeaveIdle() {
  error_code ignored;
  const MonotonicTime now = Now();
  const bool asks_often = now - idle_since_ < kLingerTime;
  if (answered_any_ && !asks_often && socket_.available(ignored) == 0) return Close();
  deadline_.Set(
      std::min(deadline_.deadline(), (answered_any_ && asks_often ? idle_since_ : now) + kLingerTime));
}

// Handles the requests that have come, one after the other; then sends the answers, and reads more.
void Connection::Advance() {
  while (in_.size() > 0) {
    BeginReading();
    const Protocol::Step step = loop_.Handle(*this);
    if (step == Protocol::Step::kMore) break;
    if (!HandleRequest(step)) return;
  }
  if (!Flush()) return;
  if (state_ == State::kIdle && draining_.load()) LeaveIdle();
  if (socket_.is_open()) ReadMore();
}

void Connection::BeginReading() {
  is_answered_ = false;
  if (state_ != State::kIdle) {
    // How long a client takes to send its request is not the server's time.
    if (came_in_pieces_) began_at_ = Now();
    return;
  }
  state_ = State::kReading;
  came_in_pieces_ = false;
  // Of requests that came together the first one's time is that of all.
  if (out_.empty()) began_at_ = Now();
  deadline_.Set(is_surplus() ? idle_since_ + kSurplusTime : began_at_ + loop_.shared().header_timeout.load());
}

void Connection::ReadMore() {
  came_in_pieces_ = state_ == State::kReading;
  socket_.async_read_some(in_.prepare(in_.max_size() - in_.size()),
                          [self = shared_from_this()](error_code failed, std::size_t bytes) {
                            if (self->timed_out_ && self->socket_.is_open()) {
                              self->BeginAnswering();
                              self->is_last_ = true;
                              self->protocol_->HandleTimeout(*self);
                              return self->FinishAndClose();
                            }
                            if (failed) return self->Close();
                            self->in_.commit(bytes);
                            self->Advance();
                          });
}

// A request was taken. True if it is answered, and the next one may follow at once.
bool Connection::HandleRequest(Protocol::Step step) {
  BeginAnswering();
  if (step == Protocol::Step::kAnswered) return EndRequest();
  is_parked_ = true;
  deadline_.Set(DeadlineQueue::kNever);  // the service has deadlines of its own
  if (Flush() && withdraw_) WatchPeer();
  return false;
}

void Connection::BeginAnswering() {
  state_ = State::kAnswering;
  if (is_surplus()) loop_.SetSurplusAnswering(id_, true);
}

// After the answer. True if the next request may follow at once.
bool Connection::EndRequest() {
  if (is_sending_) deadline_.Set(answered_at_ + loop_.shared().header_timeout.load());
  if (is_last_) {
    FinishAndClose();
    return false;
  }
  state_ = State::kIdle;
  if (!is_sending_) BeIdle(answered_at_);
  if (long_answer_) return Flush();
  return out_.size() < kGatherBytes || Flush();
}

// While a request is parked: a client that hangs up wants no answer any more. What else arrives meanwhile are
// further requests; they are read, so that a hang-up behind them is seen, as long as there is room.
void Connection::WatchPeer() {
  if (in_.size() == in_.max_size()) return;
  watches_peer_ = true;
  socket_.async_wait(StreamSocket::wait_read, [self = shared_from_this()](error_code failed) {
    if (failed) return;  // ended; the next one may have begun
    self->watches_peer_ = false;
    if (!self->is_parked_) return;
    const auto room = self->in_.prepare(self->in_.max_size() - self->in_.size());
    self->in_.commit(self->socket_.read_some(room, failed));
    if (!failed || failed == asio::error::would_block) return self->WatchPeer();
    if (failed != asio::error::eof) return self->GiveUp();
    self->deadline_.Set(self->Now() + kHalfClosedTime);
  });
}

// The parked request is waited for no longer. Its answer is an error, should the client still be there to
// read it.
void Connection::GiveUp() {
  is_last_ = true;
  const auto withdraw = std::move(withdraw_);
  if (withdraw) withdraw();
}

// Sends what is to be sent. True if all of it is; else the connection goes on once it is, or has ended.
bool Connection::Flush() {
  if (is_sending_ || !socket_.is_open()) return false;
  if (long_answer_) {
    // In its turn, even if it is the only one: other requests may have arrived.
    BeginSending();
    loop_.AwaitTurn(id_);
    return false;
  }
  if (out_.empty()) return true;
  error_code failed;
  const std::size_t sent = socket_.write_some(asio::buffer(out_), failed);
  if (failed && failed != asio::error::would_block) {
    Close();
    return false;
  }
  Drop(sent);
  if (out_.empty()) return true;
  BeginSending();
  AwaitRoom(true);
  return false;
}

void Connection::BeginSending() {
  is_sending_ = true;
  deadline_.Set(Now() + loop_.shared().header_timeout.load());
}

// Has its turn once the kernel takes more. `moved`: it took something a moment ago.
void Connection::AwaitRoom(bool moved) {
  if (moved) {
    NoteTaken();
    deadline_.Set(Now() + loop_.shared().header_timeout.load());
  }
  socket_.async_wait(StreamSocket::wait_write, [self = shared_from_this()](error_code failed) {
    if (failed) return self->Close();
    self->loop_.AwaitTurn(self->id_);
  });
}

// Whether the client has taken anything since the last call.
bool Connection::NoteTaken() {
  const std::int64_t taken = written_bytes_ - BytesNotTaken(socket_.native_handle());
  return std::exchange(taken_bytes_, taken) < taken;
}

// So much of what is to be sent is.
void Connection::Drop(std::size_t sent) {
  written_bytes_ += static_cast<std::int64_t>(sent);
  const std::size_t of_out = std::min(sent, out_.size());
  out_.erase(0, of_out);
  if (long_answer_ && !long_answer_->Skip(sent - of_out)) long_answer_.reset();
}

void Connection::Sent() {
  is_sending_ = false;
  if (is_parked_) {
    deadline_.Set(DeadlineQueue::kNever);
    if (withdraw_) WatchPeer();
    return;
  }
  if (is_last_) return FinishAndClose();
  if (state_ == State::kIdle) BeIdle(Now());
  Advance();
}

// Lets the peer read the answers: closing with unread input would reset the connection.
void Connection::FinishAndClose() {
  is_last_ = true;
  if (!Flush()) return;
  error_code ignored;
  socket_.shutdown(StreamSocket::shutdown_send, ignored);
  if (is_surplus()) loop_.SetSurplusAnswering(id_, false);
  deadline_.Set(Now() + kLingerTime);
  in_.clear();
  DiscardInput();
}

void Connection::DiscardInput() {
  socket_.async_read_some(in_.prepare(in_.max_size()),
                          [self = shared_from_this()](error_code failed, std::size_t) {
                            if (failed) return self->Close();
                            self->DiscardInput();
                          });
}

// The client is not told by an end behind what it does not read, and the kernel forgets that at once.
void Connection::Abort() {
  error_code ignored;
  socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  Close();
}

}  // namespace leaf::server
