// A neighbour: a node of Java Leaf, which follows Java's rules in table and tree (leaf-compat §3 to §6) and
// knows of no fence, no witness and no ceiling.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "sim/daemon.h"

namespace leaf::sim {

class JavaLeaf {
 public:
  // `local_worker`: the file in which Java remembers its number, without a time.
  JavaLeaf(Surroundings& around, std::uint64_t node, std::string address, Machine& machine,
           std::optional<std::uint64_t>& local_worker);

  void Launch();
  void Kill() { around_.world.Kill(process_); }
  Process& process() { return process_; }
  bool ended() const { return process_.tasks.empty(); }

 private:
  // SnowflakeZookeeperHolder.init; nothing if the node cannot start in this mode.
  std::optional<std::uint64_t> Register();
  std::optional<std::uint64_t> TryRegister();
  std::optional<std::uint64_t> TryRegisterInTable();
  bool Reaches() const;
  bool ReachesDatabase() const;
  void Report();
  void ReportInTable(std::uint64_t worker);
  void Serve();
  void TakeSegment();
  void TakeSnowflake();

  Surroundings& around_;
  const std::uint64_t node_;
  const std::string address_;
  Machine& machine_;
  std::optional<std::uint64_t>& local_worker_;
  Process process_;
  const Issuer issuer_;
  const core::IdLayout layout_;
  std::map<std::string, IdRange> ranges_;
  std::optional<std::uint64_t> worker_;
  std::string path_;  // of its node; "" if it reports to none
  WallTime reported_at_;
  std::int64_t last_time_ = -1;
  std::uint64_t sequence_ = 0;
};

}  // namespace leaf::sim
