#include "leaf/zookeeper/session.h"

#include <pthread.h>
#include <zookeeper/zookeeper.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "leaf/base/duration.h"
#include "leaf/zookeeper/c_client.h"
#include "leaf/zookeeper/session_impl.h"

namespace leaf::zookeeper {
namespace {

using std::chrono::milliseconds;

// A handle that has been without a connection for so many session time-outs is replaced: the servers would
// have let the session go long ago, if they are up.
constexpr int kStaleTimeouts = 2;
// Between two sessions, if the last one did not live longer than that.
constexpr milliseconds kReopenMin{100};
constexpr milliseconds kReopenMax{1000};

}  // namespace

Session::Impl::Impl(SessionOptions options, const Clock& clock, Logger& log)
    : options_(std::move(options)), clock_(clock), log_(log), library_log_(log) {
  disconnected_since_ = clock_.Monotonic();
  thread_ = std::thread([this] { Work(); });
  pthread_setname_np(thread_.native_handle(), "leaf-zk");
}

void Session::Impl::Close() {
  {
    const MutexLock lock(mutex_);
    closing_ = true;
    if (handle_) FinishAll(*handle_, ZCLOSING);
    changed_.NotifyAll();
  }
  const MutexLock join(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

bool Session::Impl::connected() const {
  const MutexLock lock(mutex_);
  return handle_ && handle_->connected;
}

std::uint64_t Session::Impl::sessions() const {
  const MutexLock lock(mutex_);
  return sessions_;
}

std::int64_t Session::Impl::session_id() const {
  const MutexLock lock(mutex_);
  return session_id_;
}

milliseconds Session::Impl::StaleAfter() const {
  return std::min(kStaleTimeouts * options_.session_timeout, kStaleMax);
}

std::uint64_t Session::Impl::Subscribe(std::function<void()> listener) {
  const MutexLock lock(mutex_);
  const std::uint64_t id = next_listener_++;
  listeners_.emplace(id, std::make_shared<std::function<void()>>(std::move(listener)));
  return id;
}

void Session::Impl::Unsubscribe(std::uint64_t id) {
  const MutexLock lock(mutex_);
  listeners_.erase(id);
  while (running_listener_ == id) changed_.Wait(mutex_);
}

// ---- the library's threads

void Session::Impl::OnEvent(zhandle_t* library, int type, int state, const char*, void* context) {
  if (type != ZOO_SESSION_EVENT) return;
  auto& handle = *static_cast<Handle*>(context);
  handle.session->OnState(handle, library, state);
}

void Session::Impl::OnState(Handle& handle, zhandle_t* library, int state) {
  const MutexLock lock(mutex_);
  // One that is being closed has nothing to say any more.
  if (handle.broken || closing_ || &handle != handle_.get()) return;
  // It may be here before zookeeper_init has returned.
  handle.library = library;
  const bool was_connected = std::exchange(handle.connected, state == ZOO_CONNECTED_STATE);
  if (handle.connected) {
    handle.has_seen = true;
    const std::int64_t id = zoo_client_id(library)->client_id;
    if (id != session_id_) {
      session_id_ = id;
      ++sessions_;
      announce_ = true;
    }
    auth_failed_ = false;
    if (!was_connected) log_.Info("ZooKeeper: connected, session {:#x}", id);
  } else if (state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE) {
    handle.broken = true;
    auth_failed_ = state == ZOO_AUTH_FAILED_STATE;
    if (auth_failed_) {
      log_.Error("ZooKeeper refuses the authentication");
    } else {
      log_.Warning("ZooKeeper: session {:#x} has expired", session_id_);
    }
    session_id_ = 0;
    // The server that says so answers: the next session is worth waiting for.
    disconnected_since_ = clock_.Monotonic();
    FinishAll(handle, auth_failed_ ? ZAUTHFAILED : ZSESSIONEXPIRED);
  } else if (was_connected) {
    disconnected_since_ = clock_.Monotonic();
    log_.Warning("ZooKeeper: connection lost");
  }
  changed_.NotifyAll();
}

void Session::Impl::FinishAll(Handle& handle, int code) {
  for (auto& [key, held] : handle.calls) {
    if (std::exchange(held.call->done, true)) continue;
    held.call->code = code;
    held.call->done_changed.NotifyAll();
  }
}

// ---- our own thread

void Session::Impl::Work() {
  const MutexLock lock(mutex_);
  milliseconds pause{0};
  milliseconds short_lived{0};  // the last pause after a session that did not last
  while (!closing_) {
    if (!handle_) {
      if (pause.count() > 0) {
        const MonotonicTime until = clock_.Monotonic() + pause;
        while (!closing_ && clock_.Monotonic() < until) changed_.WaitFor(mutex_, until - clock_.Monotonic());
        if (closing_) break;
      }
      OpenHandle();
      pause = handle_ ? milliseconds{0} : std::clamp(pause * 2, kReopenMin, kReopenMax);
    } else if (handle_->broken) {
      // One that did not last is not replaced in a tight loop.
      const bool lasted = clock_.Monotonic() - handle_->opened >= kReopenMax;
      short_lived = lasted ? milliseconds{0} : std::clamp(short_lived * 2, kReopenMin, kReopenMax);
      pause = short_lived;
      CloseHandle();
    } else if (std::exchange(announce_, false)) {
      Announce();
    } else if (handle_->connected || !handle_->has_seen) {
      changed_.Wait(mutex_);
    } else if (const auto left = disconnected_since_ + StaleAfter() - clock_.Monotonic();
               left > left.zero()) {
      changed_.WaitFor(mutex_, left);
    } else {
      // A server refuses a client that has seen a newer change than the server has, as after a restore, and
      // the library never forgets what it has seen. The old session must not be resumed: of its nodes, the
      // servers may have lost some.
      log_.Warning(
          "ZooKeeper: no connection for {}: opening a new session, in case the servers have lost data",
          FormatDuration(StaleAfter()));
      session_id_ = 0;
      CloseHandle();
    }
  }
  if (handle_) CloseHandle();
  session_id_ = 0;
}

void Session::Impl::OpenHandle() {
  auto handle = std::make_unique<Handle>();
  handle->session = this;
  handle->opened = clock_.Monotonic();
  Handle* const opened = handle.get();
  handle_ = std::move(handle);
  zhandle_t* library = nullptr;
  int error_number = 0;
  // The library reckons with multiples of it in an int. A server grants some 40 s at most.
  const auto session_timeout = static_cast<int>(
      std::min<std::chrono::milliseconds>(options_.session_timeout, std::chrono::hours{1}).count());
  {
    const MutexUnlock unlock(mutex_);
    errno = 0;
    library = zookeeper_init2(options_.connect.hosts.c_str(), &OnEvent, session_timeout, nullptr, opened, 0,
                              &OnLibraryLog);
    error_number = errno;
    if (library != nullptr && !options_.digest_auth.empty()) {
      // Kept by the library, and said again at each connection.
      zoo_add_auth(library, "digest", options_.digest_auth.data(),
                   static_cast<int>(options_.digest_auth.size()), nullptr, nullptr);
    }
  }
  if (library == nullptr) {
    handle_.reset();
    // Once for a row of failures.
    if (!std::exchange(open_failed_, true)) {
      log_.Warning("ZooKeeper: cannot use {}: {}", options_.connect.hosts,
                   std::generic_category().message(error_number));
    }
    return;
  }
  open_failed_ = false;
  opened->library = library;
  opened->ready = true;
  changed_.NotifyAll();
}

void Session::Impl::CloseHandle() {
  const std::unique_ptr<Handle> handle = std::move(handle_);
  handle->connected = false;
  FinishAll(*handle, ZCLOSING);
  {
    const MutexUnlock unlock(mutex_);
    // Joins the library's threads, after which nothing of it calls us.
    zookeeper_close(handle->library);
  }
  handle->calls.clear();
}

void Session::Impl::Announce() {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, listener] : listeners_) ids.push_back(id);
  for (const std::uint64_t id : ids) {
    const auto found = listeners_.find(id);
    if (found == listeners_.end() || closing_) continue;
    const auto listener = found->second;
    running_listener_ = id;
    announcer_ = std::this_thread::get_id();
    {
      const MutexUnlock unlock(mutex_);
      (*listener)();
    }
    running_listener_ = 0;
    announcer_ = {};
    changed_.NotifyAll();
  }
}

// ---- the session as others see it

Result<std::unique_ptr<Session>> Session::Open(SessionOptions options, const Clock& clock, Logger& log) {
  const std::size_t colon = options.digest_auth.find(':');
  if (!options.digest_auth.empty() && (colon == std::string::npos || colon == 0)) {
    // It is a secret: not a word of it.
    return Error{ErrorCode::kConfig, "the authentication for ZooKeeper is not of the form user:password",
                 "see zookeeper.auth_file"};
  }
  return std::unique_ptr<Session>(new Session(std::make_shared<Impl>(std::move(options), clock, log)));
}

Session::Session(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() { Close(); }
void Session::Close() { impl_->Close(); }
bool Session::connected() const { return impl_->connected(); }
bool Session::has_credentials() const { return impl_->HasCredentials(); }
std::uint64_t Session::sessions() const { return impl_->sessions(); }
std::int64_t Session::session_id() const { return impl_->session_id(); }

std::unique_ptr<Client::Subscription> Session::OnNewSession(std::function<void()> listener) {
  class Held final : public Subscription {
   public:
    Held(std::shared_ptr<Impl> impl, std::uint64_t id) : impl_(std::move(impl)), id_(id) {}
    ~Held() override { impl_->Unsubscribe(id_); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    const std::shared_ptr<Impl> impl_;
    const std::uint64_t id_;
  };
  const std::uint64_t id = impl_->Subscribe(std::move(listener));
  return std::make_unique<Held>(impl_, id);
}

}  // namespace leaf::zookeeper
