// Worker numbers from a database: table leaf_workerid_alloc of Leaf's best-known fork, whose row of an
// address is its number, beside running nodes of that fork.
//
// What the fork's table has no column for stands in leafctl_workers: the owner of the number (the uuid of a
// state directory), its ceiling, how often it was claimed, and whether its node is live. Invariant: a node
// that issues with a number has written its uuid into the number's row and raised `claims` there, in the same
// transaction that read the ceilings it begins above. Every later write requires both: a former claim, of
// this or another node, gets kNotOwner.
//
// Schedules that this is held to (tests/unit/sql/registry_test.cc, tests/contract):
// - two nodes claim at once: each locks the cluster's row first, so that the second one finds what the first
//   has written. With one address between them, it is refused: the row of leafctl_workers names another uuid.
// - the reply to COMMIT is lost: the next claim of the same uuid finds its own row.
// - a node of the fork with the same address runs: its time in max_timestamp is not the one that we wrote
//   last. It is watched for core::kJavaWatch, and if it moves the claim is refused; if not, the time and
//   core::kJavaMargin are a ceiling. If it moves later, the next report says kRefused.
// - `worker release` lets another state directory in, which raises `claims`: the former owner's next report
//   fails.
// - the database is restored from a backup that is older than a claim, while the node lives, and a new node
//   comes: AUTO_INCREMENT gives it the same number. → a number that is new to a state directory is claimed
//   after a watch (options.claim_watch), during which owners come back: each report that meets less than it
//   was acknowledged for puts the node's rows back, with their number, unless another node has that; the new
//   node then gets the next one. An owner that was down does the same at its start, with the number that its
//   state directory held. An owner that is cut off for longer than the watch meets another's row, and stops:
//   what it issued meanwhile may be issued twice.
// What this does not cover: two servers that both take writes, of which a node sees one. Each gives its next
// number to another node. Where both are among a node's endpoints the claim is refused; `db check` says where
// such a split can happen.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/core/peer_directory.h"
#include "leaf/core/worker_ports.h"
#include "leaf/sql/database.h"

namespace soci {
class session;
}

namespace leaf::sql {

struct RegisteredOwner;

struct SqlRegistryOptions {
  std::uint64_t worker_begin = 0;  // numbers that may be claimed, half-open
  std::uint64_t worker_end = 1024;
  std::string host;  // this machine's name, for people that read the tables
  std::string url;   // where peers reach this node
  // How far IDs of the cluster may be ahead of the clock.
  std::chrono::milliseconds window{0};
  // How long a number that is new to this node is watched before its first ID.
  std::chrono::milliseconds claim_watch{0};
  // Whether no two servers take writes, each by itself: asked before a number that is new to this node is
  // claimed, which an error refuses. None for a database that is one server.
  std::function<Result<void>()> check_one_writer = nullptr;
};

// Thread-safe. A number is fixed. Claim waits for options.claim_watch if the number is new to this node, and
// up to core::kJavaWatch and a little if the fork wrote the row last.
class SqlWorkerRegistry final : public core::WorkerRegistry, public core::PeerDirectory {
 public:
  // `database`, `clock` and `log` outlive this.
  SqlWorkerRegistry(Database& database, SqlRegistryOptions options, const Clock& clock, Logger& log);

  std::string_view kind() const override { return "sql"; }
  bool leased() const override { return false; }

  // Errors: kConfig (a table is missing), kRefused (the address is another state directory's, a node of the
  // fork runs with it, the number is out of range, or the cluster differs), kExhausted (no number is left in
  // the range), kPermission, kUnavailable, kOutcomeUnknown.
  Result<core::WorkerClaim> Claim(const core::NodeIdentity& node,
                                  const core::ClusterProperties& cluster) override;
  Result<void> Renew(const core::WorkerClaim& claim, WallTime ceiling) override;
  Result<void> Release(const core::WorkerClaim& claim, WallTime end) override;
  std::uint64_t times_put_back() const override { return times_put_back_.load(); }
  void Interrupt() override { interrupted_.store(true); }

  // The other nodes that are live by their own word. Errors: kUnavailable, kConfig.
  Result<std::vector<core::Peer>> LivePeers() override;

 private:
  struct Watched;
  struct Attempt;
  // A claim as last acknowledged.
  struct Held {
    std::string uuid;
    std::string address;
    WallTime ceiling;                  // as last acknowledged
    std::vector<long long> sent_ms{};  // ceilings since then, whose commits have no answer
  };
  // What shows that the database went back: another server, or less than there was.
  struct Position {
    std::string server;
    long long claims = 0;    // of all numbers
    long long reported = 0;  // the newest report
    bool IsBehind(const Position& before) const {
      return server != before.server || claims < before.claims || reported < before.reported;
    }
  };
  enum class Finality { kGoesOn, kEnds };
  Result<void> Report(const core::WorkerClaim& claim, WallTime ceiling, Finality finality);
  Result<Attempt> TryClaim(const core::NodeIdentity& node, const core::ClusterProperties& cluster,
                           const std::optional<Watched>& watched, bool watched_for_owners,
                           const std::optional<Position>& seen);
  // A row of leaf_workerid_alloc.
  struct NumberRow {
    long long worker = 0;
    std::optional<long long> reported_ms;  // nothing where the column is NULL
    bool fresh = false;                    // made by this claim
    long long now_ms = 0;                  // when it was read
    bool recreated = false;                // it was this node's, and the database had forgotten it
  };
  // The parts of TryClaim, in its transaction. Nothing, and nothing is written, where the number is new to
  // the node and has to be watched first.
  Result<std::optional<NumberRow>> FindNumber(soci::session& session, const core::NodeIdentity& node,
                                              bool watched_for_owners, const std::optional<Position>& seen);
  Result<Attempt> ClaimNumber(soci::session& session, const core::NodeIdentity& node, const NumberRow& row,
                              const std::optional<Watched>& watched);
  Position ReadPosition(soci::session& session) const;
  // Until options.claim_watch has passed with a database that answers, and did not go back meanwhile: is not
  // behind `seen`, which is what was seen last. Errors: kUnavailable.
  Result<void> WatchForOwners(std::optional<Position>& seen);
  bool WaitUntil(MonotonicTime end) const;
  // The database has forgotten the claim: makes or raises its rows, in the transaction under way. `found`:
  // the row of leafctl_workers, if there is one. The row as it is then.
  Result<RegisteredOwner> PutBack(soci::session& session, const core::WorkerClaim& claim, const Held& held,
                                  const RegisteredOwner& found);

  Database& database_;
  const SqlRegistryOptions options_;
  const Clock& clock_;
  Logger& log_;
  std::atomic<bool> interrupted_{false};
  std::atomic<std::uint64_t> times_put_back_{0};
  Mutex mutex_;
  Held held_ LEAF_GUARDED_BY(mutex_);
};

}  // namespace leaf::sql
