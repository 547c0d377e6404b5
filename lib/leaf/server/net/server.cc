#include "leaf/server/net/server.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "leaf/base/time.h"
#include "leaf/server/http/request_reader.h"
#include "leaf/server/net/address_counts.h"
#include "leaf/server/net/deadline_queue.h"
#include "leaf/server/net/high_water.h"
#include "leaf/server/net/unread_bytes.h"

namespace leaf::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// The loop is known to whoever works on it: nothing has to be asked of it through a table.
using LoopExecutor = asio::io_context::executor_type;
using TcpAcceptor = asio::basic_socket_acceptor<asio::ip::tcp, LoopExecutor>;
using UnixAcceptor = asio::basic_socket_acceptor<asio::local::stream_protocol, LoopExecutor>;

constexpr std::chrono::milliseconds kSweepInterval{250};
constexpr std::chrono::milliseconds kAcceptPause{50};
// How long a peer may take to close a connection that we have closed.
constexpr std::chrono::milliseconds kLingerTime{1000};
// How long a client that stopped sending while its request is parked is believed to be still there. Most have
// gone; some shut down one direction only, and a grant takes less than this where all is well.
constexpr std::chrono::milliseconds kHalfClosedTime{250};
// Connections beyond max_connections whose first request is still read, to be answered with 503 unless it is
// a watcher's: so many over all workers, and each new one beyond takes the place of an old one. And how long
// they may take to send it.
constexpr std::size_t kSurplusMax = 128;
constexpr std::chrono::milliseconds kSurplusTime{1000};
// The log tells of connections over a limit once in so long.
constexpr std::chrono::minutes kRefusalsTold{1};
constexpr std::string_view kTooMany = "this server has too many connections";
constexpr std::string_view kTooManyFromAddress = "this address has too many connections";
constexpr std::string_view kOtherHost =
    "the Host field names another machine; if clients know this one by that name, add it to "
    "server.allowed_hosts";
constexpr std::string_view kOtherHostJson =
    R"({"code":"refused","message":"the Host field names another machine",)"
    R"("hint":"if clients know this server by that name, add it to server.allowed_hosts"})";
// A large answer is sent in pieces of this size, and other connections of the loop have their turn between
// two. It takes some 50 us to write one out and send it.
constexpr std::size_t kPieceBytes = std::size_t{32} * 1024;
// So much waits in the kernel for a client to read. Without it that would be megabytes for each connection;
// what is on its way does not count, so that a distant client that reads gets its answer no later.
constexpr int kKernelBytes = 32 * 1024;
// So much of answers is sent before further requests are looked at that have arrived.
constexpr std::size_t kGatherBytes = std::size_t{4} * 1024;
// How long a Date header is good without a look at the clock.
constexpr std::chrono::milliseconds kDateTime{100};
// Of memory that a connection takes up once its client has sent a long request.
constexpr std::size_t kConnectionBytes = sizeof(ReadBuffer);
constexpr std::uint32_t kRetrySeconds = 1;
constexpr std::string_view kTooManyUnread = "this server has too many answers that clients do not read\n";
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// Nothing if the client has gone already.
std::optional<ClientAddress> PeerOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  return ClientAddressOf(address);
}

// Of a large answer that is in memory.
std::size_t BytesHeldBy(const Response& response) {
  return response.ids ? response.ids->held_bytes() : response.body.capacity();
}

// What the client, or its kernel, has not taken of what was written to its socket.
std::int64_t BytesNotTaken(int fd) {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

class Worker;

// A connection as its worker sees it, whatever its transport. Lives, works and dies on the worker's thread:
// what other threads hold of it is its number.
class AnyConnection {
 public:
  virtual ~AnyConnection() = default;
  // Its deadline has passed.
  virtual void TimeOut(MonotonicTime now) = 0;
  // Closes if no request is under way, else after its answer.
  virtual void BeginDrain() = 0;
  // The answer to the request under way.
  virtual void Answer(Response& response) = 0;
  // Sends what there is room for, and a piece of a large answer at most.
  virtual void TakeTurn() = 0;
  virtual void Close() = 0;
};

// Tells the log of connections over a limit: of the first at once, and of those since now and then.
class RefusalLog {
 public:
  // `limit`: the setting.
  RefusalLog(Logger& log, std::string_view limit) : log_(log), limit_(limit) {}
  // The rest.
  ~RefusalLog() {
    if (untold_ > 0) Tell();
  }
  RefusalLog(const RefusalLog&) = delete;
  RefusalLog& operator=(const RefusalLog&) = delete;

  void Count(MonotonicTime now) {
    const std::lock_guard lock(mutex_);
    ++untold_;
    TellIfDue(now);
  }
  // Now and then.
  void Look(MonotonicTime now) {
    const std::lock_guard lock(mutex_);
    if (untold_ > 0) TellIfDue(now);
  }

 private:
  void TellIfDue(MonotonicTime now) {
    if (told_ && now - *told_ < kRefusalsTold) return;
    told_ = now;
    Tell();
  }
  void Tell() {
    log_.Warning("{} connection{} over {}", untold_, untold_ == 1 ? "" : "s", limit_);
    untold_ = 0;
  }

  Logger& log_;
  const std::string_view limit_;
  std::mutex mutex_;
  std::size_t untold_ = 0;             // guarded by mutex_, like what follows
  std::optional<MonotonicTime> told_;  // the last line
};

// Gives memory back to the system when clients that took up much of it have gone: the C library would keep
// it.
//
// It waits until no more of them go: memory between clients that still are there cannot be given back, and
// too little may be left of it to look again.
class MemoryReturn {
 public:
  // Now and then. `held`: what clients take up, about; `most`: the same at its highest since the last return,
  // for many clients may come and go between two looks. Returns whether memory was given back.
  bool Look(MonotonicTime now, std::size_t held, std::size_t most) {
    const std::lock_guard lock(mutex_);
    if (now - looked_at_ < kSweepInterval) return false;  // another worker did
    looked_at_ = now;
    const bool they_go = held < std::exchange(held_, held);
    // Seldom, since it keeps threads that need memory waiting for some milliseconds.
    if (they_go || most < kMuch || held > most / 4 || now - returned_at_ < kReturnInterval) return false;
    returned_at_ = now;
    malloc_trim(0);
    return true;
  }

 private:
  static constexpr std::size_t kMuch = std::size_t{4} * 1024 * 1024;
  static constexpr std::chrono::seconds kReturnInterval{2};

  std::mutex mutex_;
  // Guarded by mutex_:
  MonotonicTime looked_at_;
  MonotonicTime returned_at_;
  std::size_t held_ = 0;  // at the last look
};

// What the workers share.
struct Shared {
  std::atomic<std::size_t> max_connections{0};
  std::atomic<std::size_t> max_connections_per_address{0};
  std::atomic<std::chrono::milliseconds> header_timeout{};
  std::atomic<std::chrono::milliseconds> idle_timeout{};
  const Router& router;
  const Clock& clock;
  const AllowedHosts hosts;
  RefusalLog refusals;          // over all
  RefusalLog address_refusals;  // of one address
  AddressCounts addresses;      // while there is a limit for one
  MemoryReturn memory;
  std::atomic<std::size_t> connections{0};
  HighWater most_connections{};  // since memory was given back
  // Of connections: those within max_connections. This one word decides on a place: two that are compared,
  // while other workers move them, let in one too many.
  std::atomic<std::size_t> admitted{0};
  std::atomic<bool> draining{false};
  std::mutex mutex;
  std::condition_variable connection_closed;
  std::size_t workers_draining = 0;  // guarded by mutex: how many have emptied their queues
};

using ConnectionId = std::uint64_t;

// One thread with its own event loop. Connections stay with the worker that accepted them, and are its alone.
class Worker {
 public:
  // `surplus_max`: how many connections beyond max_connections it has at most.
  Worker(Shared& shared, RequestMetrics::Shard& metrics, std::size_t surplus_max)
      : shared_(shared),
        metrics_(metrics),
        surplus_max_(surplus_max),
        loop_(BOOST_ASIO_CONCURRENCY_HINT_UNSAFE_IO),
        sweep_timer_(loop_) {}

  void AddListener(const Listener& listener) {
    // A descriptor of its own for each worker; they share one socket and so one queue.
    const int fd = fcntl(listener.fd(), F_DUPFD_CLOEXEC, 0);
    LEAF_CHECK(fd >= 0);
    const bool passed = listener.is_passed();
    if (listener.is_unix()) {
      unix_acceptors_.push_back({{loop_, asio::local::stream_protocol(), fd}, passed, false});
    } else {
      sockaddr_storage address{};
      socklen_t size = sizeof address;
      LEAF_CHECK(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
      tcp_acceptors_.push_back(
          {{loop_, address.ss_family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), fd},
           passed,
           shared_.hosts.ChecksListener(!listener.is_reachable_from_elsewhere())});
    }
  }

  void Start() {
    for (auto& acceptor : tcp_acceptors_) Accept(acceptor);
    for (auto& acceptor : unix_acceptors_) Accept(acceptor);
    ScheduleSweep();
    thread_ = std::thread([this] {
      current_ = this;
      loop_.run();
    });
    pthread_setname_np(thread_.native_handle(), "leaf-http");
  }

  void BeginDrain() {
    asio::post(loop_, [this] {
      for (auto& acceptor : tcp_acceptors_) StopAccepting(acceptor);
      for (auto& acceptor : unix_acceptors_) StopAccepting(acceptor);
      for (const auto& connection : AllConnections()) connection->BeginDrain();
      // Whom the loop has accepted already, but not come to, is counted first.
      asio::post(loop_, [this] {
        const std::lock_guard lock(shared_.mutex);
        ++shared_.workers_draining;
        shared_.connection_closed.notify_all();
      });
    });
  }

  // On any thread.
  void Post(std::function<void()> task) { asio::post(loop_, std::move(task)); }

  void Stop() {
    loop_.stop();
    if (thread_.joinable()) thread_.join();
    connections_.clear();  // the thread they belong to is gone, and nobody else ever had them
  }

  // On any thread, as long as the worker exists. An answer to a connection that is gone is dropped.
  void PostAnswer(ConnectionId id, Response response) {
    if (response.is_large()) Count(response);
    const bool handling = current_ == this && handled_ != nullptr;
    if (handling && handled_id_ == id) return handled_->Answer(response);
    auto deliver = [this, id, answer = std::move(response)]() mutable {
      const auto found = connections_.find(id);
      if (found == connections_.end()) return;
      const std::shared_ptr<AnyConnection> connection = found->second;  // answering can close it
      connection->Answer(answer);
    };
    // Another one's answer waits until this request is done with, since its connection goes on to its next.
    if (handling) return asio::post(loop_, std::move(deliver));
    // At once if this is the worker's thread already; a parked request is answered from another.
    asio::dispatch(loop_, std::move(deliver));
  }

  Shared& shared() { return shared_; }
  RequestMetrics::Shard& metrics() { return metrics_; }

  // On this worker's thread.
  DeadlineQueue& deadlines() { return deadlines_; }
  void Forget(ConnectionId id) {
    connections_.erase(id);
    surplus_.erase(id);
  }
  // Of a connection beyond max_connections.
  void SetSurplusAnswering(ConnectionId id, bool answering) {
    if (const auto found = surplus_.find(id); found != surplus_.end()) found->second = answering;
  }
  // The connection's TakeTurn is called once those had theirs that wait already. One turn for each round of
  // the loop: requests that have arrived meanwhile never wait for more than one piece of large answers.
  void AwaitTurn(ConnectionId id) {
    turns_.push_back(id);
    if (turns_.size() == 1) PostTurn();
  }
  // Where a piece is written out. Good up to the end of the turn.
  std::string& piece() { return piece_; }

  // The Date header.
  std::string_view Date(MonotonicTime now) {
    if (date_.empty() || now - date_at_ >= kDateTime) {
      date_at_ = now;
      date_ = FormatHttpDate(std::chrono::floor<std::chrono::seconds>(shared_.clock.Wall()));
    }
    return date_;
  }

  // Lets the router handle a request of a connection. If it is answered before this returns, that costs
  // nothing but the call.
  Withdraw Handle(const Request& request, ConnectionId id, AnyConnection& connection, Route& route) {
    LEAF_CHECK(handled_ == nullptr);
    handled_ = &connection;
    handled_id_ = id;
    auto withdraw = shared_.router.Handle(
        request, [this, id](Response response) { PostAnswer(id, std::move(response)); }, &route);
    handled_ = nullptr;
    return withdraw;
  }

 private:
  // A large answer counts until it is sent, or given up; one too many becomes an error. What was taken for it
  // is lost: the router refuses most of them before that.
  void Count(Response& response) {
    if (response.held) return;
    UnreadAnswers& unread = shared_.router.unread();
    response.held = (response.ids ? unread.batches : unread.reports).Hold(BytesHeldBy(response));
    if (response.held) return;
    response = Response{};
    response.status = 503;
    response.content_type = kPlainText;
    response.body = kTooManyUnread;
    response.retry_after_s = kRetrySeconds;
  }

  void PostTurn() {
    asio::post(loop_, [this] {
      const ConnectionId id = turns_.front();
      turns_.pop_front();
      if (!turns_.empty()) PostTurn();
      const auto found = connections_.find(id);
      if (found == connections_.end()) return;
      const std::shared_ptr<AnyConnection> connection = found->second;  // it may close
      connection->TakeTurn();
    });
  }

  template <typename Acceptor>
  struct Accepting {
    Acceptor socket;
    bool is_passed = false;
    bool checks_host = false;
  };

  template <typename Acceptor>
  void Accept(Accepting<Acceptor>& accepting);

  template <typename Acceptor, typename Socket>
  void Serve(const Accepting<Acceptor>& accepting, Socket socket);

  // "" if there is a place for one more connection, which is taken; else why there is none. `address`: of a
  // client that may have `address_max` connections.
  std::string_view TakePlace(bool local, const std::optional<ClientAddress>& address,
                             std::size_t address_max);

  // For one more connection beyond max_connections. A flood of them must not keep out those that watch the
  // server: the oldest that is not being answered goes, or else the oldest.
  void TakeSurplusPlace(ConnectionId id);

  template <typename Acceptor>
  void StopAccepting(Accepting<Acceptor>& accepting) {
    error_code failed;
    // Who is in the queue was told that he is connected: he is still served, unless the queue goes on without
    // us.
    if (!accepting.is_passed) accepting.socket.non_blocking(true, failed);
    while (!accepting.is_passed && !failed) {
      auto socket = accepting.socket.accept(failed);
      if (!failed) Serve(accepting, std::move(socket));
    }
    accepting.socket.close(failed);
  }

  void ScheduleSweep() {
    sweep_timer_.expires_after(kSweepInterval);
    sweep_timer_.async_wait([this](error_code failed) {
      if (failed) return;
      const MonotonicTime now = shared_.clock.Monotonic();
      for (const ConnectionId id : deadlines_.TakeDue(now)) {
        const auto found = connections_.find(id);
        if (found == connections_.end()) continue;
        const std::shared_ptr<AnyConnection> connection = found->second;  // it may close
        connection->TimeOut(now);
      }
      shared_.refusals.Look(now);
      shared_.address_refusals.Look(now);
      ReturnMemory(now);
      ScheduleSweep();
    });
  }

  void ReturnMemory(MonotonicTime now) {
    UnreadAnswers& unread = shared_.router.unread();
    const std::size_t connections = shared_.connections.load();
    const std::size_t held = connections * kConnectionBytes + unread.reports_held();
    // A crowd may have come while the highest levels were reset.
    shared_.most_connections.Rise(connections);
    unread.RiseMostHeld();
    const std::size_t most = shared_.most_connections.level() * kConnectionBytes + unread.reports_most_held();
    if (!shared_.memory.Look(now, held, most)) return;
    shared_.most_connections.Reset(connections);
    unread.ForgetMostHeld();
  }

  // A copy, since closing a connection changes the table.
  std::vector<std::shared_ptr<AnyConnection>> AllConnections() const {
    std::vector<std::shared_ptr<AnyConnection>> all;
    all.reserve(connections_.size());
    for (const auto& [id, connection] : connections_) all.push_back(connection);
    return all;
  }

  Shared& shared_;
  RequestMetrics::Shard& metrics_;
  const std::size_t surplus_max_;
  DeadlineQueue deadlines_;  // before the loop, whose handlers hold connections
  asio::io_context loop_;
  std::unordered_map<ConnectionId, std::shared_ptr<AnyConnection>> connections_;
  // Those beyond max_connections, the oldest first, and whether each is being answered.
  std::map<ConnectionId, bool> surplus_;
  ConnectionId next_id_ = 0;
  std::deque<ConnectionId> turns_;  // while it is not empty a turn is posted
  std::string piece_;
  asio::steady_timer sweep_timer_;
  std::vector<Accepting<TcpAcceptor>> tcp_acceptors_;
  std::vector<Accepting<UnixAcceptor>> unix_acceptors_;
  AnyConnection* handled_ = nullptr;  // by Handle, at this moment
  ConnectionId handled_id_ = 0;
  MonotonicTime date_at_;
  std::string date_;
  std::thread thread_;
  // Whose thread this is.
  static thread_local Worker* current_;
};

thread_local Worker* Worker::current_ = nullptr;

// Everything but the constructor runs on the worker's thread.
//
// Requests that arrive together are answered together: their answers gather in out_, and leave before the
// connection reads again, waits for an answer from elsewhere, or ends, or once they are kGatherBytes. A large
// answer stays what it is until it is sent, and no further request is looked at before that: a client that
// does not read holds a few hundred bytes of a batch, whatever its size, and no more than one report.
template <typename Socket>
class Connection final : public AnyConnection, public std::enable_shared_from_this<Connection<Socket>> {
 public:
  struct Admission {
    // Unless empty: the connection is over a limit, and its request is refused for this reason.
    std::string_view refusal;
    std::optional<ClientAddress> address;  // of the client, if it was counted
    bool local = false;                    // it came over a Unix socket
    bool checks_host = false;
  };

  Connection(Worker& worker, ConnectionId id, Socket socket, const Admission& admission)
      : worker_(worker),
        id_(id),
        admission_(admission),
        deadline_(worker.deadlines(), id),
        socket_(std::move(socket)) {
    // What the kernel has room for is sent without waiting to be told so.
    error_code failed;
    socket_.non_blocking(true, failed);
  }

  ~Connection() override {
    worker_.metrics().CountClosed();
    Shared& shared = worker_.shared();
    if (!is_surplus()) shared.admitted.fetch_sub(1);
    if (admission_.address) shared.addresses.Remove(*admission_.address);
    if (shared.connections.fetch_sub(1) == 1 && shared.draining.load()) {
      const std::lock_guard lock(shared.mutex);
      shared.connection_closed.notify_all();
    }
  }

  void Start() {
    const MonotonicTime now = Now();
    BeIdle(now);
    // A silent connection takes a place from others, so the first request has as little time as a slow one.
    deadline_.Set(std::min(deadline_.deadline(), now + worker_.shared().header_timeout.load()));
    Advance();
  }

  void TimeOut(MonotonicTime now) override {
    if (is_sending_) {
      // A slow client goes on as long as it takes anything at all.
      if (!NoteTaken()) return Abort();
      return deadline_.Set(now + worker_.shared().header_timeout.load());
    }
    if (awaits_answer_) return GiveUp();
    if (state_ != State::kReading || timed_out_) return Close();
    // Whoever sends a request too slowly is told so, once the read under way has ended: there is one reader.
    timed_out_ = true;
    deadline_.Set(now + kLingerTime);
    error_code ignored;
    socket_.cancel(ignored);
  }

  void Close() override {
    error_code ignored;
    socket_.close(ignored);  // pending operations end with an error and let go of this object
    deadline_.Set(DeadlineQueue::kNever);
    worker_.Forget(id_);
    GiveUp();
  }

  void BeginDrain() override {
    if (state_ == State::kIdle && !is_sending_) LeaveIdle();
  }

  void Answer(Response& response) override {
    if (!awaits_answer_) return;
    awaits_answer_ = false;
    Write(response);
    if (is_handling_) return;  // whoever handles the request goes on
    withdraw_ = nullptr;
    // Once: cancel() ends every wait of the socket, and a wait for room may begin before the handler of this
    // one runs.
    if (std::exchange(watches_peer_, false)) {
      error_code ignored;
      socket_.cancel(ignored);
    }
    if (EndRequest()) Advance();
  }

  void TakeTurn() override {
    if (!socket_.is_open()) return;
    const std::string_view piece = NextPiece();
    const std::size_t wanted = out_.size() + piece.size();
    const std::array<asio::const_buffer, 2> buffers{asio::buffer(out_), asio::buffer(piece)};
    error_code failed;
    const std::size_t sent = socket_.write_some(buffers, failed);
    if (failed && failed != asio::error::would_block) return Close();
    Drop(sent);
    if (out_.empty() && !large_) return Sent();
    if (sent == wanted) return worker_.AwaitTurn(id_);
    AwaitRoom(sent > 0);
  }

 private:
  enum class State { kIdle, kReading, kAnswering };

  void BeIdle(MonotonicTime now) {
    state_ = State::kIdle;
    idle_since_ = now;
    deadline_.Set(now + (is_surplus() ? kSurplusTime : worker_.shared().idle_timeout.load()));
  }

  // While draining: an idle connection is closed, but not one whose first request, or next one, is on its
  // way: whoever got an answer a moment ago may be sending already, and is told to go elsewhere with the next
  // answer.
  void LeaveIdle() {
    error_code ignored;
    const MonotonicTime now = Now();
    const bool asks_often = now - idle_since_ < kLingerTime;
    if (answered_any_ && !asks_often && socket_.available(ignored) == 0) return Close();
    deadline_.Set(
        std::min(deadline_.deadline(), (answered_any_ && asks_often ? idle_since_ : now) + kLingerTime));
  }

  // Handles the requests that are in the buffer, one after the other; then sends the answers, and reads more.
  void Advance() {
    while (buffer_.size() > 0) {
      if (state_ == State::kIdle) {
        state_ = State::kReading;
        came_in_pieces_ = false;
        // Of requests that came together the first one's time is that of all.
        if (out_.empty()) began_at_ = Now();
        deadline_.Set(is_surplus() ? idle_since_ + kSurplusTime
                                   : began_at_ + worker_.shared().header_timeout.load());
      }
      const RequestReader::Outcome outcome = reader_.Read(buffer_);
      if (outcome == RequestReader::Outcome::kBroken) {
        Refuse(reader_.status(), reader_.why());
        return FinishAndClose();
      }
      if (outcome == RequestReader::Outcome::kContinue) {
        // Not waited for: the client goes on without it after a moment, and the answer must not meet it half
        // written.
        error_code ignored;
        if (Flush()) socket_.write_some(asio::buffer(kContinue), ignored);
      }
      if (outcome != RequestReader::Outcome::kRequest) break;
      if (!HandleRequest()) return;
    }
    if (!Flush()) return;
    if (state_ == State::kIdle && worker_.shared().draining.load()) LeaveIdle();
    if (socket_.is_open()) ReadMore();
  }

  void ReadMore() {
    came_in_pieces_ = state_ == State::kReading;
    socket_.async_read_some(buffer_.prepare(buffer_.max_size() - buffer_.size()),
                            [self = this->shared_from_this()](error_code failed, std::size_t bytes) {
                              if (self->timed_out_ && self->socket_.is_open()) {
                                self->Refuse(408, "the request took too long to arrive");
                                return self->FinishAndClose();
                              }
                              if (failed) return self->Close();
                              self->buffer_.commit(bytes);
                              self->Advance();
                            });
  }

  // True if it is answered, and the next one may follow at once.
  bool HandleRequest() {
    BeginAnswer();
    // How long a client takes to send its request is not the server's time.
    if (came_in_pieces_) began_at_ = Now();
    const ReceivedRequest& received = reader_.request();
    keep_alive_ = received.keep_alive;
    say_keep_alive_ = received.says_keep_alive;
    head_ = received.is_head;
    if (is_surplus() && !IsForWatchers(received.target)) {
      Refuse(503, admission_.refusal, kRetrySeconds);
      FinishAndClose();
      return false;
    }
    if (is_surplus()) keep_alive_ = false;
    if (!IsHostAllowed(received.host)) {
      Refuse(421, kOtherHost, std::nullopt, received.target.starts_with("/v1/") ? kOtherHostJson : "");
      FinishAndClose();
      return false;
    }
    const Request request{.method = received.method,
                          .target = received.target,
                          .accept = received.accept,
                          .accept_language = received.accept_language,
                          .form = received.form,
                          .from_operator = admission_.local && received.is_post_without_origin,
                          .is_local = admission_.local};
    awaits_answer_ = true;
    is_handling_ = true;
    auto withdraw = worker_.Handle(request, id_, *this, route_);
    is_handling_ = false;
    reader_.Release(buffer_);
    if (!awaits_answer_) return EndRequest();
    deadline_.Set(DeadlineQueue::kNever);  // the service has deadlines of its own
    withdraw_ = std::move(withdraw);
    if (Flush() && withdraw_) WatchPeer();
    return false;
  }

  void BeginAnswer() {
    state_ = State::kAnswering;
    if (is_surplus()) worker_.SetSurplusAnswering(id_, true);
  }

  // After the answer. True if the next request may follow at once.
  bool EndRequest() {
    if (is_sending_) deadline_.Set(answered_at_ + worker_.shared().header_timeout.load());
    if (!keep_alive_) {
      FinishAndClose();
      return false;
    }
    state_ = State::kIdle;
    if (!is_sending_) BeIdle(answered_at_);
    if (large_) return Flush();
    return out_.size() < kGatherBytes || Flush();
  }

  // While a request is parked: whoever hangs up wants no answer any more. What else arrives meanwhile are
  // further requests; they are read, so that a hang-up behind them is seen, as long as there is room.
  void WatchPeer() {
    if (buffer_.size() == buffer_.max_size()) return;
    watches_peer_ = true;
    socket_.async_wait(Socket::wait_read, [self = this->shared_from_this()](error_code failed) {
      if (failed) return;  // ended; the next one may have begun
      self->watches_peer_ = false;
      if (!self->awaits_answer_) return;
      const auto room = self->buffer_.prepare(self->buffer_.max_size() - self->buffer_.size());
      self->buffer_.commit(self->socket_.read_some(room, failed));
      if (!failed || failed == asio::error::would_block) return self->WatchPeer();
      if (failed != asio::error::eof) return self->GiveUp();
      self->deadline_.Set(self->Now() + kHalfClosedTime);
    });
  }

  // The parked request is waited for no longer. Its answer is an error, should anybody be there to read it.
  void GiveUp() {
    keep_alive_ = false;
    const auto withdraw = std::move(withdraw_);
    if (withdraw) withdraw();
  }

  // Answers what is no request; the connection has to end, since nobody knows where the next one would begin.
  // `json`: the body for clients that expect JSON, instead of `why`; "" for none.
  void Refuse(int status, std::string_view why, std::optional<std::uint32_t> retry_after_s = std::nullopt,
              std::string_view json = "") {
    BeginAnswer();
    route_ = Route::kOther;
    keep_alive_ = false;
    head_ = false;
    Response response;
    response.status = status;
    response.content_type = json.empty() ? kPlainText : kJson;
    response.body = json.empty() ? why : json;
    if (json.empty()) response.body += '\n';
    response.retry_after_s = retry_after_s;
    Write(response);
  }

  // Puts it behind what is to be sent.
  void Write(Response& response) {
    LEAF_CHECK(!large_);
    if (worker_.shared().draining.load()) keep_alive_ = false;
    answered_any_ = true;
    answered_at_ = Now();
    const bool large = response.is_large();
    Render(response,
           !keep_alive_      ? Persistence::kClose
           : say_keep_alive_ ? Persistence::kKeepAlive
                             : Persistence::kDefault,
           head_ || large, worker_.Date(answered_at_), out_);
    worker_.metrics().Count(route_, response.status, answered_at_ - began_at_);
    if (large && !head_) large_ = std::make_unique<Response>(std::move(response));
    large_sent_ = 0;
  }

  // Sends what is to be sent. True if all of it is; else the connection goes on once it is, or has ended.
  bool Flush() {
    if (is_sending_ || !socket_.is_open()) return false;
    if (large_) {
      // In its turn, even if it is the only one: other requests may have arrived.
      BeginSending();
      worker_.AwaitTurn(id_);
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

  void BeginSending() {
    is_sending_ = true;
    deadline_.Set(Now() + worker_.shared().header_timeout.load());
  }

  // Has its turn once the kernel takes more. `moved`: it took something a moment ago.
  void AwaitRoom(bool moved) {
    if (moved) {
      NoteTaken();
      deadline_.Set(Now() + worker_.shared().header_timeout.load());
    }
    socket_.async_wait(Socket::wait_write, [self = this->shared_from_this()](error_code failed) {
      if (failed) return self->Close();
      self->worker_.AwaitTurn(self->id_);
    });
  }

  // Whether the client has taken anything since the last call.
  bool NoteTaken() {
    const std::int64_t taken = written_bytes_ - BytesNotTaken(socket_.native_handle());
    return std::exchange(taken_bytes_, taken) < taken;
  }

  // Of the large answer; "" if there is none.
  std::string_view NextPiece() {
    if (!large_) return {};
    if (!large_->ids) return std::string_view(large_->body).substr(large_sent_, kPieceBytes);
    std::string& piece = worker_.piece();
    piece.clear();
    large_->ids->Peek(kPieceBytes, piece);
    return piece;
  }

  // So much of what is to be sent is.
  void Drop(std::size_t sent) {
    written_bytes_ += static_cast<std::int64_t>(sent);
    const std::size_t of_out = std::min(sent, out_.size());
    out_.erase(0, of_out);
    if (!large_) return;
    large_sent_ += sent - of_out;
    if (large_->ids) large_->ids->Skip(sent - of_out);
    if (large_sent_ == large_->body_size()) large_.reset();
  }

  void Sent() {
    is_sending_ = false;
    if (awaits_answer_) {
      deadline_.Set(DeadlineQueue::kNever);
      if (withdraw_) WatchPeer();
      return;
    }
    if (!keep_alive_) return FinishAndClose();
    if (state_ == State::kIdle) BeIdle(Now());
    Advance();
  }

  // Lets the peer read the answers: closing with unread input would reset the connection.
  void FinishAndClose() {
    keep_alive_ = false;
    if (!Flush()) return;
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    if (is_surplus()) worker_.SetSurplusAnswering(id_, false);
    deadline_.Set(Now() + kLingerTime);
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

  // The client is not told by an end behind what it does not read, and the kernel forgets that at once.
  void Abort() {
    error_code ignored;
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);
    Close();
  }

  MonotonicTime Now() const { return worker_.shared().clock.Monotonic(); }

  bool is_surplus() const { return !admission_.refusal.empty(); }

  // Those who watch a server that is full have to see that it is.
  static bool IsForWatchers(std::string_view target) {
    const std::string_view path = target.substr(0, target.find('?'));
    return path == "/health/live" || path == "/health/ready" || path == "/metrics";
  }

  bool IsHostAllowed(std::string_view host) {
    if (!admission_.checks_host || host == allowed_host_) return true;
    if (!worker_.shared().hosts.Allows(host)) return false;
    allowed_host_ = host;
    return true;
  }

  Worker& worker_;
  const ConnectionId id_;
  const Admission admission_;
  DeadlineQueue::Member deadline_;
  Socket socket_;
  State state_ = State::kIdle;
  bool awaits_answer_ = false;
  bool is_handling_ = false;
  bool is_sending_ = false;
  bool watches_peer_ = false;
  bool timed_out_ = false;
  Withdraw withdraw_;  // of a parked request
  MonotonicTime idle_since_;
  ReadBuffer buffer_;
  RequestReader reader_;
  bool keep_alive_ = true;
  bool say_keep_alive_ = false;
  bool head_ = false;
  bool answered_any_ = false;
  MonotonicTime began_at_;  // of the request under way: when it was all there
  MonotonicTime answered_at_;
  bool came_in_pieces_ = false;
  Route route_ = Route::kOther;
  std::string allowed_host_;         // the last Host field that was looked at
  std::string out_;                  // small answers to be sent, and the head of a large one
  std::unique_ptr<Response> large_;  // whose body follows out_
  std::uint64_t large_sent_ = 0;     // of its body
  std::int64_t written_bytes_ = 0;   // to the socket
  std::int64_t taken_bytes_ = 0;     // of these by the client, when it was last looked at
};

template <typename Acceptor>
void Worker::Accept(Accepting<Acceptor>& accepting) {
  accepting.socket.async_accept([this, &accepting](error_code failed, auto socket) {
    if (failed && !accepting.socket.is_open()) return;
    if (failed) {
      // Out of descriptors: the queue stays as it is, and trying at once would spin.
      const auto pause = std::make_shared<asio::steady_timer>(loop_, kAcceptPause);
      pause->async_wait([this, pause, &accepting](error_code) {
        if (accepting.socket.is_open()) Accept(accepting);
      });
      return;
    }
    Serve(accepting, std::move(socket));
    if (accepting.socket.is_open()) Accept(accepting);
  });
}

std::string_view Worker::TakePlace(bool local, const std::optional<ClientAddress>& address,
                                   std::size_t address_max) {
  if (address && !shared_.addresses.Add(*address, address_max)) return kTooManyFromAddress;
  const std::size_t places = shared_.max_connections.load() + (local ? kReservedConnections : 0);
  if (shared_.admitted.fetch_add(1) < places) return "";
  shared_.admitted.fetch_sub(1);
  if (address) shared_.addresses.Remove(*address);
  return kTooMany;
}

void Worker::TakeSurplusPlace(ConnectionId id) {
  if (surplus_.size() >= surplus_max_) {
    auto old = std::find_if(surplus_.begin(), surplus_.end(), [](const auto& each) { return !each.second; });
    if (old == surplus_.end()) old = surplus_.begin();
    const auto found = connections_.find(old->first);
    LEAF_CHECK(found != connections_.end());
    const std::shared_ptr<AnyConnection> connection = found->second;  // it closes
    connection->Close();
  }
  surplus_.emplace(id, false);
}

template <typename Acceptor, typename Socket>
void Worker::Serve(const Accepting<Acceptor>& accepting, Socket socket) {
  constexpr bool kLocal = std::is_same_v<typename Acceptor::protocol_type, asio::local::stream_protocol>;
  const ConnectionId id = next_id_++;
  shared_.most_connections.Rise(shared_.connections.fetch_add(1) + 1);
  // Once, as it can change meanwhile.
  const std::size_t address_max = shared_.max_connections_per_address.load();
  std::optional<ClientAddress> address;
  if constexpr (!kLocal) {
    error_code failed;
    socket.set_option(asio::ip::tcp::no_delay(true), failed);
    setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kKernelBytes, sizeof kKernelBytes);
    if (address_max > 0) address = PeerOf(socket.native_handle());
  }
  const std::string_view refusal = TakePlace(kLocal, address, address_max);
  if (!refusal.empty()) {
    address.reset();
    metrics_.CountRefused();
    (refusal == kTooMany ? shared_.refusals : shared_.address_refusals).Count(shared_.clock.Monotonic());
    TakeSurplusPlace(id);
  }
  metrics_.CountAccepted();
  using Served = Connection<Socket>;
  const auto connection = std::make_shared<Served>(
      *this, id, std::move(socket),
      typename Served::Admission{
          .refusal = refusal, .address = address, .local = kLocal, .checks_host = accepting.checks_host});
  connections_.emplace(id, connection);
  connection->Start();
}

}  // namespace

class Server::Impl {
 public:
  Impl(const ServerOptions& options, const Router& router, std::vector<Listener> listeners,
       const Clock& clock, Logger& log, RequestMetrics& metrics)
      : listeners_(std::move(listeners)),
        metrics_(metrics),
        shared_{.router = router,
                .clock = clock,
                .hosts = options.hosts,
                .refusals{log, "server.max_connections"},
                .address_refusals{log, "server.max_connections_per_address"},
                .addresses = {},
                .memory = {},
                .mutex = {},
                .connection_closed = {}} {
    SetLimits(options.limits);
    const std::size_t surplus_max = (kSurplusMax + options.threads - 1) / options.threads;
    for (std::size_t i = 0; i < options.threads; ++i) {
      workers_.push_back(std::make_unique<Worker>(shared_, metrics.NewShard(), surplus_max));
      for (const Listener& listener : listeners_) workers_.back()->AddListener(listener);
    }
  }

  void Start() {
    for (const auto& worker : workers_) worker->Start();
  }

  void SetLimits(const ConnectionLimits& limits) {
    shared_.max_connections.store(limits.max_connections);
    metrics_.SetConnectionsMax(limits.max_connections);
    shared_.max_connections_per_address.store(limits.max_connections_per_address);
    shared_.header_timeout.store(limits.header_timeout);
    shared_.idle_timeout.store(limits.idle_timeout);
  }

  void Probe(std::function<void()> done) {
    const auto missing = std::make_shared<std::atomic<std::size_t>>(workers_.size());
    const auto shared_done = std::make_shared<std::function<void()>>(std::move(done));
    for (const auto& worker : workers_) {
      worker->Post([missing, shared_done] {
        if (missing->fetch_sub(1) == 1) (*shared_done)();
      });
    }
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
  std::vector<Listener> listeners_;
  RequestMetrics& metrics_;
  Shared shared_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

Server::Server(const ServerOptions& options, const Router& router, std::vector<Listener> listeners,
               const Clock& clock, Logger& log, RequestMetrics& metrics)
    : impl_(std::make_unique<Impl>(options, router, std::move(listeners), clock, log, metrics)) {}

Server::~Server() { impl_->Drain(std::chrono::milliseconds{0}); }

void Server::Start() { impl_->Start(); }

void Server::SetLimits(const ConnectionLimits& limits) { impl_->SetLimits(limits); }

void Server::Probe(std::function<void()> done) { impl_->Probe(std::move(done)); }

std::size_t Server::Drain(std::chrono::milliseconds timeout) { return impl_->Drain(timeout); }

}  // namespace leaf::server
