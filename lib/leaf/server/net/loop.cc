#include "leaf/server/net/loop.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <optional>

#include "leaf/base/check.h"

namespace leaf::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::chrono::milliseconds kSweepInterval{250};
constexpr std::chrono::milliseconds kAcceptPause{50};
// So much waits in the kernel for a client to read. Without it that would be megabytes for each connection;
// what is on its way does not count, so that a distant client that reads gets its answer no later.
constexpr int kKernelBytes = 32 * 1024;
// Of memory that a connection takes up once its client has sent a long request.
constexpr std::size_t kConnectionBytes = sizeof(ReadBuffer);

// The user of the process that connected, when it did.
std::optional<uid_t> PeerUser(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer.uid;
}

}  // namespace

constinit thread_local Loop* Loop::current_ = nullptr;

void SharedByLoops::CountClosed() {
  if (connections.fetch_sub(1) != 1 || !draining.load()) return;
  const MutexLock lock(mutex);
  connection_closed.NotifyAll();
}

std::shared_ptr<const tls::ServerContext> SharedByLoops::Tls() {
  const MutexLock lock(mutex);
  return tls;
}

std::shared_ptr<const tls::ServerContext> SharedByLoops::SetTls(
    std::shared_ptr<const tls::ServerContext> context) {
  const MutexLock lock(mutex);
  tls.swap(context);
  return context;
}

struct Loop::ClientCheck {
  std::shared_ptr<const tls::ServerContext> context;
  std::vector<ConnectionId> left{};
  std::size_t closed = 0;
};

Loop::Loop(SharedByLoops& shared, RequestMetrics::Shard& metrics, std::size_t surplus_max)
    : shared_(shared),
      metrics_(metrics),
      surplus_max_(surplus_max),
      loop_(BOOST_ASIO_CONCURRENCY_HINT_UNSAFE_IO),
      sweep_timer_(loop_) {}

void Loop::AddListener(const Listener& listener, const ProtocolFactory& protocol, bool is_public_door) {
  // A descriptor of its own for each loop; they share one socket and so one queue.
  const int fd = fcntl(listener.fd(), F_DUPFD_CLOEXEC, 0);
  LEAF_CHECK(fd >= 0);
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  LEAF_CHECK(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  listeners_.push_back(
      {.socket = {loop_.get_executor(), asio::generic::stream_protocol(address.ss_family, 0), fd},
       .protocol = protocol,
       .is_passed = listener.is_passed(),
       .is_unix = listener.is_unix(),
       .origin = {.is_local = listener.door() == Door::kUsers,
                  .on_loopback = !listener.is_unix() && !listener.is_reachable_from_elsewhere(),
                  .is_public_door = is_public_door,
                  .is_tls = listener.is_tls()}});
}

void Loop::Start() {
  for (Accepting& accepting : listeners_) Accept(accepting);
  ScheduleSweep();
  thread_ = std::thread([this] {
    current_ = this;
    loop_.run();
  });
  pthread_setname_np(thread_.native_handle(), "leaf-http");
}

void Loop::BeginDrain() {
  Post([this] {
    for (Accepting& accepting : listeners_) StopAccepting(accepting);
    // A copy, since closing a connection changes the table.
    std::vector<std::shared_ptr<Connection>> all;
    all.reserve(connections_.size());
    for (const auto& [id, connection] : connections_) all.push_back(connection);
    for (const auto& connection : all) connection->BeginDrain();
    // What the loop has accepted already, but not come to, is counted first.
    Post([this] {
      const MutexLock lock(shared_.mutex);
      ++shared_.loops_draining;
      shared_.connection_closed.NotifyAll();
    });
  });
}

void Loop::CheckClients(std::shared_ptr<const tls::ServerContext> context) {
  Post([this, check = std::make_shared<ClientCheck>(ClientCheck{.context = std::move(context)})] {
    for (const auto& [id, connection] : connections_) {
      if (connection->has_begun_tls()) check->left.push_back(id);
    }
    CheckNextClient(check);
  });
}

// One for each round of the loop: a certificate takes longer to check than a request.
void Loop::CheckNextClient(const std::shared_ptr<ClientCheck>& check) {
  if (check->left.empty()) {
    if (check->closed > 0)
      shared_.log.Info("TLS connections that were closed, since their clients are not accepted any more: {}",
                       check->closed);
    return;
  }
  const auto connection = Find(check->left.back());
  check->left.pop_back();
  if (connection != nullptr && !connection->WouldPass(*check->context)) {
    connection->Close();
    ++check->closed;
  }
  Post([this, check] { CheckNextClient(check); });
}

void Loop::Stop() {
  loop_.stop();
  if (thread_.joinable()) thread_.join();
  connections_.clear();  // the thread they belong to is gone, and no other ever had them
}

Protocol::Step Loop::Handle(Connection& connection) {
  LEAF_CHECK(handled_ == nullptr);
  handled_ = &connection;
  const Protocol::Step step = connection.protocol().Handle(connection);
  handled_ = nullptr;
  return step;
}

void Loop::PostTurn() {
  asio::post(loop_, [this] {
    const auto next = [](std::deque<ConnectionId>& queue) {
      std::optional<ConnectionId> id;
      if (queue.empty()) return id;
      id = queue.front();
      queue.pop_front();
      return id;
    };
    const std::optional<ConnectionId> turn = next(turns_);
    const std::optional<ConnectionId> handshake = next(handshakes_);
    if (!turns_.empty() || !handshakes_.empty()) PostTurn();
    if (const auto connection = turn ? Find(*turn) : nullptr) connection->TakeTurn();
    if (const auto connection = handshake ? Find(*handshake) : nullptr) connection->Shake();
  });
}

void Loop::Accept(Accepting& accepting) {
  accepting.socket.async_accept([this, &accepting](error_code failed, StreamSocket socket) {
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

void Loop::StopAccepting(Accepting& accepting) {
  error_code failed;
  // A client in the queue was told that it is connected: it is still served, unless the queue goes on without
  // us.
  if (!accepting.is_passed) accepting.socket.non_blocking(true, failed);
  while (!accepting.is_passed && !failed) {
    StreamSocket socket = accepting.socket.accept(failed);
    if (!failed) Serve(accepting, std::move(socket));
  }
  accepting.socket.close(failed);
}

void Loop::Serve(const Accepting& accepting, StreamSocket socket) {
  const ConnectionId id = next_id_++;
  shared_.most_connections.Rise(shared_.connections.fetch_add(1) + 1);
  if (!accepting.is_unix) {
    error_code failed;
    socket.set_option(asio::ip::tcp::no_delay(true), failed);
    setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kKernelBytes, sizeof kKernelBytes);
  }
  auto place =
      shared_.places.Take(accepting.origin.is_local, socket.native_handle(), shared_.clock.Monotonic());
  Origin origin = accepting.origin;
  if (origin.is_local) origin.user = PeerUser(socket.native_handle());
  origin.refusal = place.refusal();
  if (!origin.refusal.empty()) {
    metrics_.CountRefused();
    TakeSurplusPlace(id);
  }
  metrics_.CountAccepted();
  const auto connection = std::make_shared<Connection>(*this, id, std::move(socket), std::move(place), origin,
                                                       accepting.protocol.Make(origin));
  connections_.emplace(id, connection);
  connection->Start();
}

// For one more connection over a limit. A flood of them must not keep out those that watch the server: the
// oldest that is not being answered goes, or else the oldest.
void Loop::TakeSurplusPlace(ConnectionId id) {
  if (surplus_.size() >= surplus_max_) {
    auto old = std::find_if(surplus_.begin(), surplus_.end(), [](const auto& each) { return !each.second; });
    if (old == surplus_.end()) old = surplus_.begin();
    const auto connection = Find(old->first);
    LEAF_CHECK(connection != nullptr);
    connection->Close();
  }
  surplus_.emplace(id, false);
}

void Loop::ScheduleSweep() {
  sweep_timer_.expires_after(kSweepInterval);
  sweep_timer_.async_wait([this](error_code failed) {
    if (failed) return;
    const MonotonicTime now = shared_.clock.Monotonic();
    for (const ConnectionId id : deadlines_.TakeDue(now)) {
      if (const auto connection = Find(id)) connection->TimeOut(now);
    }
    shared_.places.Look(now);
    ReturnMemory(now);
    ScheduleSweep();
  });
}

void Loop::ReturnMemory(MonotonicTime now) {
  UnreadAnswers& unread = shared_.unread;
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

}  // namespace leaf::server
