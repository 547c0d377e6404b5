#include "leaf/server/server.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_static_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "leaf/base/time.h"

namespace leaf::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr std::size_t kHeaderBytesMax = std::size_t{16} * 1024;
constexpr std::size_t kBodyBytesMax = std::size_t{64} * 1024;
// The parser needs a whole header line at a time; with this much room the header limit is always met first.
constexpr std::size_t kReadBytes = 2 * kHeaderBytesMax;
constexpr std::chrono::milliseconds kSweepInterval{250};
constexpr std::chrono::milliseconds kAcceptPause{50};
// How long a peer may take to close a connection that we have closed.
constexpr std::chrono::milliseconds kLingerTime{1000};
// How long a client that stopped sending while its request is parked is believed to be still there. Most have
// gone; some shut down one direction only, and a grant takes less than this where all is well.
constexpr std::chrono::milliseconds kHalfClosedTime{250};
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

class Worker;

// A connection as its worker sees it, whatever its transport. Lives, works and dies on the worker's thread:
// what other threads hold of it is its number.
class AnyConnection {
 public:
  virtual ~AnyConnection() = default;
  // Closes if its time is up.
  virtual void Sweep(MonotonicTime now) = 0;
  // Closes if no request is under way, else after its answer.
  virtual void BeginDrain() = 0;
  // The answer to the request under way.
  virtual void Answer(const Response& response) = 0;
};

// What the workers share.
struct Shared {
  const ServerOptions& options;
  const Router& router;
  const Clock& clock;
  Logger& log;
  std::atomic<std::size_t> connections{0};
  std::atomic<bool> draining{false};
  std::mutex mutex;
  std::condition_variable connection_closed;
  std::size_t workers_draining = 0;  // guarded by mutex: how many have emptied their queues
};

using ConnectionId = std::uint64_t;

// One thread with its own event loop. Connections stay with the worker that accepted them, and are its alone.
class Worker {
 public:
  explicit Worker(Shared& shared) : shared_(shared), loop_(1), sweep_timer_(loop_) {}

  void AddListener(const Listener& listener) {
    // A descriptor of its own for each worker; they share one socket and so one queue.
    const int fd = fcntl(listener.fd(), F_DUPFD_CLOEXEC, 0);
    LEAF_CHECK(fd >= 0);
    if (listener.is_unix()) {
      unix_acceptors_.emplace_back(loop_, asio::local::stream_protocol(), fd);
    } else {
      sockaddr_storage address{};
      socklen_t size = sizeof address;
      LEAF_CHECK(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
      tcp_acceptors_.emplace_back(
          loop_, address.ss_family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), fd);
    }
  }

  void Start() {
    for (auto& acceptor : tcp_acceptors_) Accept(acceptor);
    for (auto& acceptor : unix_acceptors_) Accept(acceptor);
    ScheduleSweep();
    thread_ = std::thread([this] { loop_.run(); });
    pthread_setname_np(thread_.native_handle(), "leaf-http");
  }

  void BeginDrain() {
    asio::post(loop_, [this] {
      // Who is in the queue was told that he is connected: he is still served.
      for (auto& acceptor : tcp_acceptors_) AcceptQueueAndClose(acceptor);
      for (auto& acceptor : unix_acceptors_) AcceptQueueAndClose(acceptor);
      for (const auto& connection : AllConnections()) connection->BeginDrain();
      const std::lock_guard lock(shared_.mutex);
      ++shared_.workers_draining;
      shared_.connection_closed.notify_all();
    });
  }

  void Stop() {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
    connections_.clear();  // the thread they belong to is gone, and nobody else ever had them
  }

  // On any thread, as long as the worker exists. An answer to a connection that is gone is dropped.
  void PostAnswer(ConnectionId id, Response response) {
    // At once if this is the worker's thread already; a parked request is answered from another.
    asio::dispatch(loop_, [this, id, answer = std::move(response)] {
      const auto found = connections_.find(id);
      if (found == connections_.end()) return;
      const std::shared_ptr<AnyConnection> connection = found->second;  // answering can close it
      connection->Answer(answer);
    });
  }

  Shared& shared() { return shared_; }

  // On this worker's thread.
  void Forget(ConnectionId id) { connections_.erase(id); }

  // The Date header, renewed once a second.
  std::string_view Date() {
    const auto now = std::chrono::floor<std::chrono::seconds>(shared_.clock.Wall());
    if (now != date_of_) {
      date_of_ = now;
      date_ = FormatHttpDate(now);
    }
    return date_;
  }

 private:
  template <typename Acceptor>
  void Accept(Acceptor& acceptor);

  template <typename Acceptor, typename Socket>
  void Serve(Socket socket);

  template <typename Acceptor>
  void AcceptQueueAndClose(Acceptor& acceptor) {
    error_code failed;
    acceptor.non_blocking(true, failed);
    while (!failed) {
      auto socket = acceptor.accept(failed);
      if (!failed) Serve<Acceptor>(std::move(socket));
    }
    acceptor.close(failed);
  }

  void ScheduleSweep() {
    sweep_timer_.expires_after(kSweepInterval);
    sweep_timer_.async_wait([this](error_code failed) {
      if (failed) return;
      const MonotonicTime now = shared_.clock.Monotonic();
      for (const auto& connection : AllConnections()) connection->Sweep(now);
      ScheduleSweep();
    });
  }

  // A copy, since closing a connection changes the table.
  std::vector<std::shared_ptr<AnyConnection>> AllConnections() const {
    std::vector<std::shared_ptr<AnyConnection>> all;
    all.reserve(connections_.size());
    for (const auto& [id, connection] : connections_) all.push_back(connection);
    return all;
  }

  Shared& shared_;
  asio::io_context loop_;
  std::unordered_map<ConnectionId, std::shared_ptr<AnyConnection>> connections_;
  ConnectionId next_id_ = 0;
  asio::steady_timer sweep_timer_;
  std::vector<asio::ip::tcp::acceptor> tcp_acceptors_;
  std::vector<asio::local::stream_protocol::acceptor> unix_acceptors_;
  std::chrono::sys_seconds date_of_{};
  std::string date_;
  std::thread thread_;
};

// Everything but the constructor runs on the worker's thread.
template <typename Socket>
class Connection final : public AnyConnection, public std::enable_shared_from_this<Connection<Socket>> {
 public:
  Connection(Worker& worker, ConnectionId id, Socket socket)
      : worker_(worker), id_(id), socket_(std::move(socket)) {}

  ~Connection() override {
    Shared& shared = worker_.shared();
    if (shared.connections.fetch_sub(1) == 1 && shared.draining.load()) {
      const std::lock_guard lock(shared.mutex);
      shared.connection_closed.notify_all();
    }
  }

  void Start() {
    NextRequest();
    Advance();
  }

  void Sweep(MonotonicTime now) override {
    if (now < deadline_) return;
    if (awaits_answer_) return GiveUp();
    Close();
  }

  void BeginDrain() override {
    if (state_ == State::kIdle) LeaveIdle();
  }

  void Answer(const Response& response) override {
    if (!awaits_answer_) return;
    awaits_answer_ = false;
    withdraw_ = nullptr;
    if (watches_peer_) {
      error_code ignored;
      socket_.cancel(ignored);
    }
    Write(response);
  }

 private:
  enum class State { kIdle, kReading, kAnswering };

  void NextRequest() {
    parser_.emplace();
    parser_->eager(true);
    parser_->header_limit(kHeaderBytesMax);
    parser_->body_limit(kBodyBytesMax);
    header_seen_ = false;
    state_ = State::kIdle;
    deadline_ = Now() + worker_.shared().options.idle_timeout;
  }

  // While draining: an idle connection is closed, but not one whose first request, or next one, is on its
  // way.
  void LeaveIdle() {
    error_code ignored;
    const bool waits_for_first = !answered_any_;
    if (!waits_for_first && socket_.available(ignored) == 0) return Close();
    deadline_ = std::min(deadline_, Now() + kLingerTime);
  }

  // Feeds the parser what is in the buffer; reads more, or handles the request once it is whole.
  void Advance() {
    if (worker_.shared().draining.load() && state_ == State::kIdle && buffer_.size() == 0) LeaveIdle();
    if (!socket_.is_open()) return;
    error_code failed;
    while (buffer_.size() > 0 && !parser_->is_done()) {
      if (state_ == State::kIdle) {
        state_ = State::kReading;
        deadline_ = Now() + worker_.shared().options.header_timeout;
      }
      const std::size_t used = parser_->put(buffer_.data(), failed);
      buffer_.consume(used);
      if (failed == http::error::need_more) {
        failed = {};
        break;
      }
      if (failed) return RefuseBroken(failed);
    }
    if (parser_->is_header_done() && !header_seen_) {
      header_seen_ = true;
      if (!CheckHeader()) return;
    }
    if (parser_->is_done()) return HandleRequest();
    if (buffer_.size() == buffer_.max_size()) return RefuseBroken(http::error::header_limit);
    socket_.async_read_some(buffer_.prepare(buffer_.max_size() - buffer_.size()),
                            [self = this->shared_from_this()](error_code read_failed, std::size_t bytes) {
                              if (read_failed) return self->Close();
                              self->buffer_.commit(bytes);
                              self->Advance();
                            });
  }

  // Once a request's header is whole; false if that ended the request.
  bool CheckHeader() {
    const auto& message = parser_->get();
    // A body whose length nobody can tell would be taken for the next request (RFC 9112, 6.3).
    if (message.find(http::field::transfer_encoding) != message.end() && !message.chunked()) {
      Refuse(501, "this Transfer-Encoding is not known here");
      return false;
    }
    if (!parser_->is_done() && boost::beast::iequals(message[http::field::expect], "100-continue")) {
      // Not waited for: the client goes on without it after a moment, and the answer must not meet it half
      // written.
      error_code ignored;
      socket_.non_blocking(true, ignored);
      socket_.write_some(asio::buffer(kContinue), ignored);
    }
    return true;
  }

  void HandleRequest() {
    state_ = State::kAnswering;
    deadline_ = MonotonicTime::max();  // the service has deadlines of its own
    const auto& message = parser_->get();
    keep_alive_ = message.keep_alive();
    say_keep_alive_ = message.version() < 11;
    head_ = message.method() == http::verb::head;
    const auto method = message.method_string();
    const auto target = message.target();
    const auto accept = message[http::field::accept];
    const Request request{.method = {method.data(), method.size()},
                          .target = {target.data(), target.size()},
                          .accept = {accept.data(), accept.size()}};
    awaits_answer_ = true;
    auto withdraw = worker_.shared().router.Handle(request, [worker = &worker_, id = id_](Response response) {
      worker->PostAnswer(id, std::move(response));
    });
    if (!awaits_answer_ || !withdraw) return;
    withdraw_ = std::move(withdraw);
    WatchPeer();
  }

  // While a request is parked: whoever hangs up wants no answer any more. What else arrives meanwhile are
  // further requests; they are read, so that a hang-up behind them is seen, as long as there is room.
  void WatchPeer() {
    if (buffer_.size() == buffer_.max_size()) return;
    watches_peer_ = true;
    socket_.async_wait(Socket::wait_read, [self = this->shared_from_this()](error_code failed) {
      self->watches_peer_ = false;
      if (failed || !self->awaits_answer_) return;
      self->socket_.non_blocking(true, failed);
      if (!failed) {
        const auto room = self->buffer_.prepare(self->buffer_.max_size() - self->buffer_.size());
        self->buffer_.commit(self->socket_.read_some(room, failed));
      }
      if (!failed || failed == asio::error::would_block) return self->WatchPeer();
      if (failed != asio::error::eof) return self->GiveUp();
      self->deadline_ = self->Now() + kHalfClosedTime;
    });
  }

  // The parked request is waited for no longer. Its answer is an error, should anybody be there to read it.
  void GiveUp() {
    keep_alive_ = false;
    const auto withdraw = std::move(withdraw_);
    if (withdraw) withdraw();
  }

  void RefuseBroken(error_code why) {
    const bool header_too_large = why == http::error::header_limit || why == http::error::buffer_overflow;
    Refuse(why == http::error::body_limit ? 413 : header_too_large ? 431 : 400, why.message());
  }

  // Answers what is no request, and ends the connection: nobody knows where the next one would begin.
  void Refuse(int status, const std::string& why) {
    state_ = State::kAnswering;
    keep_alive_ = false;
    head_ = false;
    Response response;
    response.status = status;
    response.content_type = kPlainText;
    response.body = why + "\n";
    Write(response);
  }

  void Write(const Response& response) {
    if (worker_.shared().draining.load()) keep_alive_ = false;
    answered_any_ = true;
    out_ = Render(response,
                  !keep_alive_      ? Persistence::kClose
                  : say_keep_alive_ ? Persistence::kKeepAlive
                                    : Persistence::kDefault,
                  head_, worker_.Date());
    deadline_ = Now() + worker_.shared().options.header_timeout;
    asio::async_write(socket_, asio::buffer(out_),
                      [self = this->shared_from_this()](error_code failed, std::size_t) {
                        if (failed) return self->Close();
                        if (!self->keep_alive_) return self->FinishAndClose();
                        self->NextRequest();
                        self->Advance();
                      });
  }

  // Lets the peer read the answer: closing with unread input would reset the connection.
  void FinishAndClose() {
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    deadline_ = Now() + kLingerTime;
    buffer_.clear();
    DiscardInput();
  }

  void DiscardInput() {
    socket_.async_read_some(buffer_.prepare(buffer_.max_size()),
                            [self = this->shared_from_this()](error_code failed, std::size_t) {
                              if (failed) return self->Close();
                              self->DiscardInput();
                            });
  }

  void Close() {
    error_code ignored;
    socket_.close(ignored);  // pending operations end with an error and let go of this object
    worker_.Forget(id_);
  }

  MonotonicTime Now() const { return worker_.shared().clock.Monotonic(); }

  Worker& worker_;
  const ConnectionId id_;
  Socket socket_;
  State state_ = State::kIdle;
  bool awaits_answer_ = false;
  bool watches_peer_ = false;
  Router::Withdraw withdraw_;  // of a parked request
  MonotonicTime deadline_ = MonotonicTime::max();
  boost::beast::flat_static_buffer<kReadBytes> buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  bool header_seen_ = false;
  bool keep_alive_ = false;
  bool say_keep_alive_ = false;
  bool head_ = false;
  bool answered_any_ = false;
  std::string out_;
};

template <typename Acceptor>
void Worker::Accept(Acceptor& acceptor) {
  acceptor.async_accept([this, &acceptor](error_code failed, auto socket) {
    if (failed && !acceptor.is_open()) return;
    if (failed) {
      // Out of descriptors: the queue stays as it is, and trying at once would spin.
      const auto pause = std::make_shared<asio::steady_timer>(loop_, kAcceptPause);
      pause->async_wait([this, pause, &acceptor](error_code) {
        if (acceptor.is_open()) Accept(acceptor);
      });
      return;
    }
    Serve<Acceptor>(std::move(socket));
    if (acceptor.is_open()) Accept(acceptor);
  });
}

template <typename Acceptor, typename Socket>
void Worker::Serve(Socket socket) {
  if (shared_.connections.fetch_add(1) >= shared_.options.max_connections) {
    shared_.connections.fetch_sub(1);  // over the limit: closed at once
    return;
  }
  if constexpr (std::is_same_v<typename Acceptor::protocol_type, asio::ip::tcp>) {
    error_code ignored;
    socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  }
  const ConnectionId id = next_id_++;
  const auto connection = std::make_shared<Connection<Socket>>(*this, id, std::move(socket));
  connections_.emplace(id, connection);
  connection->Start();
}

}  // namespace

class Server::Impl {
 public:
  Impl(const ServerOptions& options, const Router& router, std::vector<Listener> listeners,
       const Clock& clock, Logger& log)
      : options_(options),
        listeners_(std::move(listeners)),
        shared_{.options = options_,
                .router = router,
                .clock = clock,
                .log = log,
                .mutex = {},
                .connection_closed = {}} {
    for (std::size_t i = 0; i < options_.threads; ++i) {
      workers_.push_back(std::make_unique<Worker>(shared_));
      for (const Listener& listener : listeners_) workers_.back()->AddListener(listener);
    }
  }

  void Start() {
    for (const auto& worker : workers_) worker->Start();
  }

  std::size_t Drain(std::chrono::milliseconds timeout) {
    shared_.draining.store(true);
    for (const auto& worker : workers_) worker->BeginDrain();
    // The workers' own descriptors of the sockets follow; with the last one the port refuses.
    listeners_.clear();
    {
      std::unique_lock lock(shared_.mutex);
      shared_.connection_closed.wait_for(lock, timeout, [&] {
        return shared_.workers_draining == workers_.size() && shared_.connections.load() == 0;
      });
    }
    const std::size_t left = shared_.connections.load();
    for (const auto& worker : workers_) worker->Stop();
    return left;
  }

 private:
  const ServerOptions options_;
  std::vector<Listener> listeners_;
  Shared shared_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

Server::Server(const ServerOptions& options, const Router& router, std::vector<Listener> listeners,
               const Clock& clock, Logger& log)
    : impl_(std::make_unique<Impl>(options, router, std::move(listeners), clock, log)) {}

Server::~Server() { impl_->Drain(std::chrono::milliseconds{0}); }

void Server::Start() { impl_->Start(); }

std::size_t Server::Drain(std::chrono::milliseconds timeout) { return impl_->Drain(timeout); }

}  // namespace leaf::server
