// A ZooKeeper ensemble and the sessions of its clients: late and lost writes, sessions that run out, servers
// that are behind, nodes that are cut off.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "leaf/zookeeper/client.h"
#include "sim/world.h"
#include "support/zookeeper_fakes.h"

namespace leaf::sim {

class Ensemble {
 public:
  explicit Ensemble(World& world) : world_(world) {}

  // Ends sessions in which no client has spoken for long; a task of its own.
  void Live(const Process& outside);

  // ---- what goes wrong, until it is said again
  bool away = false;
  double refuses = 0;               // probability of a call that fails before anything happened
  double loses_reply = 0;           // of a write that happened; the client is not told
  double is_late = 0;               // of a write that happens later
  double is_behind = 0;             // of a new session at a server that is behind
  std::set<std::uint64_t> cut_off;  // nodes that do not reach it
  // Ends every session of this node.
  void Expire(std::uint64_t node);
  // The servers start again with what they had `age` ago, or with nothing. They know no session that there
  // was, and refuse clients that have seen more until those begin anew, as ours do after kStaleMax. Nothing
  // that was on its way arrives.
  void Restore(Nanos age);
  void Wipe();
  bool keeps_backups = false;  // for Restore

  testing::MemoryZooKeeper& tree() { return tree_; }
  World& world() { return world_; }

  static constexpr Nanos kSessionTimeout = 10 * kSecond;

 private:
  friend class SimClient;
  struct Session {
    std::uint64_t node = 0;
    Nanos heard_at = 0;
  };
  std::int64_t Open(std::uint64_t node);
  bool Lives(std::int64_t session) const { return sessions_.contains(session); }
  void End(std::int64_t session);
  // A tree as a server had it a while ago; nothing if none is behind.
  std::optional<testing::MemoryZooKeeper::Nodes> SomeOldTree();
  void GoBack();

  World& world_;
  testing::MemoryZooKeeper tree_;
  std::map<std::int64_t, Session> sessions_;
  std::deque<testing::MemoryZooKeeper::Nodes> old_trees_;
  struct Backup {
    Nanos at = 0;
    testing::MemoryZooKeeper::Nodes nodes;
  };
  std::deque<Backup> backups_;
  std::uint64_t incarnation_ = 0;  // how often it went back
  Nanos went_back_at_ = 0;
  std::map<std::int64_t, Nanos> orphans_;  // sessions whose ephemeral nodes are left, and when they run out
};

// One process's client, with a session that is made anew when it is lost.
class SimClient final : public zookeeper::Client {
 public:
  SimClient(Ensemble& ensemble, Process& process, std::uint64_t node);
  ~SimClient() override;

  Result<std::optional<zookeeper::NodeData>> Get(const std::string& path) override;
  Result<std::optional<zookeeper::NodeStat>> Exists(const std::string& path) override;
  Result<std::optional<std::vector<std::string>>> Children(const std::string& path) override;
  Result<std::vector<std::optional<zookeeper::NodeData>>> GetAll(
      const std::vector<std::string>& paths) override;
  Result<zookeeper::WriteOutcome> Write(const std::vector<zookeeper::Operation>& operations) override;
  std::int64_t session_id() const override { return session_; }
  std::unique_ptr<Subscription> OnNewSession(std::function<void()> listener) override;

  // The orderly end: the session ends at once.
  void Close();

 private:
  // Keeps the session alive, or gets a new one; a task of its own.
  void Keep();
  void Open();
  bool Reaches() const { return !ensemble_.away && !ensemble_.cut_off.contains(node_); }
  // The way there; afterwards the call takes effect.
  Result<void> Ask();
  void Travel();
  std::optional<zookeeper::NodeData> Look(const std::string& path) const;

  Ensemble& ensemble_;
  Process& process_;
  const std::uint64_t node_;
  std::int64_t session_ = 0;
  std::uint64_t incarnation_ = 0;  // of the servers, in which the session was begun
  // What this session sees until it has written, or its server has caught up.
  std::optional<testing::MemoryZooKeeper::Nodes> behind_;
  Nanos behind_until_ = 0;
  std::map<int, std::function<void()>> listeners_;
  int next_listener_ = 0;
};

}  // namespace leaf::sim
