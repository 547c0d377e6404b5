// ZooKeeper in memory: a tree with its versions and counters, and clients of it that lose replies, are late,
// lose their session, look at an older tree, and let others in between any two of their calls.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "leaf/zookeeper/client.h"
#include "support/fakes.h"

namespace leaf::testing {

// Time that passes only in waits, with something that happens meanwhile.
class HookedClock final : public Clock {
 public:
  HookedClock() : clock_(own_) {}
  // On the time of `shared`, which outlives it.
  explicit HookedClock(FakeClock& shared) : clock_(shared) {}
  WallTime Wall() const override { return clock_.Wall(); }
  MonotonicTime Monotonic() const override { return clock_.Monotonic(); }
  BootTime Boot() const override { return clock_.Boot(); }
  void WaitUntil(MonotonicTime time) const override {
    clock_.WaitUntil(time);
    std::function<void()> hook;
    {
      const std::lock_guard lock(mutex_);
      hook = on_wait_;
    }
    if (hook) hook();
  }
  void OnWait(std::function<void()> hook) {
    const std::lock_guard lock(mutex_);
    on_wait_ = std::move(hook);
  }
  FakeClock& fake() { return clock_; }

 private:
  FakeClock own_;
  FakeClock& clock_;
  mutable std::mutex mutex_;
  std::function<void()> on_wait_;
};

// The servers. Thread-safe.
class MemoryZooKeeper {
 public:
  using Operation = zookeeper::Operation;
  using WriteOutcome = zookeeper::WriteOutcome;
  struct Node {
    std::string data;
    zookeeper::NodeStat stat;
    std::int32_t created_children = 0;
    bool open = true;  // every client may change it; nothing here keeps one from it
    std::int32_t access_version = 0;
  };
  using Nodes = std::map<std::string, Node>;

  MemoryZooKeeper() { nodes_[""] = {}; }
  // Nodes say when they were written. The clock outlives the servers.
  explicit MemoryZooKeeper(const Clock& clock) : MemoryZooKeeper() { clock_ = &clock; }

  WriteOutcome Apply(const std::vector<Operation>& operations, std::int64_t session) {
    const std::lock_guard lock(mutex_);
    WriteOutcome outcome;
    ++zxid_;
    if (operations.size() == 1) {
      outcome.parts.resize(1);
      outcome.conflict = Do(nodes_, operations[0], session, outcome.parts[0]);
      if (!outcome.done()) outcome.parts.clear();
      return outcome;
    }
    Nodes next = nodes_;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      WriteOutcome::Part part;
      outcome.conflict = Do(next, operations[i], session, part);
      if (!outcome.done()) {
        outcome.at = i;
        outcome.parts.clear();
        return outcome;
      }
      outcome.parts.push_back(std::move(part));
    }
    nodes_ = std::move(next);
    return outcome;
  }
  Nodes Snapshot() const {
    const std::lock_guard lock(mutex_);
    return nodes_;
  }
  // From a backup: what was written since is gone. Sessions that began since are unknown to it.
  void Restore(Nodes nodes) {
    const std::lock_guard lock(mutex_);
    nodes_ = std::move(nodes);
    zxid_ = 0;
    for (const auto& [path, node] : nodes_) zxid_ = std::max(zxid_, node.stat.modified_zxid);
  }
  // An empty volume.
  void Wipe() { Restore({{"", {}}}); }
  std::int64_t NewSession() {
    const std::lock_guard lock(mutex_);
    return ++session_;
  }
  // The session has credentials from now on.
  void Authenticate(std::int64_t session) {
    const std::lock_guard lock(mutex_);
    authenticated_.insert(session);
  }
  // False if its rules are not those that were seen.
  bool Protect(const std::string& path, std::int32_t access_version) {
    const std::lock_guard lock(mutex_);
    const auto found = nodes_.find(path);
    if (found == nodes_.end()) return true;
    if (found->second.access_version != access_version) return false;
    ++found->second.access_version;
    found->second.open = false;
    return true;
  }
  void EndSession(std::int64_t session) {
    const std::lock_guard lock(mutex_);
    ++zxid_;
    std::vector<std::string> gone;
    for (const auto& [path, node] : nodes_) {
      if (node.stat.ephemeral_owner == session) gone.push_back(path);
    }
    for (const std::string& path : gone) {
      WriteOutcome::Part part;
      Do(nodes_, Operation::Delete(path, Operation::kAnyVersion), session, part);
    }
  }

  // As an operator, or Java: without conditions.
  std::string Create(const std::string& path, const std::string& data) {
    return Apply({Operation::Create(path, data)}, 0).parts.at(0).path;
  }
  std::string CreateSequential(const std::string& prefix, const std::string& data) {
    return Apply({Operation::CreateSequential(prefix, data)}, 0).parts.at(0).path;
  }
  bool Set(const std::string& path, const std::string& data) {
    return Apply({Operation::Set(path, data, Operation::kAnyVersion)}, 0).done();
  }
  bool Delete(const std::string& path) {
    return Apply({Operation::Delete(path, Operation::kAnyVersion)}, 0).done();
  }
  std::optional<std::string> Data(const std::string& path) const {
    const std::lock_guard lock(mutex_);
    const auto found = nodes_.find(path);
    return found == nodes_.end() ? std::nullopt : std::optional(found->second.data);
  }
  std::vector<std::string> Children(const std::string& path) const {
    const std::lock_guard lock(mutex_);
    return ChildrenIn(nodes_, path);
  }
  std::optional<Node> Find(const std::string& path) const {
    const std::lock_guard lock(mutex_);
    return FindIn(nodes_, path);
  }

  static std::optional<Node> FindIn(const Nodes& nodes, const std::string& path) {
    const auto found = nodes.find(path);
    return found == nodes.end() ? std::nullopt : std::optional(found->second);
  }
  static std::vector<std::string> ChildrenIn(const Nodes& nodes, const std::string& path) {
    std::vector<std::string> children;
    const std::string prefix = path + "/";
    for (auto node = nodes.lower_bound(prefix); node != nodes.end() && node->first.starts_with(prefix);
         ++node) {
      if (node->first.find('/', prefix.size()) == std::string::npos)
        children.push_back(node->first.substr(prefix.size()));
    }
    return children;
  }

 private:
  // Requires mutex_.
  WriteOutcome::Conflict Do(Nodes& nodes, const Operation& operation, std::int64_t session,
                            WriteOutcome::Part& part) {
    using Conflict = WriteOutcome::Conflict;
    const auto found = nodes.find(operation.path);
    switch (operation.kind) {
      case Operation::Kind::kCreate:
      case Operation::Kind::kCreateSequential:
      case Operation::Kind::kCreateEphemeral: {
        const auto parent = nodes.find(operation.path.substr(0, operation.path.rfind('/')));
        if (parent == nodes.end()) return Conflict::kMissing;
        std::string path = operation.path;
        if (operation.kind == Operation::Kind::kCreateSequential)
          path += fmt::format("{:010}", parent->second.created_children);
        if (nodes.count(path) > 0) return Conflict::kExists;
        ++parent->second.created_children;
        ++parent->second.stat.child_version;
        ++parent->second.stat.children;
        Node node{operation.data, {}, 0, !operation.own || authenticated_.count(session) == 0, 0};
        node.stat.created_zxid = node.stat.modified_zxid = zxid_;
        if (clock_ != nullptr) node.stat.modified_at = clock_->Wall();
        if (operation.kind == Operation::Kind::kCreateEphemeral) node.stat.ephemeral_owner = session;
        nodes.emplace(path, std::move(node));
        part.path = path;
        return Conflict::kNone;
      }
      case Operation::Kind::kSet:
      case Operation::Kind::kCheck:
      case Operation::Kind::kDelete:
        break;
    }
    if (found == nodes.end()) return Conflict::kMissing;
    if (operation.version != Operation::kAnyVersion && operation.version != found->second.stat.version)
      return Conflict::kVersion;
    if (operation.kind == Operation::Kind::kSet) {
      found->second.data = operation.data;
      ++found->second.stat.version;
      found->second.stat.modified_zxid = zxid_;
      if (clock_ != nullptr) found->second.stat.modified_at = clock_->Wall();
      part.stat = found->second.stat;
    } else if (operation.kind == Operation::Kind::kDelete) {
      if (found->second.stat.children > 0) return Conflict::kNotEmpty;
      Node& parent = nodes.at(operation.path.substr(0, operation.path.rfind('/')));
      ++parent.stat.child_version;
      --parent.stat.children;
      nodes.erase(found);
    }
    return Conflict::kNone;
  }

  const Clock* clock_ = nullptr;
  mutable std::mutex mutex_;
  Nodes nodes_;
  std::int64_t zxid_ = 0;
  std::int64_t session_ = 0;
  std::set<std::int64_t> authenticated_;
};

// One client. Its calls are counted; what goes wrong is said beforehand. For one thread.
class MemoryClient final : public zookeeper::AccessClient {
 public:
  explicit MemoryClient(MemoryZooKeeper& server) : server_(server), session_(server.NewSession()) {}
  ~MemoryClient() override { server_.EndSession(session_); }

  enum class Fault {
    kLostReply,  // it happens; the client is not told
    kLate,       // it happens when LandLate is called
    kDown,       // it does not happen
  };
  // Write number `index` from now (from 0) fails like that.
  void FailWrite(int index, Fault fault) {
    fault_at_ = writes_ + index;
    fault_ = fault;
  }
  bool failed() const { return failed_; }
  void ClearFault() { fault_at_ = -1; }
  void LandLate() {
    for (const auto& operations : std::exchange(late_, {})) server_.Apply(operations, session_);
  }
  void SetDown(bool down) { down_ = down; }
  // Runs once, before call number `index` from now (from 0).
  void BeforeCall(int index, std::function<void()> hook) {
    hook_at_ = calls_ + index;
    hook_ = std::move(hook);
  }
  int calls() const { return calls_; }
  int writes() const { return writes_; }

  // The session is gone; the next one begins at once, possibly at a server that is behind: it shows `stale`
  // until it has taken a write. Listeners are told of it by Announce.
  void Expire(std::optional<MemoryZooKeeper::Nodes> stale = std::nullopt) {
    server_.EndSession(session_);
    session_ = server_.NewSession();
    if (authenticated_) server_.Authenticate(session_);
    stale_ = std::move(stale);
  }
  // Has credentials, in this session and in those to come.
  void Authenticate() {
    authenticated_ = true;
    server_.Authenticate(session_);
  }
  void Announce() {
    for (const auto& [id, listener] : std::map(listeners_)) listener();
  }

  Result<std::optional<zookeeper::NodeData>> Get(const std::string& path) override {
    LEAF_RETURN_IF_ERROR(Begin());
    return Look(path);
  }
  Result<std::optional<zookeeper::NodeStat>> Exists(const std::string& path) override {
    LEAF_RETURN_IF_ERROR(Begin());
    const auto node = Look(path);
    return node ? std::optional(node->stat) : std::nullopt;
  }
  Result<std::optional<std::vector<std::string>>> Children(const std::string& path) override {
    LEAF_RETURN_IF_ERROR(Begin());
    if (!Look(path)) return std::optional<std::vector<std::string>>{};
    return std::optional(stale_ ? MemoryZooKeeper::ChildrenIn(*stale_, path) : server_.Children(path));
  }
  Result<std::vector<std::optional<zookeeper::NodeData>>> GetAll(
      const std::vector<std::string>& paths) override {
    LEAF_RETURN_IF_ERROR(Begin());
    std::vector<std::optional<zookeeper::NodeData>> nodes;
    for (const std::string& path : paths) nodes.push_back(Look(path));
    return nodes;
  }
  Result<zookeeper::WriteOutcome> Write(const std::vector<zookeeper::Operation>& operations) override {
    LEAF_RETURN_IF_ERROR(Begin());
    const bool fails = writes_++ == fault_at_;
    if (fails) failed_ = true;
    if (fails && fault_ == Fault::kDown) return Away();
    if (fails && fault_ == Fault::kLate) {
      late_.push_back(operations);
      return Lost();
    }
    stale_.reset();
    auto outcome = server_.Apply(operations, session_);
    if (fails) return Lost();
    return outcome;
  }
  Result<std::vector<std::optional<zookeeper::NodeAccess>>> GetAccess(
      const std::vector<std::string>& paths) override {
    LEAF_RETURN_IF_ERROR(Begin());
    std::vector<std::optional<zookeeper::NodeAccess>> rules;
    for (const std::string& path : paths) {
      const auto node = server_.Find(path);
      if (node) {
        rules.push_back(zookeeper::NodeAccess{node->open ? "world:anyone:cdrwa" : "digest:leaf:cdrwa",
                                              node->open, node->access_version, node->stat});
      } else {
        rules.push_back(std::nullopt);
      }
    }
    return rules;
  }
  Result<bool> Protect(const std::vector<Seen>& nodes) override {
    LEAF_RETURN_IF_ERROR(Begin());
    bool as_seen = true;
    for (const Seen& node : nodes) as_seen = server_.Protect(node.path, node.version) && as_seen;
    return as_seen;
  }
  std::int64_t session_id() const override { return session_; }

  std::unique_ptr<Subscription> OnNewSession(std::function<void()> listener) override {
    class Held final : public Subscription {
     public:
      Held(MemoryClient& client, int id) : client_(client), id_(id) {}
      ~Held() override { client_.listeners_.erase(id_); }

     private:
      MemoryClient& client_;
      const int id_;
    };
    listeners_.emplace(++next_listener_, std::move(listener));
    return std::make_unique<Held>(*this, next_listener_);
  }

 private:
  static Error Away() { return {ErrorCode::kUnavailable, "ZooKeeper is away", ""}; }
  static Error Lost() { return {ErrorCode::kOutcomeUnknown, "reply lost", ""}; }
  Result<void> Begin() {
    if (calls_++ == hook_at_ && hook_) std::exchange(hook_, nullptr)();
    if (down_) return Away();
    return {};
  }
  std::optional<zookeeper::NodeData> Look(const std::string& path) const {
    const auto found = stale_ ? MemoryZooKeeper::FindIn(*stale_, path) : server_.Find(path);
    if (!found) return std::nullopt;
    return zookeeper::NodeData{found->data, found->stat};
  }

  MemoryZooKeeper& server_;
  std::int64_t session_;
  std::optional<MemoryZooKeeper::Nodes> stale_;
  std::map<int, std::function<void()>> listeners_;
  int next_listener_ = 0;
  int calls_ = 0;
  int writes_ = 0;
  int hook_at_ = -1;
  std::function<void()> hook_;
  int fault_at_ = -1;
  Fault fault_ = Fault::kLostReply;
  bool failed_ = false;
  bool down_ = false;
  bool authenticated_ = false;
  std::vector<std::vector<zookeeper::Operation>> late_;
};

}  // namespace leaf::testing
