// What an operator gets to see of a cluster's worker numbers, whatever registry they are in: entries, what is
// wrong with them, and the steps that mend some of it. Made by pure functions (zookeeper_workers.h,
// sql_workers.h) out of what was read.
//
// What every plan is held to: no ceiling is ever lowered; nothing that a Java node still needs is removed; a
// step is one transaction, conditional on everything it touches being as it was read.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/time.h"
#include "leaf/core/finding.h"
#include "leaf/core/id_layout.h"

namespace leaf::inspect {

// A stored record as it stands: a node of ZooKeeper, a row of a table.
struct RawRecord {
  std::string name;  // path, or "table/key"
  std::string data;
  std::vector<std::pair<std::string, std::string>> facts;  // version, times, …
  friend bool operator==(const RawRecord&, const RawRecord&) = default;
};

enum class NumberKind {
  kFixed,
  kLease,
  kRecycled,  // of the fork's recycle tree, which is only read
};
// "fixed", "lease", "recycled".
std::string_view NumberKindName(NumberKind kind);

struct WorkerEntry {
  NumberKind kind = NumberKind::kFixed;
  std::uint64_t worker = 0;
  std::string address;               // "" if no node has it
  std::optional<WallTime> reported;  // last report, by the reporter's clock
  bool live = false;                 // a node runs now that has this number
  bool java = false;                 // it is live and no leafctl: it reports as Java Leaf does
  std::string url;                   // where it answers, if it is a live leafctl
  std::string owner;                 // uuid of a state directory; "" if there is none
  std::string host;                  // of the owner
  std::string source;                // where a static number comes from; "" if that is not known
  std::optional<WallTime> since;     // of the owner
  std::optional<WallTime> ceiling;
  std::optional<std::uint64_t> generation;
  std::vector<RawRecord> records;  // all that is stored about it
};

// Code of the finding that nodes of the fork in mode zk_recycle are running.
inline constexpr std::string_view kForkRunning = "fork-running";

// Code of the finding that Java nodes trip over the name of the cluster, which cannot be changed.
inline constexpr std::string_view kDashedCluster = "dashed-cluster";

// Code of the finding that everyone may change records of ours, though there are credentials.
inline constexpr std::string_view kOpenToEveryone = "open-to-everyone";

using WorkerFinding = core::Finding;

// One part of a step.
struct RepairChange {
  enum class Kind {
    kAbsent,  // holds only if there is no such record
    kCreate,
    kWrite,
    kRemove,
    kProtect,  // only the credentials in use may change it from then on
  };
  Kind kind = Kind::kAbsent;
  RawRecord before;          // name; and what was read, for kWrite, kRemove and kProtect (facts only)
  std::int64_t version = 0;  // of what was read; of the access rules for kProtect
  std::string after;         // for kCreate and kWrite
  // Of ZooKeeper's node as it was read; 0 for a row, and for a node that an earlier step makes. A node that
  // was removed and made again can have the same version.
  std::int64_t created_zxid = 0;
};
std::string_view RepairChangeName(RepairChange::Kind kind);

// All its changes happen, or none; but those of access rules, which are in a step of their own, happen one by
// one.
struct RepairStep {
  std::string code;  // of the finding that it mends
  std::string what;  // "remove /snowflake/…/lock"
  std::string why;
  std::vector<RepairChange> changes;
};

struct WorkerInspection {
  std::vector<WorkerEntry> entries;  // by kind, number and address
  std::vector<WorkerFinding> findings;
  std::vector<RepairStep> steps;  // in this order

  struct Words {
    std::string cause;
    std::string consequence;
    std::string remedy;  // of what is left alone
  };
  // A finding that the plan leaves alone, and why.
  void Leave(std::string code, std::string subject, Words words, std::string why);
  // A finding, and the step that mends it.
  void Mend(std::string code, std::string subject, Words words, std::string what,
            std::vector<RepairChange> changes);
};

inline constexpr std::string_view kRepair = "leafctl worker repair";

struct InspectionOptions {
  // Numbers that the configuration allows, half-open.
  std::uint64_t worker_begin = 0;
  std::uint64_t worker_end = 1024;
  core::IdLayout layout;
  WallTime now;
  // How far a reported time may be ahead before it is a finding: clocks differ a little.
  std::chrono::milliseconds ahead_max{5000};
  // How far a ceiling is ahead in normal operation, beyond that.
  std::chrono::milliseconds window{3000};
  // Records that changed while they were watched: the nodes that write them are running.
  std::set<std::string> moving;
  // The operator says that no Java node of this cluster will ever start again, so that its start check, which
  // obeys the times under `forever`, is of no use any more.
  bool java_retired = false;
};

// A node that has reported within this is alive: Java Leaf and leafctl report every 3 s.
inline constexpr std::chrono::milliseconds kLiveReport{15'000};

// True for hosts that many machines have in common: loopback, wildcard, link-local, docker's default bridge,
// and none at all. Two machines with one address get one number.
bool IsSharedHost(std::string_view host);

}  // namespace leaf::inspect
