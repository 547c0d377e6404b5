// What a connection and the protocol that is spoken on it know of each other.
//
// A connection (connection.h) owns a socket, the bytes that have come and those that are to be sent,
// deadlines and back-pressure. A protocol makes answers of requests (http/, resp/). Everything here happens
// on the thread of the connection's loop, unless stated otherwise.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <boost/beast/core/flat_static_buffer.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/clock.h"
#include "leaf/server/request_metrics.h"

namespace leaf::server {

class Loop;
class Stream;

using ConnectionId = std::uint64_t;
// No request, or no part of one that a protocol needs as a whole, is longer.
inline constexpr std::size_t kReadBytesMax = std::size_t{32} * 1024;
using ReadBuffer = boost::beast::flat_static_buffer<kReadBytesMax>;

// Where a connection came from, and whether it has a place.
struct Origin {
  bool is_local = false;     // over a Unix socket that is not for proxies
  bool on_loopback = false;  // the listener cannot be reached from other machines
  // There is a door of its own for operators (server.admin_listen), and this is not it.
  bool is_public_door = false;
  std::optional<uid_t> user{};  // that runs the client, if is_local and the kernel says so
  bool is_tls = false;          // the listener speaks nothing else
  // Static text. Unless empty: the connection is over a limit, for this reason. It gets one answer.
  std::string_view refusal = "";
};

// An answer that is too large to stand in memory beside others: it is sent a piece at a time.
class LongAnswer {
 public:
  virtual ~LongAnswer() = default;
  // The next bytes, at most `most` and at least one; good until the next call. They may be written to
  // `scratch`, whatever it holds.
  virtual std::string_view Peek(std::size_t most, std::string& scratch) const = 0;
  // So many of the next bytes are sent. True if there are more.
  virtual bool Skip(std::size_t bytes) = 0;
};

// One connection's. A virtual call for each request, none for each byte.
class Protocol {
 public:
  enum class Step : std::uint8_t {
    kMore,      // the request is not whole yet, and there is room for more of it in stream.in()
    kNothing,   // what has come was no part of a request; stream.in() is empty
    kAnswered,  // one request was taken, and its answer written
    kParked,    // one request was taken; its answer comes through Stream::way_back()
  };

  virtual ~Protocol() = default;
  // Takes the next request from stream.in(), which is not empty, and writes its answer to stream.out(), or
  // parks it. The next one is handled once this one is answered, so answers keep the order of requests. Where
  // the server drains, or the connection is over a limit, the stream says so, and the answer is the last one.
  virtual Step Handle(Stream& stream) = 0;
  // Whether a client may take its time before its first request, as it may between two. Else the first one
  // has as little time as a slow one: a silent connection takes a place from others.
  virtual bool may_begin_silent() const { return false; }
  // Whether the client learns from an answer that it is the connection's last one. Else a client that has
  // sent further requests waits for their answers: while the server drains, those that have come are
  // answered, too.
  virtual bool tells_of_the_end() const { return true; }
  // The request under way was too slow to arrive: writes what the client is told. The connection ends then.
  virtual void HandleTimeout(Stream& stream) = 0;
  // The listener speaks TLS only, and the client sent other bytes, which are in stream.in(). Writes an answer
  // without encryption, or nothing. The connection ends then.
  virtual void HandleNoTls(Stream& stream) { (void)stream; }
};

// Makes the protocol of each connection to a listener. Thread-safe; outlives the server.
class ProtocolFactory {
 public:
  virtual ~ProtocolFactory() = default;
  virtual std::unique_ptr<Protocol> Make(const Origin& origin) const = 0;
};

// The way from a parked request back to its connection. Any thread, as long as the server exists.
class WayBack {
 public:
  WayBack(Loop& loop, ConnectionId id) : loop_(&loop), id_(id) {}

  // Has `write` write the answer to the stream, on the connection's thread: at once if this is called while
  // the request is being handled there, else later, and then `answer` is moved. Dropped if the connection is
  // gone. Include loop.h for it.
  template <typename Answer>
  void Deliver(std::type_identity_t<Answer>&& answer, void (*write)(Stream& stream, Answer& answer)) const;
  Loop& loop() const { return *loop_; }

 private:
  Loop* loop_;
  ConnectionId id_;
};

// What a protocol sees of its connection.
class Stream {
 public:
  using Withdraw = std::function<void()>;

  Stream(const Origin& origin, std::unique_ptr<Protocol> protocol, const WayBack& way_back,
         const Clock& clock, const std::atomic<bool>& draining, RequestMetrics::Shard& metrics)
      : origin_(origin),
        protocol_(std::move(protocol)),
        way_back_(way_back),
        clock_(clock),
        draining_(draining),
        metrics_(metrics) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // What has come, and was not taken yet.
  ReadBuffer& in() { return in_; }
  // What is to be sent; answers are appended.
  std::string& out() { return out_; }
  // What follows out(). No request is handled until it is sent.
  void SendLong(std::unique_ptr<LongAnswer> answer) {
    LEAF_CHECK(!long_answer_);
    long_answer_ = std::move(answer);
  }

  // When the request under way was all there; of requests that came together, the first.
  MonotonicTime began_at() const { return began_at_; }
  // To be called before an answer is written: from then on is_last and answered_at hold for it.
  void BeginAnswer() {
    LEAF_CHECK(!long_answer_);
    if (draining_.load() && protocol_->tells_of_the_end()) is_last_ = true;
    is_answered_ = true;
    answered_any_ = true;
    answered_at_ = clock_.Monotonic();
  }
  bool is_answered() const { return is_answered_; }
  MonotonicTime answered_at() const { return answered_at_; }
  // The connection ends after the answer to the request under way.
  void EndAfterAnswer() { is_last_ = true; }
  bool is_last() const { return is_last_; }

  // The request under way is parked. `withdraw` gives it up, and has it answered, if there is anything to
  // give up; it is called on the connection's thread when the client is gone.
  void Park(Withdraw withdraw) { withdraw_ = std::move(withdraw); }
  const WayBack& way_back() const { return way_back_; }

  const Origin& origin() const { return origin_; }
  // The name in the certificate that the client has shown: its first DNS name, else its first URI, else its
  // first e-mail address. "" without TLS, and where no certificate is asked for.
  const std::string& client_name() const { return client_name_; }
  Protocol& protocol() { return *protocol_; }
  RequestMetrics::Shard& metrics() const { return metrics_; }

 protected:
  ~Stream() = default;

  MonotonicTime Now() const { return clock_.Monotonic(); }

  const Origin origin_;
  const std::unique_ptr<Protocol> protocol_;
  const WayBack way_back_;
  const Clock& clock_;
  const std::atomic<bool>& draining_;
  RequestMetrics::Shard& metrics_;
  ReadBuffer in_;
  std::string out_;
  std::unique_ptr<LongAnswer> long_answer_;
  Withdraw withdraw_;  // of a parked request
  std::string client_name_;
  bool is_answered_ = false;
  bool is_last_ = false;
  bool answered_any_ = false;
  MonotonicTime began_at_;
  MonotonicTime answered_at_;
};

}  // namespace leaf::server
