// A TCP connection with TLS, asynchronous: as much of beast::tcp_stream as this part uses. Internal.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/buffers_iterator.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/error.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "leaf/base/error.h"
#include "leaf/tls/session.h"

namespace leaf::client {

// One operation at a time. Every one ends with beast::error::timeout once its time is over, and with
// errc::protocol_error where Failure has the reason.
class TlsStream {
 public:
  using error_code = boost::beast::error_code;
  using executor_type = boost::asio::io_context::executor_type;

  // `host`: the one that the server's certificate has to be for.
  TlsStream(boost::asio::io_context& loop, std::shared_ptr<const tls::ClientContext> context,
            std::string host)
      : context_(std::move(context)), host_(std::move(host)), socket_(loop), timer_(loop) {}

  executor_type get_executor() { return executor_; }
  boost::asio::ip::tcp::socket& socket() { return socket_; }
  // From now on, for all operations up to the next call.
  void expires_after(std::chrono::milliseconds time) { timer_.expires_after(time); }

  // Connects, and does the handshake. `handler`: (error_code).
  template <typename Handler>
  void async_connect(const boost::asio::ip::tcp::resolver::results_type& endpoints, Handler handler) {
    session_.reset();
    Arm();
    boost::asio::async_connect(
        socket_, endpoints, [this, handler = std::move(handler)](error_code failed, auto&&...) mutable {
          if (failed) {
            timer_.cancel();
            return handler(timed_out_ ? error_code(boost::beast::error::timeout) : failed);
          }
          socket_.non_blocking(true, failed);
          socket_.set_option(boost::asio::ip::tcp::no_delay(true), failed);
          session_ = std::make_unique<tls::Session>(context_, socket_.native_handle(), host_);
          Step(
              [this] {
                return tls::Session::Moved{session_->Handshake(), 0};
              },
              [handler = std::move(handler)](error_code shaken, std::size_t) mutable { handler(shaken); });
        });
  }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    boost::asio::mutable_buffer room;
    for (auto next = boost::asio::buffer_sequence_begin(buffers);
         room.size() == 0 && next != boost::asio::buffer_sequence_end(buffers); ++next)
      room = boost::asio::mutable_buffer(*next);
    return boost::asio::async_initiate<Token, void(error_code, std::size_t)>(
        [this, room](auto handler) {
          Begin([this, room] { return session_->Read(static_cast<char*>(room.data()), room.size()); },
                std::move(handler));
        },
        token);
  }

  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    // In one record: a request comes in many pieces.
    std::string bytes(boost::asio::buffers_begin(buffers), boost::asio::buffers_end(buffers));
    return boost::asio::async_initiate<Token, void(error_code, std::size_t)>(
        [this, bytes = std::move(bytes)](auto handler) mutable {
          Begin(
              [this, bytes = std::move(bytes)] {
                tls::Session::Moved moved = session_->Write(bytes);
                if (moved.bytes > 0 && moved.outcome == tls::Session::Outcome::kWantWrite)
                  moved.outcome = tls::Session::Outcome::kDone;
                return moved;
              },
              std::move(handler));
        },
        token);
  }

  // Why TLS came to nothing with `server`; nothing if that is not the reason of a failure.
  std::optional<Error> Failure(const std::string& server) const;

 private:
  // `handler` is not called before this returns.
  template <typename Try, typename Handler>
  void Begin(Try attempt, Handler handler) {
    Arm();
    boost::asio::post(executor_,
                      [this, attempt = std::move(attempt), handler = std::move(handler)]() mutable {
                        Step(std::move(attempt), std::move(handler));
                      });
  }

  template <typename Try, typename Handler>
  void Step(Try attempt, Handler handler) {
    using Outcome = tls::Session::Outcome;
    using boost::asio::ip::tcp;
    const tls::Session::Moved moved = attempt();
    if (moved.outcome != Outcome::kWantRead && moved.outcome != Outcome::kWantWrite) {
      timer_.cancel();
      error_code result;
      if (moved.outcome == Outcome::kEnded) result = boost::asio::error::eof;
      if (moved.outcome == Outcome::kFailed) result = make_error_code(boost::system::errc::protocol_error);
      return handler(result, moved.bytes);
    }
    socket_.async_wait(
        moved.outcome == Outcome::kWantRead ? tcp::socket::wait_read : tcp::socket::wait_write,
        [this, attempt = std::move(attempt), handler = std::move(handler)](error_code failed) mutable {
          if (!failed && !timed_out_) return Step(std::move(attempt), std::move(handler));
          timer_.cancel();
          handler(timed_out_ ? error_code(boost::beast::error::timeout) : failed, 0);
        });
  }

  // While an operation is under way, so that a loop without one ends.
  void Arm() {
    timed_out_ = false;
    timer_.async_wait([this](error_code failed) {
      if (failed) return;
      timed_out_ = true;
      error_code ignored;
      // While it connects, a socket that is only cancelled goes on with the host's next address, and no time.
      if (session_) {
        socket_.cancel(ignored);
      } else {
        socket_.close(ignored);
      }
    });
  }

  const std::shared_ptr<const tls::ClientContext> context_;
  const std::string host_;
  boost::asio::ip::tcp::socket socket_;
  executor_type executor_ =
      static_cast<boost::asio::io_context&>(socket_.get_executor().context()).get_executor();
  boost::asio::steady_timer timer_;
  bool timed_out_ = false;
  std::unique_ptr<tls::Session> session_;
};

// The same of a stream of any kind.
inline std::optional<Error> TlsFailureOf(const TlsStream& stream, const std::string& server) {
  return stream.Failure(server);
}
template <typename Stream>
std::optional<Error> TlsFailureOf(const Stream&, const std::string&) {
  return std::nullopt;
}

}  // namespace leaf::client
