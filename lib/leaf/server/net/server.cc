#include "leaf/server/net/server.h"

#include <atomic>
#include <utility>

#include "leaf/base/mutex.h"
#include "leaf/server/net/loop.h"

namespace leaf::server {
namespace {

// Connections over a limit whose first request is still read, to be answered: so many over all loops, and
// each new one beyond takes the place of an old one.
constexpr std::size_t kSurplusMax = 128;

}  // namespace

class Server::Impl {
 public:
  Impl(const ServerOptions& options, UnreadAnswers& unread, const Clock& clock, Logger& log,
       RequestMetrics& metrics)
      : metrics_(metrics), shared_(unread, clock, log) {
    SetLimits(options.limits);
    const std::size_t surplus_max = (kSurplusMax + options.threads - 1) / options.threads;
    for (std::size_t i = 0; i < options.threads; ++i)
      loops_.push_back(std::make_unique<Loop>(shared_, metrics.NewShard(), surplus_max));
  }

  void Listen(Listener listener, const ProtocolFactory& protocol, bool is_public_door) {
    for (const auto& loop : loops_) loop->AddListener(listener, protocol, is_public_door);
    listeners_.push_back(std::move(listener));
  }

  void Start() {
    for (const auto& loop : loops_) loop->Start();
  }

  void SetLimits(const ConnectionLimits& limits) {
    shared_.places.SetLimits(limits.max_connections, limits.max_connections_per_address);
    metrics_.SetConnectionsMax(limits.max_connections);
    shared_.header_timeout.store(limits.header_timeout);
    shared_.idle_timeout.store(limits.idle_timeout);
  }

  void SetTls(std::shared_ptr<const tls::ServerContext> context) {
    metrics_.SetCertificateEnd(context->expires_at());
    const auto before = shared_.SetTls(context);
    if (before == nullptr || before->BelievesAs(*context)) return;
    for (const auto& loop : loops_) loop->CheckClients(context);
  }

  void Probe(std::function<void()> done) {
    const auto missing = std::make_shared<std::atomic<std::size_t>>(loops_.size());
    const auto shared_done = std::make_shared<std::function<void()>>(std::move(done));
    for (const auto& loop : loops_) {
      loop->Post([missing, shared_done] {
        if (missing->fetch_sub(1) == 1) (*shared_done)();
      });
    }
  }

  std::size_t Drain(std::chrono::milliseconds timeout) {
    shared_.draining.store(true);
    for (const auto& loop : loops_) loop->BeginDrain();
    // The loops' own descriptors of the sockets follow; with the last one the port refuses.
    listeners_.clear();
    {
      const MonotonicTime deadline = shared_.clock.Monotonic() + timeout;
      const MutexLock lock(shared_.mutex);
      while (shared_.loops_draining != loops_.size() || shared_.connections.load() != 0) {
        const auto left = deadline - shared_.clock.Monotonic();
        if (left <= left.zero()) break;
        shared_.connection_closed.WaitFor(shared_.mutex, left);
      }
    }
    const std::size_t left = shared_.connections.load();
    for (const auto& loop : loops_) loop->Stop();
    return left;
  }

 private:
  std::vector<Listener> listeners_;
  RequestMetrics& metrics_;
  SharedByLoops shared_;
  std::vector<std::unique_ptr<Loop>> loops_;
};

Server::Server(const ServerOptions& options, UnreadAnswers& unread, const Clock& clock, Logger& log,
               RequestMetrics& metrics)
    : impl_(std::make_unique<Impl>(options, unread, clock, log, metrics)) {}

Server::~Server() { impl_->Drain(std::chrono::milliseconds{0}); }

void Server::Listen(Listener listener, const ProtocolFactory& protocol, bool is_public_door) {
  impl_->Listen(std::move(listener), protocol, is_public_door);
}

void Server::Start() { impl_->Start(); }

void Server::SetLimits(const ConnectionLimits& limits) { impl_->SetLimits(limits); }

void Server::SetTls(std::shared_ptr<const tls::ServerContext> context) { impl_->SetTls(std::move(context)); }

void Server::Probe(std::function<void()> done) { impl_->Probe(std::move(done)); }

std::size_t Server::Drain(std::chrono::milliseconds timeout) { return impl_->Drain(timeout); }

}  // namespace leaf::server
