// The nodes of a run, what starts them again, and what is done to them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "leaf/zookeeper/tree.h"
#include "sim/daemon.h"
#include "sim/java_leaf.h"

namespace leaf::cmd {
class TagOrderDesk;
}

namespace leaf::sim {

class Cluster {
 public:
  Cluster(Surroundings& around, Process& outside);
  ~Cluster();

  // Starts every node, and keeps each going; tasks of their own.
  void Start();
  // From a task outside. What `act.what` means is in cluster.cc; unknown kinds are refused by Plan.
  void Do(const Act& act);
  bool HasStarted(std::uint64_t node) const { return nodes_[node % nodes_.size()]->started; }
  // The same, all of it drawn: a kind of fault strikes somewhere.
  Act Draw(const std::string& kind);
  // Everything is put right, by the means an operator has. Blocks.
  void Heal();
  // Whether every node issues IDs of every tag within `patience`; breaks P7 in the history otherwise.
  void CheckRecovery(Nanos patience);
  // Whether no address has used up more than one number of Leaf's tree; breaks P8 in the history otherwise.
  void CheckNumbers();
  void CheckAlarms();
  // Every process dies. From outside of the world, which has to run once more.
  void KillAll();

  std::uint64_t acts() const { return acts_; }
  std::uint64_t starts() const { return starts_; }

 private:
  struct Node {
    std::uint64_t number = 0;
    bool java = false;       // what runs here now
    bool java_slot = false;  // what ran here first: its clock is left alone, for Java trusts it
    std::string own_address;
    std::string address;
    std::unique_ptr<Machine> machine;
    std::shared_ptr<StateDir> state;
    std::shared_ptr<StateDir> own_state;  // while it runs on a copy of another's
    std::vector<Seen> seen;
    std::unique_ptr<Daemon> daemon;
    std::unique_ptr<JavaLeaf> java_leaf;
    std::optional<std::uint64_t> java_file;
    Nanos down_until = 0;
    bool started = false;  // at least once
    bool lost_its_state = false;
    std::optional<Error> last_failure;

    Process* process() const {
      return daemon ? &daemon->process() : java_leaf ? &java_leaf->process() : nullptr;
    }
  };
  using DirPtr = std::shared_ptr<StateDir>;

  void Supervise(Node& node);
  // Whether the state directories of all others know that this node takes part.
  bool DoOthersRemember(std::uint64_t node) const;
  void CheckRecoveryOf(Node& node, Nanos deadline);
  void KillNode(Node& node, Nanos down_for);
  void Forget(Node& node);
  void ReleaseWorkerOf(const Node& node);
  void ReleaseSqlWorkerOf(const Node& node);
  void Later(Nanos delay, std::function<void()> what);
  // Runs an operator's statement on the row of `tag`, as soon as no transaction holds the row.
  void OnceFree(const std::string& tag, std::function<void()> statement);
  // Whether nothing has happened that makes a node forget how far its clock was from its boot time.
  bool ClocksAreGuarded() const;
  // Whether the node issued IDs so far ahead of true time that nothing but time mends it.
  bool IsBurnt(Node& node);
  void RepairTags();
  // Pauses the tag on the node, and after `time` tries for a while to resume it.
  void PauseTag(Node& node, const std::string& tag, Nanos time);
  // As `leafctl tag set --order strict`. `gone`: as Act::figure of "tag_strict".
  void MakeStrict(const std::string& tag, std::uint64_t node, double gone);
  void MakeStrictAt(cmd::TagOrderDesk& desk, const std::string& tag, std::uint64_t node, double gone);
  void MakeTrend(const std::string& tag);
  void WithOrderDesk(const std::function<void(cmd::TagOrderDesk&)>& work);
  // What ZooKeeper has of a tag; nothing for no record.
  std::optional<zookeeper::WitnessRecord> WitnessOf(const std::string& tag) const;
  // Whether it has it that the tag is strict.
  bool IsRemembered(const std::string& tag) const;
  void EndLostOrders();
  // As `leafctl next --direct`, one after the other for so long, beside what runs on the node. Where there is
  // a witness, some of them (`disturbed`, of 1) are killed, or stopped for a while.
  void RunOneShots(Node& node, const std::string& tag, Nanos time, double disturbed);
  // One of them, from its start to its end.
  void TakeOnce(Node& node, const std::string& tag, double disturbed);
  // Which nodes that are on the table's list an operator says to have ended for good.
  std::vector<std::string> GoneNodes(std::uint64_t node, double gone);
  // As `leafctl cluster recover --beyond`, where all nodes that are missing have lost their state
  // directories.
  void RecoverWithoutTheLost();
  std::optional<core::WorkerState> StateOf(const DirPtr& dir);

  Surroundings& around_;
  World& world_;
  Process& outside_;
  Machine desk_;  // the operator's own
  SimClient operator_;
  Journal operator_log_;
  std::vector<std::unique_ptr<Node>> nodes_;
  struct OneShots;
  std::vector<std::unique_ptr<OneShots>> one_shots_;
  std::unique_ptr<SqlPorts> operator_sql_;  // null without such a database
  std::uint64_t next_state_ = 1;
  std::set<std::string> ordering_;  // tags whose order a command is changing
  std::set<std::string> lost_;      // nodes of the cluster whose state directories are lost
  std::uint64_t acts_ = 0;
  std::uint64_t starts_ = 0;
};

}  // namespace leaf::sim
