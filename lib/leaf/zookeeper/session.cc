#include "leaf/zookeeper/session.h"

#include <fmt/format.h>
#include <pthread.h>
#include <zookeeper/zookeeper.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/duration.h"
#include "leaf/base/text.h"

namespace leaf::zookeeper {
namespace {

using std::chrono::milliseconds;

// Longest path of a node that we create, with its number.
constexpr std::size_t kPathBytesMax = 1024;
// A handle that has been without a connection for so many session time-outs is replaced: the servers would
// have let the session go long ago, if they are up.
constexpr int kStaleTimeouts = 2;
// Between two sessions, if the last one did not live longer than that.
constexpr milliseconds kReopenMin{100};
constexpr milliseconds kReopenMax{1000};

// ---- the client library's log

// The library's callback carries no context: all sessions of a process share one log, that of the newest.
std::mutex g_loggers_mutex;
std::vector<Logger*>& Loggers() {
  static std::vector<Logger*> loggers;
  return loggers;
}

// Held while a transaction is handed to the library. zoo_amulti (as of 3.8.0) leaves the variables of those
// operations unset that it no longer prepares because the session has ended, and then frees them: memory that
// is ours, or nothing at all. So it is called only while there is a connection, and the session does not end
// before it has returned: on the way from one to the other the library's thread logs that the connection is
// lost and that the next one is begun, and waits for this lock there. It holds no lock of its own meanwhile.
// Recursive, since zoo_amulti may log as well.
std::recursive_mutex g_transaction_mutex;

// Everything at debug: whatever an operator should know, this file says itself, once, while the library
// repeats its complaint with every attempt.
void OnLibraryLog(const char* message) {
  { const std::lock_guard transaction(g_transaction_mutex); }
  const std::lock_guard lock(g_loggers_mutex);
  if (Loggers().empty()) return;
  std::string_view text = message;
  // "2026-11-21 22:31:10,123:4711(0x7f…):ZOO_INFO@check_events@2989: …": we have a clock of our own.
  if (const std::size_t begin = text.find("ZOO_"); begin != std::string_view::npos) text.remove_prefix(begin);
  Loggers().back()->Debug("ZooKeeper client: {}", text);
}

class LibraryLog {
 public:
  explicit LibraryLog(Logger& log) : log_(log) {
    const std::lock_guard lock(g_loggers_mutex);
    zoo_set_debug_level(ZOO_LOG_LEVEL_INFO);
    Loggers().push_back(&log_);
  }
  ~LibraryLog() {
    const std::lock_guard lock(g_loggers_mutex);
    auto& loggers = Loggers();
    loggers.erase(std::find(loggers.begin(), loggers.end(), &log_));
  }
  LibraryLog(const LibraryLog&) = delete;
  LibraryLog& operator=(const LibraryLog&) = delete;

 private:
  Logger& log_;
};

// ---- translation

NodeStat StatOf(const Stat& stat) {
  return {stat.version, stat.cversion,          stat.numChildren,   stat.czxid,
          stat.mzxid,   WallTimeOf(stat.mtime), stat.ephemeralOwner};
}

// Of a node of leafctl's own: all for the session's credentials, which the servers put in place of "auth";
// reading for everyone. The library only reads it.
ACL_vector& OwnRules() {
  static char auth[] = "auth";
  static char nobody[] = "";
  static char world[] = "world";
  static char anyone[] = "anyone";
  static std::array<ACL, 2> entries{{{ZOO_PERM_ALL, {auth, nobody}}, {ZOO_PERM_READ, {world, anyone}}}};
  static ACL_vector rules{static_cast<std::int32_t>(entries.size()), entries.data()};
  return rules;
}

// As in the shell of ZooKeeper: "world:anyone:cdrwa".
std::string PermissionsText(std::int32_t permissions) {
  const std::array<std::pair<std::int32_t, char>, 5> letters{{{ZOO_PERM_CREATE, 'c'},
                                                              {ZOO_PERM_DELETE, 'd'},
                                                              {ZOO_PERM_READ, 'r'},
                                                              {ZOO_PERM_WRITE, 'w'},
                                                              {ZOO_PERM_ADMIN, 'a'}}};
  std::string text;
  for (const auto& [permission, letter] : letters) {
    if ((permissions & permission) != 0) text += letter;
  }
  return text;
}

NodeAccess AccessOf(const ACL_vector& rules, const Stat& stat) {
  NodeAccess access;
  access.version = stat.aversion;
  access.stat = StatOf(stat);
  for (std::int32_t i = 0; i < rules.count; ++i) {
    const ACL& rule = rules.data[i];
    const std::string_view scheme = rule.id.scheme;
    std::string_view id = rule.id.id;
    // Of "user:hash of the password", the user only.
    if (scheme == "digest") id = id.substr(0, id.find(':'));
    if (!access.rules.empty()) access.rules += ", ";
    access.rules += fmt::format("{}:{}:{}", scheme, id, PermissionsText(rule.perms));
    if (scheme == "world" && (rule.perms & ~ZOO_PERM_READ) != 0) access.open = true;
  }
  return access;
}

std::optional<WriteOutcome::Conflict> ConflictOf(int code) {
  switch (code) {
    case ZNODEEXISTS:
      return WriteOutcome::Conflict::kExists;
    case ZNONODE:
      return WriteOutcome::Conflict::kMissing;
    case ZBADVERSION:
      return WriteOutcome::Conflict::kVersion;
    case ZNOTEMPTY:
      return WriteOutcome::Conflict::kNotEmpty;
    default:
      return std::nullopt;
  }
}

// The one place where the library's codes become ours. `write`: whether it could have had an effect.
Error ErrorOf(int code, bool write, std::string_view path) {
  switch (code) {
    case ZNOAUTH:
      return {ErrorCode::kPermission, fmt::format("ZooKeeper: {}: access is denied", Quoted(path)),
              "give this node the credentials that the cluster's other leafctl nodes have "
              "(zookeeper.auth_file), or set the node's access rules"};
    case ZINVALIDACL:
      return {ErrorCode::kPermission,
              fmt::format("ZooKeeper: {}: the servers do not take this node's credentials into access rules",
                          Quoted(path)),
              "see that they allow digest authentication, or unset zookeeper.auth_file"};
    case ZAUTHFAILED:
      return {ErrorCode::kPermission, "ZooKeeper refuses the authentication", "set zookeeper.auth_file"};
    case ZCONNECTIONLOSS:
    case ZOPERATIONTIMEOUT:
    case ZSESSIONEXPIRED:
    case ZCLOSING:
    case ZRUNTIMEINCONSISTENCY:
      if (write) {
        return {ErrorCode::kOutcomeUnknown,
                fmt::format("ZooKeeper: {}: the reply to a write is lost: {}", Quoted(path), zerror(code)),
                ""};
      }
      return {ErrorCode::kUnavailable, fmt::format("ZooKeeper: {}", zerror(code)), ""};
    // An answer: it was not done.
    case ZSESSIONMOVED:
    case ZTHROTTLEDOP:
    case ZNOTREADONLY:
      return {ErrorCode::kUnavailable, fmt::format("ZooKeeper: {}", zerror(code)), ""};
    case ZINVALIDSTATE:  // the library took nothing
      return {ErrorCode::kUnavailable, "ZooKeeper: the session has just ended", "retry soon"};
    default:
      return {ErrorCode::kInternal, fmt::format("ZooKeeper: {}: {} ({})", Quoted(path), zerror(code), code),
              ""};
  }
}

// One call. Everything the library reads or writes later lives here: the caller may be gone by then.
struct Call {
  // Set once, before it is handed over.
  std::vector<Operation> operations;
  std::vector<zoo_op_t> library_operations;
  std::vector<std::array<char, kPathBytesMax>> created;
  std::vector<Stat> stats;
  std::vector<zoo_op_result_t> library_results;

  // Guarded by the session's mutex:
  std::condition_variable done_changed;
  bool done = false;
  int code = ZOK;
  NodeData node;
  NodeAccess access;
  std::vector<std::string> children;
};

// ZINVALIDSTATE: nothing was handed over, since there is no connection.
int BeginTransaction(zhandle_t* library, Call& call, void_completion_t completion, const void* context) {
  const std::lock_guard lock(g_transaction_mutex);
  if (zoo_state(library) != ZOO_CONNECTED_STATE) return ZINVALIDSTATE;
  return zoo_amulti(library, static_cast<int>(call.library_operations.size()), call.library_operations.data(),
                    call.library_results.data(), completion, context);
}

}  // namespace

class Session::Impl {
 public:
  Impl(SessionOptions options, const Clock& clock, Logger& log)
      : options_(std::move(options)), clock_(clock), log_(log), library_log_(log) {
    disconnected_since_ = clock_.Monotonic();
    thread_ = std::thread([this] { Work(); });
    pthread_setname_np(thread_.native_handle(), "leaf-zk");
  }
  ~Impl() { Close(); }

  void Close() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      if (handle_) FinishAll(*handle_, ZCLOSING);
      changed_.notify_all();
    }
    const std::lock_guard join(join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

  bool connected() const {
    const std::lock_guard lock(mutex_);
    return handle_ && handle_->connected;
  }
  std::uint64_t sessions() const {
    const std::lock_guard lock(mutex_);
    return sessions_;
  }
  std::int64_t session_id() const {
    const std::lock_guard lock(mutex_);
    return session_id_;
  }

  // Hands a call to the library: `submit(zhandle, call)` returns its code. Waits for a connection first; what
  // is queued within the library could be sent by it much later. Nothing is handed over on an error.
  template <typename Submit>
  Result<std::shared_ptr<Call>> Begin(MonotonicTime deadline, std::vector<Operation> operations,
                                      std::string_view path, Submit submit) {
    std::unique_lock lock(mutex_);
    const MonotonicTime patience = std::min(deadline, disconnected_since_ + options_.operation_timeout);
    while (!closing_ && !(handle_ && handle_->connected && handle_->ready)) {
      if (auth_failed_) return ErrorOf(ZAUTHFAILED, false, path);
      const auto left = patience - clock_.Monotonic();
      if (left <= left.zero()) {
        return Error{ErrorCode::kUnavailable,
                     fmt::format("ZooKeeper at {} does not answer", options_.connect.hosts),
                     "check zookeeper.connect, and that a majority of the servers is up"};
      }
      changed_.wait_for(lock, left);
    }
    if (closing_) return ErrorOf(ZINVALIDSTATE, false, path);
    auto call = std::make_shared<Call>();
    call->operations = std::move(operations);
    handle_->calls.emplace(call.get(), HeldCall{call, this, handle_.get()});
    const HeldCall* const held = &handle_->calls.find(call.get())->second;
    if (const int code = submit(handle_->library, *call, held); code != ZOK) {
      handle_->calls.erase(call.get());
      return ErrorOf(code, false, path);
    }
    return call;
  }

  // The call's code, or that of a time-out: then it may still complete, and nobody looks.
  int Wait(const std::shared_ptr<Call>& call, MonotonicTime deadline) {
    std::unique_lock lock(mutex_);
    while (!call->done) {
      const auto left = deadline - clock_.Monotonic();
      if (left <= left.zero()) return ZOPERATIONTIMEOUT;
      call->done_changed.wait_for(lock, left);
    }
    return call->code;
  }

  MonotonicTime Deadline() const { return clock_.Monotonic() + options_.operation_timeout; }
  milliseconds StaleAfter() const { return std::min(kStaleTimeouts * options_.session_timeout, kStaleMax); }
  std::string Path(const std::string& path) const { return options_.connect.chroot + path; }

  Result<std::shared_ptr<Call>> BeginGet(const std::string& path, MonotonicTime deadline) {
    return Begin(deadline, {}, path, [&](zhandle_t* library, Call&, const HeldCall* held) {
      return zoo_aget(library, Path(path).c_str(), 0, &OnData, held);
    });
  }
  Result<std::optional<NodeData>> EndGet(const std::shared_ptr<Call>& call, MonotonicTime deadline,
                                         const std::string& path) {
    const int code = Wait(call, deadline);
    if (code == ZNONODE) return std::optional<NodeData>{};
    if (code != ZOK) return ErrorOf(code, false, path);
    return std::optional(std::move(call->node));
  }

  Result<std::optional<NodeStat>> Exists(const std::string& path) {
    const MonotonicTime deadline = Deadline();
    LEAF_ASSIGN_OR_RETURN(const auto call,
                          Begin(deadline, {}, path, [&](zhandle_t* library, Call&, const HeldCall* held) {
                            return zoo_aexists(library, Path(path).c_str(), 0, &OnStat, held);
                          }));
    const int code = Wait(call, deadline);
    if (code == ZNONODE) return std::optional<NodeStat>{};
    if (code != ZOK) return ErrorOf(code, false, path);
    return std::optional(call->node.stat);
  }

  Result<std::optional<std::vector<std::string>>> Children(const std::string& path) {
    const MonotonicTime deadline = Deadline();
    LEAF_ASSIGN_OR_RETURN(const auto call,
                          Begin(deadline, {}, path, [&](zhandle_t* library, Call&, const HeldCall* held) {
                            return zoo_aget_children(library, Path(path).c_str(), 0, &OnStrings, held);
                          }));
    const int code = Wait(call, deadline);
    if (code == ZNONODE) return std::optional<std::vector<std::string>>{};
    if (code != ZOK) return ErrorOf(code, false, path);
    return std::optional(std::move(call->children));
  }

  Result<WriteOutcome> Write(const std::vector<Operation>& operations) {
    LEAF_CHECK(!operations.empty());
    const MonotonicTime deadline = Deadline();
    const std::string& first = operations.front().path;
    std::vector<Operation> absolute = operations;
    for (Operation& operation : absolute) operation.path = Path(operation.path);
    LEAF_ASSIGN_OR_RETURN(const auto call, Begin(deadline, std::move(absolute), first,
                                                 [&](zhandle_t* library, Call& c, const HeldCall* held) {
                                                   Prepare(c, OwnAccess());
                                                   return BeginTransaction(library, c, &OnVoid, held);
                                                 }));
    const int code = Wait(call, deadline);
    WriteOutcome outcome;
    if (code == ZOK) {
      for (std::size_t i = 0; i < operations.size(); ++i) {
        WriteOutcome::Part part;
        if (IsCreate(operations[i].kind)) {
          part.path = std::string(call->created[i].data()).substr(options_.connect.chroot.size());
        } else if (operations[i].kind == Operation::Kind::kSet) {
          part.stat = StatOf(call->stats[i]);
        }
        outcome.parts.push_back(std::move(part));
      }
      return outcome;
    }
    const auto conflict = ConflictOf(code);
    const bool refused = code == ZNOAUTH || code == ZINVALIDACL;
    // While the reply is missing, the library may still write to the results.
    if (!conflict && !refused) return ErrorOf(code, true, first);
    for (std::size_t i = 0; i < operations.size(); ++i) {
      if (call->library_results[i].err == code) {
        outcome.at = i;
        break;
      }
    }
    if (refused) return ErrorOf(code, true, operations[outcome.at].path);
    outcome.conflict = *conflict;
    return outcome;
  }

  Result<std::shared_ptr<Call>> BeginGetAccess(const std::string& path, MonotonicTime deadline) {
    return Begin(deadline, {}, path, [&](zhandle_t* library, Call&, const HeldCall* held) {
      return zoo_aget_acl(library, Path(path).c_str(), &OnAccess, held);
    });
  }
  Result<std::optional<NodeAccess>> EndGetAccess(const std::shared_ptr<Call>& call, MonotonicTime deadline,
                                                 const std::string& path) {
    const int code = Wait(call, deadline);
    if (code == ZNONODE) return std::optional<NodeAccess>{};
    // What may not even be read is not open.
    if (code == ZNOAUTH) return std::optional<NodeAccess>{NodeAccess{}};
    if (code != ZOK) return ErrorOf(code, false, path);
    return std::optional(std::move(call->access));
  }

  bool HasCredentials() const { return !options_.digest_auth.empty(); }

  Result<std::shared_ptr<Call>> BeginProtect(const Seen& node, MonotonicTime deadline) {
    return Begin(deadline, {}, node.path, [&](zhandle_t* library, Call&, const HeldCall* held) {
      return zoo_aset_acl(library, Path(node.path).c_str(), node.version, &OwnRules(), &OnVoid, held);
    });
  }
  Result<bool> EndProtect(const std::shared_ptr<Call>& call, MonotonicTime deadline, const Seen& node) {
    const int code = Wait(call, deadline);
    if (code == ZBADVERSION) return false;
    if (code != ZOK && code != ZNONODE) return ErrorOf(code, true, node.path);
    return true;
  }

  std::uint64_t Subscribe(std::function<void()> listener) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t id = next_listener_++;
    listeners_.emplace(id, std::make_shared<std::function<void()>>(std::move(listener)));
    return id;
  }
  void Unsubscribe(std::uint64_t id) {
    std::unique_lock lock(mutex_);
    listeners_.erase(id);
    changed_.wait(lock, [&] { return running_listener_ != id; });
  }

 private:
  struct Handle;
  // What the library gets as its context: stays where it is until the library has answered, or is closed.
  struct HeldCall {
    std::shared_ptr<Call> call;
    Impl* session = nullptr;
    Handle* handle = nullptr;
  };
  struct Handle {
    Impl* session = nullptr;
    zhandle_t* library = nullptr;
    MonotonicTime opened;
    bool connected = false;
    bool ready = false;     // it has been told of the password: what is sent before that is sent without one
    bool has_seen = false;  // it was connected once: the library remembers the newest change that it has seen
    bool broken = false;    // for good: expired, or not authenticated
    std::map<const Call*, HeldCall> calls;
  };

  static bool IsCreate(Operation::Kind kind) {
    return kind == Operation::Kind::kCreate || kind == Operation::Kind::kCreateSequential ||
           kind == Operation::Kind::kCreateEphemeral;
  }

  // What CreateOwn gives a node.
  const ACL_vector& OwnAccess() const { return HasCredentials() ? OwnRules() : ZOO_OPEN_ACL_UNSAFE; }

  static void Prepare(Call& call, const ACL_vector& own) {
    const std::size_t count = call.operations.size();
    call.library_operations.resize(count);
    call.created.resize(count);
    call.stats.resize(count);
    call.library_results.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const Operation& operation = call.operations[i];
      zoo_op_t* const out = &call.library_operations[i];
      const char* const path = operation.path.c_str();
      const int size = static_cast<int>(operation.data.size());
      call.library_results[i] = {};
      switch (operation.kind) {
        case Operation::Kind::kCreate:
        case Operation::Kind::kCreateSequential:
        case Operation::Kind::kCreateEphemeral:
          zoo_create_op_init(
              out, path, operation.data.data(), size, operation.own ? &own : &ZOO_OPEN_ACL_UNSAFE,
              operation.kind == Operation::Kind::kCreate             ? ZOO_PERSISTENT
              : operation.kind == Operation::Kind::kCreateSequential ? ZOO_PERSISTENT_SEQUENTIAL
                                                                     : ZOO_EPHEMERAL,
              call.created[i].data(), static_cast<int>(call.created[i].size()));
          break;
        case Operation::Kind::kSet:
          zoo_set_op_init(out, path, operation.data.data(), size, operation.version, &call.stats[i]);
          break;
        case Operation::Kind::kDelete:
          zoo_delete_op_init(out, path, operation.version);
          break;
        case Operation::Kind::kCheck:
          zoo_check_op_init(out, path, operation.version);
          break;
      }
    }
  }

  // ---- the library's threads

  // Fills in the answer and wakes the caller, if one still waits.
  template <typename Fill>
  static void Complete(const void* context, int code, Fill fill) {
    const auto* const held = static_cast<const HeldCall*>(context);
    Impl& session = *held->session;
    const std::lock_guard lock(session.mutex_);
    const std::shared_ptr<Call> call = held->call;
    held->handle->calls.erase(call.get());
    if (call->done) return;
    call->done = true;
    call->code = code;
    if (code == ZOK) fill(*call);
    call->done_changed.notify_all();
  }
  static void OnVoid(int code, const void* context) {
    Complete(context, code, [](Call&) {});
  }
  static void OnStat(int code, const Stat* stat, const void* context) {
    Complete(context, code, [&](Call& call) { call.node.stat = StatOf(*stat); });
  }
  static void OnData(int code, const char* data, int size, const Stat* stat, const void* context) {
    Complete(context, code, [&](Call& call) {
      // A node without data has size -1.
      if (size > 0) call.node.data.assign(data, static_cast<std::size_t>(size));
      call.node.stat = StatOf(*stat);
    });
  }
  static void OnAccess(int code, ACL_vector* rules, Stat* stat, const void* context) {
    Complete(context, code, [&](Call& call) { call.access = AccessOf(*rules, *stat); });
  }
  static void OnStrings(int code, const String_vector* strings, const void* context) {
    Complete(context, code, [&](Call& call) {
      for (int i = 0; i < strings->count; ++i) call.children.emplace_back(strings->data[i]);
    });
  }
  static void OnEvent(zhandle_t* library, int type, int state, const char*, void* context) {
    if (type != ZOO_SESSION_EVENT) return;
    auto& handle = *static_cast<Handle*>(context);
    handle.session->OnState(handle, library, state);
  }

  void OnState(Handle& handle, zhandle_t* library, int state) {
    const std::lock_guard lock(mutex_);
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
      // Whoever says so answers: the next session is worth waiting for.
      disconnected_since_ = clock_.Monotonic();
      FinishAll(handle, auth_failed_ ? ZAUTHFAILED : ZSESSIONEXPIRED);
    } else if (was_connected) {
      disconnected_since_ = clock_.Monotonic();
      log_.Warning("ZooKeeper: connection lost");
    }
    changed_.notify_all();
  }

  // Requires mutex_. The library may still hold on to them: they stay where they are.
  static void FinishAll(Handle& handle, int code) {
    for (auto& [key, held] : handle.calls) {
      if (std::exchange(held.call->done, true)) continue;
      held.call->code = code;
      held.call->done_changed.notify_all();
    }
  }

  // ---- our own thread: opens and closes handles, and tells of new sessions

  void Work() {
    std::unique_lock lock(mutex_);
    milliseconds pause{0};
    milliseconds short_lived{0};  // the last pause after a session that did not last
    while (!closing_) {
      if (!handle_) {
        if (pause.count() > 0) {
          const MonotonicTime until = clock_.Monotonic() + pause;
          while (!closing_ && clock_.Monotonic() < until) changed_.wait_for(lock, until - clock_.Monotonic());
          if (closing_) break;
        }
        OpenHandle(lock);
        pause = handle_ ? milliseconds{0} : std::clamp(pause * 2, kReopenMin, kReopenMax);
      } else if (handle_->broken) {
        // One that did not last is not replaced in a tight loop.
        const bool lasted = clock_.Monotonic() - handle_->opened >= kReopenMax;
        short_lived = lasted ? milliseconds{0} : std::clamp(short_lived * 2, kReopenMin, kReopenMax);
        pause = short_lived;
        CloseHandle(lock);
      } else if (std::exchange(announce_, false)) {
        Announce(lock);
      } else if (handle_->connected || !handle_->has_seen) {
        changed_.wait(lock);
      } else if (const auto left = disconnected_since_ + StaleAfter() - clock_.Monotonic();
                 left > left.zero()) {
        changed_.wait_for(lock, left);
      } else {
        // A server refuses a client that has seen a newer change than the server has, as after a restore, and
        // the library never forgets what it has seen. The old session must not be resumed: of its nodes, the
        // servers may have lost some.
        log_.Warning(
            "ZooKeeper: no connection for {}: opening a new session, in case the servers' data went back",
            FormatDuration(StaleAfter()));
        session_id_ = 0;
        CloseHandle(lock);
      }
    }
    if (handle_) CloseHandle(lock);
    session_id_ = 0;
  }

  // Requires mutex_, which is released meanwhile: names are looked up.
  void OpenHandle(std::unique_lock<std::mutex>& lock) {
    auto handle = std::make_unique<Handle>();
    handle->session = this;
    handle->opened = clock_.Monotonic();
    Handle* const opened = handle.get();
    handle_ = std::move(handle);
    lock.unlock();
    errno = 0;
    zhandle_t* const library = zookeeper_init2(options_.connect.hosts.c_str(), &OnEvent,
                                               static_cast<int>(options_.session_timeout.count()), nullptr,
                                               opened, 0, &OnLibraryLog);
    const int error_number = errno;
    if (library != nullptr && !options_.digest_auth.empty()) {
      // Kept by the library, and said again at each connection.
      zoo_add_auth(library, "digest", options_.digest_auth.data(),
                   static_cast<int>(options_.digest_auth.size()), nullptr, nullptr);
    }
    lock.lock();
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
    changed_.notify_all();
  }

  // Requires mutex_, which is released meanwhile. No new call reaches the handle any more.
  void CloseHandle(std::unique_lock<std::mutex>& lock) {
    const std::unique_ptr<Handle> handle = std::move(handle_);
    handle->connected = false;
    FinishAll(*handle, ZCLOSING);
    lock.unlock();
    // Joins the library's threads, after which nothing of it calls us.
    zookeeper_close(handle->library);
    lock.lock();
    handle->calls.clear();
  }

  // Requires mutex_, which is released during each call.
  void Announce(std::unique_lock<std::mutex>& lock) {
    std::vector<std::uint64_t> ids;
    for (const auto& [id, listener] : listeners_) ids.push_back(id);
    for (const std::uint64_t id : ids) {
      const auto found = listeners_.find(id);
      if (found == listeners_.end() || closing_) continue;
      const auto listener = found->second;
      running_listener_ = id;
      lock.unlock();
      (*listener)();
      lock.lock();
      running_listener_ = 0;
      changed_.notify_all();
    }
  }

  const SessionOptions options_;
  const Clock& clock_;
  Logger& log_;
  const LibraryLog library_log_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_:
  bool closing_ = false;
  std::unique_ptr<Handle> handle_;  // its library pointer is null while it is being opened
  MonotonicTime disconnected_since_;
  std::int64_t session_id_ = 0;
  std::uint64_t sessions_ = 0;
  bool auth_failed_ = false;
  bool open_failed_ = false;
  bool announce_ = false;
  std::map<std::uint64_t, std::shared_ptr<std::function<void()>>> listeners_;
  std::uint64_t next_listener_ = 1;
  std::uint64_t running_listener_ = 0;

  std::mutex join_mutex_;
  std::thread thread_;
};

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

Result<std::optional<NodeData>> Session::Get(const std::string& path) {
  const MonotonicTime deadline = impl_->Deadline();
  LEAF_ASSIGN_OR_RETURN(const auto call, impl_->BeginGet(path, deadline));
  return impl_->EndGet(call, deadline, path);
}

Result<std::vector<std::optional<NodeData>>> Session::GetAll(const std::vector<std::string>& paths) {
  const MonotonicTime deadline = impl_->Deadline();
  std::vector<std::shared_ptr<Call>> calls;
  for (const std::string& path : paths) {
    LEAF_ASSIGN_OR_RETURN(auto call, impl_->BeginGet(path, deadline));
    calls.push_back(std::move(call));
  }
  std::vector<std::optional<NodeData>> nodes;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    LEAF_ASSIGN_OR_RETURN(auto node, impl_->EndGet(calls[i], deadline, paths[i]));
    nodes.push_back(std::move(node));
  }
  return nodes;
}

Result<std::optional<NodeStat>> Session::Exists(const std::string& path) { return impl_->Exists(path); }
Result<std::optional<std::vector<std::string>>> Session::Children(const std::string& path) {
  return impl_->Children(path);
}
Result<WriteOutcome> Session::Write(const std::vector<Operation>& operations) {
  return impl_->Write(operations);
}

Result<std::vector<std::optional<NodeAccess>>> Session::GetAccess(const std::vector<std::string>& paths) {
  const MonotonicTime deadline = impl_->Deadline();
  std::vector<std::shared_ptr<Call>> calls;
  for (const std::string& path : paths) {
    LEAF_ASSIGN_OR_RETURN(auto call, impl_->BeginGetAccess(path, deadline));
    calls.push_back(std::move(call));
  }
  std::vector<std::optional<NodeAccess>> rules;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    LEAF_ASSIGN_OR_RETURN(auto access, impl_->EndGetAccess(calls[i], deadline, paths[i]));
    rules.push_back(std::move(access));
  }
  return rules;
}

Result<bool> Session::Protect(const std::vector<Seen>& nodes) {
  if (!impl_->HasCredentials()) {
    return Error{ErrorCode::kPermission, "without credentials no node of ZooKeeper can be protected",
                 "set zookeeper.auth_file"};
  }
  const MonotonicTime deadline = impl_->Deadline();
  std::vector<std::shared_ptr<Call>> calls;
  for (const Seen& node : nodes) {
    LEAF_ASSIGN_OR_RETURN(auto call, impl_->BeginProtect(node, deadline));
    calls.push_back(std::move(call));
  }
  bool as_seen = true;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    LEAF_ASSIGN_OR_RETURN(const bool done, impl_->EndProtect(calls[i], deadline, nodes[i]));
    as_seen = as_seen && done;
  }
  return as_seen;
}

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
