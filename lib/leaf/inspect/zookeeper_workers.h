// What a snapshot of a cluster's namespace says about its worker numbers, what is wrong there, and what can
// be done about it. Pure functions, but for ApplyStep.
//
// What a plan may not do, and the schedules behind it:
// - No record that says until when IDs were issued goes down or away. A lease that is removed leaves its
//   ceiling in `ceilings`; a time under `forever` that is taken back is kept there first, in one transaction.
// - A time in the future under `forever` is all that keeps a Java node from starting and repeating what it
//   issued when its clock was ahead. It is taken back only if no Java node will start again, and never from a
//   number that a state directory owns: a change of the ceiling stops an owner that is cut off and goes on.
// - A Java node reports every 3 s to the version it finds. What is about to be rewritten is therefore watched
//   first (InspectionOptions::moving), and written only to the version that was seen.
// - Only names that are no address and number at all are removed under `forever`; a number, however wrong,
//   may be in some machine's local file and come back (leaf-compat M5, M6).
// - A daemon without credentials stops issuing once its nodes are protected: they are protected only while
//   the nodes of live daemons are, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/inspect/workers.h"
#include "leaf/inspect/zookeeper_snapshot.h"
#include "leaf/zookeeper/client.h"
#include "leaf/zookeeper/tree.h"

namespace leaf::inspect {

// `configured`: what this node's configuration says of the cluster.
WorkerInspection Inspect(const Snapshot& snapshot, const InspectionOptions& options,
                         const zookeeper::PropertiesRecord& configured);

// The finding about nodes of ours that everyone may change though there are credentials; nothing if there are
// none.
std::optional<WorkerFinding> InspectAccess(const zookeeper::Tree& tree, const OpenNodes& open);

// Nodes under `forever` that the steps of an inspection rewrite: to be watched before.
std::vector<std::string> RewrittenByLeaf(const Snapshot& snapshot, const WorkerInspection& inspection);

// Lets another state directory have a number: of a fixed one, the owner and the hold of its address go; a
// lease becomes free. Ceilings stay. `leases`: which of the two, if the number is both. The step is
// conditional on no node being live. Nothing if the number has no owner. Errors: kNotFound (no such number),
// kRefused (its node is live).
Result<std::optional<RepairStep>> PlanRelease(const Snapshot& snapshot, std::uint64_t worker, bool leases);

// One transaction out of a step; nothing but its changes of access rules are not in it.
std::vector<zookeeper::Operation> OperationsOf(const zookeeper::Tree& tree, const RepairStep& step);

// Does a step. False if something has changed since it was looked at: nothing was done then, or, of a change
// of access rules, the rest. Errors: the client's.
Result<bool> ApplyStep(zookeeper::AccessClient& client, const zookeeper::Tree& tree, const RepairStep& step);

}  // namespace leaf::inspect
