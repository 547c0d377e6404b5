// The session itself, for its two sources: session.cc connects it, session_calls.cc makes its calls.
#pragma once

#include <zookeeper/zookeeper.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/base/result.h"
#include "leaf/zookeeper/c_client.h"
#include "leaf/zookeeper/client.h"
#include "leaf/zookeeper/session.h"

namespace leaf::zookeeper {

class Session::Impl {
 public:
  // ---- connections (session.cc)

  Impl(SessionOptions options, const Clock& clock, Logger& log);
  ~Impl() { Close(); }

  void Close();

  bool connected() const;
  std::uint64_t sessions() const;
  std::int64_t session_id() const;
  bool HasCredentials() const { return !options_.digest_auth.empty(); }

  std::uint64_t Subscribe(std::function<void()> listener);
  void Unsubscribe(std::uint64_t id);

  // ---- calls (session_calls.cc): each Begin… is followed by its End…

  MonotonicTime Deadline() const { return clock_.Monotonic() + options_.operation_timeout; }

  Result<std::vector<std::optional<NodeData>>> GetAll(const std::vector<std::string>& paths);
  Result<std::optional<NodeStat>> Exists(const std::string& path);
  Result<std::optional<std::vector<std::string>>> Children(const std::string& path);
  Result<WriteOutcome> Write(const std::vector<Operation>& operations);
  Result<std::vector<std::optional<NodeAccess>>> GetAccess(const std::vector<std::string>& paths);
  Result<std::shared_ptr<Call>> BeginProtect(const Seen& node, MonotonicTime deadline);
  Result<bool> EndProtect(const std::shared_ptr<Call>& call, MonotonicTime deadline, const Seen& node);

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

  // ---- calls (session_calls.cc)

  // Hands a call to the library: `submit(zhandle, call)` returns its code. Waits for a connection first; what
  // is queued within the library could be sent by it much later. Nothing is handed over on an error.
  template <typename Submit>
  Result<std::shared_ptr<Call>> Begin(MonotonicTime deadline, std::vector<Operation> operations,
                                      std::string_view path, Submit submit);
  // Asks for all of them at once, and waits for the answers: `submit(zhandle, path, held)` returns a code of
  // the library. The calls have codes that are answers.
  template <typename Submit>
  Result<std::vector<std::shared_ptr<Call>>> Read(const std::vector<std::string>& paths, Submit submit);
  Error NoAnswer() const;
  // The call's code, or that of a time-out: then it may still complete, and is not looked at.
  int Wait(const std::shared_ptr<Call>& call, MonotonicTime deadline);
  std::string Path(const std::string& path) const { return options_.connect.chroot + path; }
  // What CreateOwn gives a node.
  const ACL_vector& OwnAccess() const { return HasCredentials() ? OwnRules() : ZOO_OPEN_ACL_UNSAFE; }

  // The following are called on the library's threads; `context` is a HeldCall.

  // Fills in the answer and wakes the caller, if one still waits.
  template <typename Fill>
  static void Complete(const void* context, int code, Fill fill);
  static void OnVoid(int code, const void* context);
  static void OnStat(int code, const Stat* stat, const void* context);
  static void OnData(int code, const char* data, int size, const Stat* stat, const void* context);
  static void OnAccess(int code, ACL_vector* rules, Stat* stat, const void* context);
  static void OnStrings(int code, const String_vector* strings, const void* context);

  // ---- connections (session.cc)

  std::chrono::milliseconds StaleAfter() const;
  // On the library's threads; `context` is a Handle.
  static void OnEvent(zhandle_t* library, int type, int state, const char* path, void* context);
  void OnState(Handle& handle, zhandle_t* library, int state);
  // The library may still hold on to them: they stay where they are.
  void FinishAll(Handle& handle, int code) LEAF_REQUIRES(mutex_);

  // On our own thread: opens and closes handles, and tells of new sessions.
  void Work();
  // The mutex is released meanwhile: names are looked up.
  void OpenHandle() LEAF_REQUIRES(mutex_);
  // The mutex is released meanwhile. No new call reaches the handle any more.
  void CloseHandle() LEAF_REQUIRES(mutex_);
  // The mutex is released during each call.
  void Announce() LEAF_REQUIRES(mutex_);

  const SessionOptions options_;
  const Clock& clock_;
  Logger& log_;
  const LibraryLog library_log_;

  mutable Mutex mutex_;
  Condition changed_;
  bool closing_ LEAF_GUARDED_BY(mutex_) = false;
  // Its library pointer is null while it is being opened.
  std::unique_ptr<Handle> handle_ LEAF_GUARDED_BY(mutex_);
  MonotonicTime disconnected_since_ LEAF_GUARDED_BY(mutex_);
  std::int64_t session_id_ LEAF_GUARDED_BY(mutex_) = 0;
  std::uint64_t sessions_ LEAF_GUARDED_BY(mutex_) = 0;
  bool auth_failed_ LEAF_GUARDED_BY(mutex_) = false;
  bool open_failed_ LEAF_GUARDED_BY(mutex_) = false;
  bool announce_ LEAF_GUARDED_BY(mutex_) = false;
  std::map<std::uint64_t, std::shared_ptr<std::function<void()>>> listeners_ LEAF_GUARDED_BY(mutex_);
  std::uint64_t next_listener_ LEAF_GUARDED_BY(mutex_) = 1;
  std::uint64_t running_listener_ LEAF_GUARDED_BY(mutex_) = 0;
  std::thread::id announcer_ LEAF_GUARDED_BY(mutex_);  // our own thread, while a listener runs

  Mutex join_mutex_;
  std::thread thread_ LEAF_GUARDED_BY(join_mutex_);
};

}  // namespace leaf::zookeeper
