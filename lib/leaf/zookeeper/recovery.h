// Going on after the ZooKeeper of a cluster went back (membership.h) and nodes are missing, or rows of the
// table are behind: one plan for all tags, from all that is known of their grants. The core of `leafctl
// cluster recover`.
//
// Invariant: the records let claims go on only after each tag's witness and row are at or above every end
// that is known, and above what the missing nodes are allowed for. A tag that the table does not hold (it was
// removed, or added after the backup) has a witness all the same, from which it starts when it is added
// again.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/result.h"
#include "leaf/core/ports.h"
#include "leaf/core/witness.h"
#include "leaf/zookeeper/client.h"
#include "leaf/zookeeper/cluster_records.h"
#include "leaf/zookeeper/tree.h"

namespace leaf::zookeeper {

// Where the rows, the witnesses and the records of a cluster are. All of them outlive a Recovery.
struct RecoveryPorts {
  std::function<Result<std::vector<core::TagRow>>()> list;
  // As TagAdmin::RemovedMarks.
  std::function<Result<std::vector<std::pair<std::string, std::uint64_t>>>()> removed;
  std::function<Result<void>(const std::string& tag, std::uint64_t to)> advance;  // as TagAdmin::Advance
  std::function<Result<void>(const std::string& tag, std::uint64_t to)> raise;    // the witness
  core::Witness& witness;
  std::string witness_name;  // for people
  Client& client;
  const Tree& tree;
  const Clock& clock;
};

// Blocks; for one thread.
class Recovery {
 public:
  using Node = ClusterRecords::Node;

  // What is to be done for one tag.
  struct Move {
    core::TagRow row;
    bool in_table = true;       // if not, there is only the tag's name in `row`
    std::uint64_t removed = 0;  // where the row had got to when it was removed
    std::uint64_t witness = 0;
    std::uint64_t known = 0;  // the highest mark, or the witness
    std::string where;        // it is known from
    std::uint64_t target = 0;

    bool moves_row() const {
      return in_table && (row.max_id < 0 || static_cast<std::uint64_t>(row.max_id) < target);
    }
    bool moves_witness() const { return witness < target; }
  };

  explicit Recovery(RecoveryPorts ports) : ports_(std::move(ports)) {}

  // Everything below `end` may have been granted, as `where` says (for people).
  void Know(const std::string& tag, std::uint64_t end, const std::string& where);
  // All that this node was granted is known by now: it is not waited for.
  void Vouch(const std::string& node) { vouched_.insert(node); }
  // Reads the records of the cluster. Errors: those of ReadCluster.
  Result<void> Read();

  // Reads until every node has had its time to report what it was granted. While ZooKeeper's loss is not
  // settled: until no node is missing, and `watch` in any case, since a node that is up may be in no record
  // (M4 in membership.h). Afterwards, and where nothing was lost: until no node is silent. After 20 s, or 8 s
  // if it is to go on `without` the missing nodes, it waits for no other. Returns the silent nodes where the
  // loss is settled. Errors: those of Read.
  Result<std::vector<Node>> Await(bool without, std::chrono::milliseconds watch);

  // As read last:
  const ClusterRecords& records() const { return records_; }
  bool is_unsettled() const { return records_.incarnation && !records_.incarnation->settled; }
  // Whether this node has reported since ZooKeeper lost data, or nothing was lost.
  bool HasReported(const std::string& node) const;
  // Nodes whose grants are not known.
  const std::vector<Node>& missing() const { return missing_; }
  // Nodes that have not left, and whose records are as they were in `before`. One that is up, and has not
  // found out yet that ZooKeeper went back, is among them: its next heartbeat finds out, or moves its record.
  std::vector<Node> SilentSince(const ClusterRecords& before) const;

  // The tags whose row or witness is too low, those without a row last. `beyond`: so many IDs of each tag
  // above what is known are allowed for the nodes that are missing. Errors: kRefused that names the missing
  // nodes where it is not given, or a witness that cannot be read; kOverflow for a tag that has not so many
  // IDs left; those of the table. A witness that cannot be read stops nothing where the table does not hold
  // the tag: such a tag cannot be added again, and is in skipped().
  Result<std::vector<Move>> Plan(std::optional<std::uint64_t> beyond);
  // How many tags the last plan has looked at.
  std::size_t examined() const { return examined_; }
  const std::vector<std::string>& skipped() const { return skipped_; }

  // Raises witnesses and rows, and then lets claims go on without the nodes that are missing. `by`: for
  // people. What is left after an error is done by the next one. Errors: those of the ports; kRefused if
  // another node is missing by now, or one that was missing has shown up: what it made known is not planned
  // for; kUnavailable if the records keep changing.
  Result<void> Apply(const std::vector<Move>& moves, const std::string& by);

  static std::string TextOf(const Node& node);

 private:
  // Every tag that the table holds, and after those every other one that is known by name.
  Result<std::vector<Move>> Tags() const;
  // Of a record that could not be read with the others. Errors: those of the witness, with what to do.
  Result<core::WitnessState> ReadWitness(const std::string& tag) const;
  // After the witnesses were read. A grant raises its row before its witness: a row that was read before them
  // would look as if it were behind a grant that came in between.
  Result<void> ReadRowsAgain(std::vector<Move>& tags) const;
  Result<void> SetTarget(Move& move, std::optional<std::uint64_t> beyond) const;

  const RecoveryPorts ports_;
  std::map<std::string, std::pair<std::uint64_t, std::string>> known_;  // by tag: the highest end, and where
  std::set<std::string> vouched_;                                       // IDs of nodes
  ClusterRecords records_;
  std::vector<Node> missing_;
  std::size_t examined_ = 0;
  std::vector<std::string> skipped_;
};

}  // namespace leaf::zookeeper
