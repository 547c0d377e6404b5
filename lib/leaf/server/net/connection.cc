#include "leaf/server/net/connection.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/socket_base.hpp>
#include <chrono>
#include <utility>

#include "leaf/base/endpoint.h"
#include "leaf/base/text.h"
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
// After so much of short answers to requests that came together other connections have their turn. A turn is
// for some 3 ms at most, where answers are codes, which take longest to make.
constexpr std::size_t kBurstBytes = std::size_t{16} * 1024;
// What a connection keeps of the memory of its answers.
constexpr std::size_t kKeptBytes = std::size_t{64} * 1024;

// Of a record of TLS: its kind, a version, and the length of what follows.
constexpr std::size_t kRecordHeadBytes = 5;
constexpr char kHandshakeRecord = 22;
constexpr std::size_t kRecordBytesMax = kRecordHeadBytes + std::size_t{16} * 1024;

std::string PeerText(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "";
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&peer), size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "a client";
  return EndpointText({host, ParseWhole<std::uint16_t>(port).value_or(0)});
}

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
  if (!origin_.is_tls) return BeginTalk();
  const MonotonicTime now = Now();
  BeIdle(now);
  deadline_.Set(std::min(deadline_.deadline(), now + loop_.shared().header_timeout.load()));
  is_shaking_ = true;
  AwaitHello();
}

void Connection::AwaitHello() {
  socket_.async_read_some(in_.prepare(in_.max_size() - in_.size()),
                          [self = shared_from_this()](error_code failed, std::size_t bytes) {
                            if (failed) return self->Close();
                            self->in_.commit(bytes);
                            self->TakeHello();
                          });
}

// Has the client's first message handled once it is whole: one that sends it slowly holds nothing of OpenSSL.
void Connection::TakeHello() {
  const std::string_view come(static_cast<const char*>(in_.data().data()), in_.size());
  if (come.front() != kHandshakeRecord) return RefuseNoTls();
  if (come.size() < kRecordHeadBytes) return AwaitHello();
  const auto byte = [&](std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(come[at]));
  };
  if (come.size() < std::min(kRecordHeadBytes + byte(3) * 256 + byte(4), kRecordBytesMax))
    return AwaitHello();
  tls_ = std::make_unique<tls::Session>(loop_.shared().Tls(), socket_.native_handle(), come);
  in_.clear();
  loop_.AwaitHandshake(id_);
}

void Connection::Shake() {
  if (!socket_.is_open()) return;
  using Outcome = tls::Session::Outcome;
  const Outcome outcome = tls_->Handshake();
  if (outcome == Outcome::kWantRead || outcome == Outcome::kWantWrite) {
    const auto what = outcome == Outcome::kWantRead ? StreamSocket::wait_read : StreamSocket::wait_write;
    return socket_.async_wait(what, [self = shared_from_this()](error_code failed) {
      if (failed) return self->Close();
      self->loop_.AwaitHandshake(self->id_);
    });
  }
  EndShaking(outcome == Outcome::kDone);
  // What went wrong was sent to the client already.
  if (outcome != Outcome::kDone) return FinishAndClose();
  client_name_ = tls_->peer_name();
  if (!client_name_.empty())
    loop_.shared().log.Debug("{} is {}", PeerText(socket_.native_handle()), client_name_);
  BeginTalk();
}

void Connection::EndShaking(bool good) {
  if (!std::exchange(is_shaking_, false)) return;
  metrics_.CountHandshake(good);
  if (good) return;
  loop_.shared().log.Debug("no TLS with {}: {}", PeerText(socket_.native_handle()),
                           tls_ == nullptr         ? "it does not speak it"
                           : tls_->error().empty() ? "it did not complete the handshake"
                                                   : tls_->error());
}

void Connection::RefuseNoTls() {
  EndShaking(false);
  began_at_ = Now();
  BeginAnswering();
  protocol_->HandleNoTls(*this);
  if (out_.empty()) return Close();
  FinishAndClose();
}

void Connection::BeginTalk() {
  const MonotonicTime now = Now();
  BeIdle(now);
  if (!protocol_->may_begin_silent())
    deadline_.Set(std::min(deadline_.deadline(), now + loop_.shared().header_timeout.load()));
  Advance();
}

void Connection::TimeOut(MonotonicTime now) {
  if (is_sending_) {
    // It waits for its turn, and nothing is the client's to take.
    if (out_.empty() && !long_answer_ && !is_last_)
      return deadline_.Set(now + loop_.shared().header_timeout.load());
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
  // A connection on which nothing has come is no handshake.
  if (is_shaking_ && socket_.is_open() && (tls_ != nullptr || in_.size() > 0)) EndShaking(false);
  if (tls_ != nullptr && socket_.is_open()) tls_->End();
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
  // The requests behind it have their time from here on: they could not be looked at before.
  began_at_ = answered_at_;
  if (EndRequest()) Advance();
}

void Connection::TakeTurn() {
  if (!socket_.is_open()) return;
  burst_bytes_ = 0;
  if (out_.empty() && !long_answer_) return Sent();
  std::string_view piece;
  if (long_answer_) piece = long_answer_->Peek(kPieceBytes, loop_.piece());
  const std::size_t wanted = out_.size() + piece.size();
  error_code failed;
  std::size_t sent = 0;
  if (tls_ == nullptr) {
    sent = socket_.write_some(std::array{asio::buffer(std::as_const(out_)), asio::buffer(piece)}, failed);
  } else {
    sent = WriteRecords(out_, failed);
    if (!failed && sent == out_.size()) sent += WriteRecords(piece, failed);
    if (failed == asio::error::would_block && sent > 0) failed = {};
  }
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

// Whether more has come than was taken into in_.
bool Connection::HasUnread() const {
  error_code ignored;
  return socket_.available(ignored) > 0 || (tls_ != nullptr && tls_->has_input());
}

// While draining: an idle connection is closed, but not one whose first request, or next one, is on its way:
// a client that got an answer a moment ago may be sending already, and is told to go elsewhere with the next
// answer.
void Connection::LeaveIdle() {
  const MonotonicTime now = Now();
  const bool asks_often = now - idle_since_ < kLingerTime;
  if (answered_any_ && !asks_often && !HasUnread()) return Close();
  deadline_.Set(
      std::min(deadline_.deadline(), (answered_any_ && asks_often ? idle_since_ : now) + kLingerTime));
}

// Handles the requests that have come, one after the other; then sends the answers, and reads more.
void Connection::Advance() {
  while (in_.size() > 0) {
    BeginReading();
    const Protocol::Step step = loop_.Handle(*this);
    if (step == Protocol::Step::kMore) break;
    if (step == Protocol::Step::kNothing) [[unlikely]] {
      // It is between two requests, as before. One over a limit has its time from the beginning.
      state_ = State::kIdle;
      if (is_surplus() || is_sending_) break;
      if (protocol_->may_begin_silent()) {
        BeIdle(Now());
      } else {
        // What is no request does not put its deadline off.
        deadline_.Set(idle_since_ + (answered_any_ ? loop_.shared().idle_timeout.load()
                                                   : loop_.shared().header_timeout.load()));
      }
      break;
    }
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
  if (tls_ != nullptr) return AwaitRecord();
  socket_.async_read_some(
      in_.prepare(in_.max_size() - in_.size()),
      [self = shared_from_this()](error_code failed, std::size_t bytes) { self->TakeInput(failed, bytes); });
}

// The same with TLS. What was read from the socket already is taken first, once others had their turn.
void Connection::AwaitRecord() {
  auto ready = [self = shared_from_this()](error_code failed) {
    std::size_t bytes = 0;
    if (!failed && !self->timed_out_)
      bytes = self->ReadSome(self->in_.prepare(self->in_.max_size() - self->in_.size()), failed);
    if (failed == asio::error::would_block) return self->AwaitRecord();
    self->TakeInput(failed, bytes);
  };
  if (!tls_->may_hold_input()) return socket_.async_wait(input_wait_, std::move(ready));
  asio::post(socket_.get_executor(), [ready = std::move(ready)] { ready({}); });
}

void Connection::TakeInput(error_code failed, std::size_t bytes) {
  if (timed_out_ && socket_.is_open()) {
    BeginAnswering();
    is_last_ = true;
    protocol_->HandleTimeout(*this);
    return FinishAndClose();
  }
  if (failed) return Close();
  in_.commit(bytes);
  burst_bytes_ = 0;
  Advance();
}

// As the socket's read_some, and with TLS what is in the records.
std::size_t Connection::ReadSome(asio::mutable_buffer room, error_code& failed) {
  if (tls_ == nullptr) return socket_.read_some(room, failed);
  using Outcome = tls::Session::Outcome;
  // Its descriptor may be another one's by now.
  if (!socket_.is_open()) {
    failed = asio::error::bad_descriptor;
    return 0;
  }
  const tls::Session::Moved moved = tls_->Read(static_cast<char*>(room.data()), room.size());
  input_wait_ = moved.outcome == Outcome::kWantWrite ? StreamSocket::wait_write : StreamSocket::wait_read;
  switch (moved.outcome) {
    case Outcome::kDone:
      failed = {};
      break;
    case Outcome::kWantRead:
    case Outcome::kWantWrite:
      failed = asio::error::would_block;
      break;
    case Outcome::kEnded:
      failed = asio::error::eof;
      break;
    case Outcome::kFailed:
      failed = asio::error::connection_reset;
      break;
  }
  return moved.bytes;
}

// As the socket's write_some.
std::size_t Connection::WriteRecords(std::string_view bytes, error_code& failed, tls::Session::Part part) {
  const tls::Session::Moved moved = tls_->Write(bytes, part);
  if (moved.outcome == tls::Session::Outcome::kFailed) {
    failed = asio::error::connection_reset;
    return 0;
  }
  failed = {};
  if (moved.bytes < bytes.size()) failed = asio::error::would_block;
  return moved.bytes;
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
  if (draining_.load() && !protocol_->tells_of_the_end() && in_.size() == 0 && !HasUnread()) is_last_ = true;
  if (is_last_) {
    FinishAndClose();
    return false;
  }
  state_ = State::kIdle;
  if (!is_sending_) BeIdle(answered_at_);
  if (long_answer_) return Flush();
  if (out_.size() < kGatherBytes) return true;
  burst_bytes_ += out_.size();
  if (!Flush()) return false;
  if (burst_bytes_ < kBurstBytes || in_.size() == 0) return true;
  BeginSending();
  loop_.AwaitTurn(id_);
  return false;
}

// While a request is parked: a client that hangs up wants no answer any more. What else arrives meanwhile are
// further requests; they are read, so that a hang-up behind them is seen, as long as there is room.
void Connection::WatchPeer() {
  if (in_.size() == in_.max_size()) return;
  if (tls_ != nullptr && tls_->may_hold_input()) {
    if (!ReadAhead()) return;
    if (in_.size() == in_.max_size()) return;
  }
  watches_peer_ = true;
  socket_.async_wait(input_wait_, [self = shared_from_this()](error_code failed) {
    if (failed) return;  // ended; the next one may have begun
    self->watches_peer_ = false;
    if (!self->is_parked_) return;
    if (self->ReadAhead()) self->WatchPeer();
  });
}

// False if the client sends nothing more.
bool Connection::ReadAhead() {
  error_code failed;
  in_.commit(ReadSome(in_.prepare(in_.max_size() - in_.size()), failed));
  if (!failed || failed == asio::error::would_block) return true;
  if (failed == asio::error::eof) {
    deadline_.Set(Now() + kHalfClosedTime);
  } else {
    GiveUp();
  }
  return false;
}

// The parked request is waited for no longer. Its answer is an error, should the client still be there to
// read it.
void Connection::GiveUp() {
  is_last_ = true;
  const auto withdraw = std::move(withdraw_);
  if (withdraw) withdraw();
}

// Sends what is to be sent. True if all of it is; else the connection goes on once it is, or has ended.
// kLast: what follows is the end of the connection.
bool Connection::Flush(tls::Session::Part part) {
  if (is_sending_ || !socket_.is_open()) return false;
  if (long_answer_) {
    // In its turn, even if it is the only one: other requests may have arrived.
    BeginSending();
    loop_.AwaitTurn(id_);
    return false;
  }
  if (out_.empty()) return true;
  error_code failed;
  const std::size_t sent =
      tls_ == nullptr ? socket_.write_some(asio::buffer(out_), failed) : WriteRecords(out_, failed, part);
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
  const std::int64_t written =
      tls_ == nullptr ? written_bytes_ : static_cast<std::int64_t>(tls_->sent_bytes());
  const std::int64_t taken = written - BytesNotTaken(socket_.native_handle());
  return std::exchange(taken_bytes_, taken) < taken;
}

// So much of what is to be sent is.
void Connection::Drop(std::size_t sent) {
  written_bytes_ += static_cast<std::int64_t>(sent);
  const std::size_t of_out = std::min(sent, out_.size());
  out_.erase(0, of_out);
  if (out_.capacity() > kKeptBytes && out_.empty()) [[unlikely]]
    std::string().swap(out_);
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
  if (!Flush(tls::Session::Part::kLast)) return;
  if (tls_ != nullptr && !tls_->End()) {
    BeginSending();
    return AwaitRoom(false);
  }
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
