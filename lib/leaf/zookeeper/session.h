// A session with ZooKeeper over its C client, asynchronous underneath and blocking above: every call has a
// deadline, however silent the servers are. No sources but the session's know zookeeper.h.
//
// The C client reconnects within a session by itself. A session that has expired is final there: a thread of
// ours closes its handle and opens the next one. The same happens to a handle that has had no connection for
// two session time-outs, and kStaleMax at most, after one: servers whose data went back refuse a client that
// has seen more, and the C client never forgets. The client's own threads only ever note down what happened;
// nothing of ours blocks them, and nothing is closed from them.
//
// The session repeats a read whose connection is lost, until the read's deadline: a server that stands still
// for a while costs time, and no error. The repeated read may run in a new session.
//
// A write whose connection is lost, or whose deadline passes, may take effect at any later time: it is
// kOutcomeUnknown, never kUnavailable. What was never handed to the client is kUnavailable.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/base/result.h"
#include "leaf/zookeeper/client.h"
#include "leaf/zookeeper/connect_string.h"

namespace leaf::zookeeper {

// For how long a session may be without a connection before another one is begun, however long its time-out:
// other nodes count on it (kClaimWatch).
inline constexpr std::chrono::milliseconds kStaleMax{12'000};

struct SessionOptions {
  ConnectString connect;
  std::chrono::milliseconds session_timeout{6000};  // asked for; the servers have the last word
  // Longest wait of one call. Calls that come when there has been no connection for so long fail at once.
  std::chrono::milliseconds operation_timeout{2000};
  // "user:password", or "" for none. With it, only these credentials may change what CreateOwn makes.
  std::string digest_auth;
};

// Thread-safe. Clock and log outlive it.
class Session final : public AccessClient {
 public:
  // Begins to connect and does not wait for it. Errors: kConfig (auth that is not user:password).
  static Result<std::unique_ptr<Session>> Open(SessionOptions options, const Clock& clock, Logger& log);
  ~Session() override;

  // Ends the session, and with it its ephemeral nodes, and every call under way. Bounded: what does not
  // answer is left behind. Idempotent.
  void Close();

  bool connected() const;
  bool has_credentials() const;
  // How many sessions there were so far.
  std::uint64_t sessions() const;

  Result<std::optional<NodeData>> Get(const std::string& path) override;
  Result<std::optional<NodeStat>> Exists(const std::string& path) override;
  Result<std::optional<std::vector<std::string>>> Children(const std::string& path) override;
  Result<std::vector<std::optional<NodeData>>> GetAll(const std::vector<std::string>& paths) override;
  Result<WriteOutcome> Write(const std::vector<Operation>& operations) override;
  Result<std::vector<std::optional<NodeAccess>>> GetAccess(const std::vector<std::string>& paths) override;
  Result<bool> Protect(const std::vector<Seen>& nodes) override;
  std::int64_t session_id() const override;
  std::unique_ptr<Subscription> OnNewSession(std::function<void()> listener) override;

 private:
  class Impl;
  explicit Session(std::shared_ptr<Impl> impl);

  const std::shared_ptr<Impl> impl_;  // shared with subscriptions only
};

}  // namespace leaf::zookeeper
