// Worker numbers from a database: table leaf_workerid_alloc of Leaf's best-known fork, whose row of an
// address is its number, beside running nodes of that fork.
//
// What the fork's table has no column for stands in leafctl_workers: who owns the number (the uuid of a state
// directory), its ceiling, how often it was claimed, and whether its node is live. Invariant: whoever issues
// with a number has written its uuid into the number's row and raised `claims` there, in the same transaction
// that read the ceilings it begins above. Every later write requires both: a former claim, of this or another
// node, gets kNotOwner.
//
// Schedules that this is held to (tests/unit/sql_registry_test.cc, tests/contract):
// - two nodes claim at once: each locks the cluster's row first, so that the second one finds what the first
//   has written. With one address between them, it is refused: the row of leafctl_workers names another uuid.
// - the reply to COMMIT is lost: the next claim of the same uuid finds its own row.
// - a node of the fork with the same address runs: its time in max_timestamp is not the one that we wrote
//   last. It is watched for kWatch, and if it moves the claim is refused; if not, the time and kWatch are a
//   ceiling. If it moves later, the next report says kNotOwner.
// - `worker release` lets another state directory in, which raises `claims`: the former owner's next report
//   fails.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "leaf/base/clock.h"
#include "leaf/core/peer_directory.h"
#include "leaf/core/worker_ports.h"
#include "leaf/sql/database.h"

namespace leaf::sql {

struct SqlRegistryOptions {
  std::uint64_t worker_begin = 0;  // numbers that may be claimed, half-open
  std::uint64_t worker_end = 1024;
  std::string host;  // this machine's name, for whoever reads the tables
  std::string url;   // where peers reach this node
};

// Thread-safe. A number is fixed. Claim waits up to kWatch and a little if the fork wrote the row last.
class SqlWorkerRegistry final : public core::WorkerRegistry, public core::PeerDirectory {
 public:
  // `database` and `clock` outlive this.
  SqlWorkerRegistry(Database& database, SqlRegistryOptions options, const Clock& clock);

  std::string_view kind() const override { return "sql"; }
  bool leased() const override { return false; }

  // Errors: kConfig (a table is missing), kRefused (the address is another state directory's, a node of the
  // fork runs with it, the number is out of range, or the cluster differs), kExhausted (no number is left in
  // the range), kPermission, kUnavailable, kOutcomeUnknown.
  Result<core::WorkerClaim> Claim(const core::NodeIdentity& node,
                                  const core::ClusterProperties& cluster) override;
  Result<void> Renew(const core::WorkerClaim& claim, WallTime ceiling) override;
  Result<void> Release(const core::WorkerClaim& claim, WallTime end) override;
  void Interrupt() override { interrupted_.store(true); }

  // The other nodes that are live by their own word. Errors: kUnavailable, kConfig.
  Result<std::vector<core::Peer>> LivePeers() override;

  // The fork reports every 3 s.
  static constexpr std::chrono::milliseconds kWatch{4000};

 private:
  struct Watched;
  struct Attempt;
  enum class Finality { kGoesOn, kEnds };
  Result<void> Report(const core::WorkerClaim& claim, WallTime ceiling, Finality finality);
  Result<Attempt> TryClaim(const core::NodeIdentity& node, const core::ClusterProperties& cluster,
                           const std::optional<Watched>& watched);

  Database& database_;
  const SqlRegistryOptions options_;
  const Clock& clock_;
  std::atomic<bool> interrupted_{false};
  std::mutex mutex_;
  std::string uuid_;  // of the last claim; guarded by mutex_
};

}  // namespace leaf::sql
