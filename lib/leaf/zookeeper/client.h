// What the registries need of ZooKeeper: a small port, so that their protocols can be tested against a tree
// in memory that loses replies, is late, and forgets sessions.
//
// All calls block, each up to a deadline of the implementation's, and are thread-safe. Calls of one session
// take effect, and see the tree, in the order in which they are made; what a write was acknowledged for is
// seen by every later read of the *same session*. A new session may look at an older tree.
//
// Errors: kUnavailable (nothing happened), kOutcomeUnknown (of a write: it may happen, now or much later),
// kPermission (authentication, access rules; names the path), kConfig, kInternal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/base/time.h"

namespace leaf::zookeeper {

struct NodeStat {
  std::int32_t version = 0;        // of the data: 0 when created; begins anew if deleted and made again
  std::int32_t child_version = 0;  // children created and deleted
  std::int32_t children = 0;
  std::int64_t created_zxid = 0;
  std::int64_t modified_zxid = 0;    // of the data
  WallTime modified_at;              // by the servers' clocks
  std::int64_t ephemeral_owner = 0;  // session, or 0
  friend bool operator==(const NodeStat&, const NodeStat&) = default;
};

struct NodeData {
  std::string data;
  NodeStat stat;
};

// Which clients may change a node.
struct NodeAccess {
  std::string rules;         // for people: "world:anyone:cdrwa"
  bool open = false;         // every client may change it, or what is below it
  std::int32_t version = 0;  // of the rules
  NodeStat stat;             // nothing but zeros if the rules may not be read
};

// One part of a transaction.
struct Operation {
  enum class Kind { kCreate, kCreateSequential, kCreateEphemeral, kSet, kDelete, kCheck };
  static constexpr std::int32_t kAnyVersion = -1;

  // A node of Leaf's tree: open to every client, as a Java node has no credentials.
  static Operation Create(std::string path, std::string data) {
    return {Kind::kCreate, std::move(path), std::move(data), kAnyVersion};
  }
  // A node of leafctl's own: where the client has credentials, only they may change it, and every client may
  // read it.
  static Operation CreateOwn(std::string path, std::string data) {
    return {Kind::kCreate, std::move(path), std::move(data), kAnyVersion, true};
  }
  static Operation CreateSequential(std::string prefix, std::string data) {
    return {Kind::kCreateSequential, std::move(prefix), std::move(data), kAnyVersion};
  }
  // Of leafctl's own, like CreateOwn: Leaf has none.
  static Operation CreateEphemeral(std::string path, std::string data) {
    return {Kind::kCreateEphemeral, std::move(path), std::move(data), kAnyVersion, true};
  }
  static Operation Set(std::string path, std::string data, std::int32_t version) {
    return {Kind::kSet, std::move(path), std::move(data), version};
  }
  static Operation Delete(std::string path, std::int32_t version) {
    return {Kind::kDelete, std::move(path), "", version};
  }
  static Operation Check(std::string path, std::int32_t version) {
    return {Kind::kCheck, std::move(path), "", version};
  }

  Kind kind = Kind::kCheck;
  std::string path;
  std::string data;
  std::int32_t version = kAnyVersion;
  bool own = false;  // of leafctl's own; for what is created
};

// What became of a transaction: all of it happened, or nothing.
struct WriteOutcome {
  enum class Conflict { kNone, kExists, kMissing, kVersion, kNotEmpty };
  struct Part {
    std::string path;              // of what was created
    std::optional<NodeStat> stat;  // of what was set
  };

  bool done() const { return conflict == Conflict::kNone; }

  Conflict conflict = Conflict::kNone;
  std::size_t at = 0;       // the operation that could not be done
  std::vector<Part> parts;  // one for each operation, if done
};

class Client {
 public:
  virtual ~Client() = default;

  // Nothing if there is no such node, for all three.
  virtual Result<std::optional<NodeData>> Get(const std::string& path) = 0;
  virtual Result<std::optional<NodeStat>> Exists(const std::string& path) = 0;
  virtual Result<std::optional<std::vector<std::string>>> Children(const std::string& path) = 0;
  // As Get of each, in one go.
  virtual Result<std::vector<std::optional<NodeData>>> GetAll(const std::vector<std::string>& paths) = 0;
  // One transaction. Requires: at least one operation.
  virtual Result<WriteOutcome> Write(const std::vector<Operation>& operations) = 0;

  // Of the session that calls are made in at present; 0 if there is none.
  virtual std::int64_t session_id() const = 0;

  // Calls `listener` on a thread that may block whenever there is a new session, whose ephemeral nodes have
  // to be made again. Not for the session there is. Once the subscription is gone, no call is made or under
  // way.
  class Subscription {
   public:
    virtual ~Subscription() = default;
  };
  virtual std::unique_ptr<Subscription> OnNewSession(std::function<void()> listener) = 0;
};

// A client that also sees, and sets, the access rules of nodes. What issues IDs does not need it.
class AccessClient : public Client {
 public:
  // In one go. Nothing where there is no such node.
  virtual Result<std::vector<std::optional<NodeAccess>>> GetAccess(const std::vector<std::string>& paths) = 0;

  struct Seen {
    std::string path;
    std::int32_t version = 0;  // of the rules
  };
  // Gives each node the rules of Operation::CreateOwn, if its rules are as they were seen. Not a transaction:
  // ZooKeeper has none for rules. False if the rules of some had changed; the others are done. One that has
  // gone needs none. Errors: Client's; kPermission without credentials.
  virtual Result<bool> Protect(const std::vector<Seen>& nodes) = 0;
};

}  // namespace leaf::zookeeper
