// What the tables of the sql registry (sql/worker_registry.h) say about worker numbers, what is wrong there,
// and what can be done about it.
//
// A row of leafctl_workers remembers the ceiling of a number and is never removed: where AUTO_INCREMENT goes
// back, as older MySQL servers let it at a restart, the number can be given again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/core/worker_ports.h"
#include "leaf/inspect/workers.h"
#include "leaf/sql/database.h"

namespace leaf::inspect {

// Of leaf_workerid_alloc, the fork's own table.
struct NumberRow {
  std::int64_t id = 0;
  std::optional<std::string> ip;
  std::optional<std::string> port;
  std::string ip_port;
  std::optional<std::int64_t> max_timestamp;
  std::optional<std::string> create_time;
  std::optional<std::string> update_time;
};

// Of leafctl_workers.
struct OwnerRow {
  std::int64_t worker = 0;
  std::string ip_port;
  std::string uuid;  // "" if it has no owner
  std::string host;
  std::string url;
  std::int64_t claims = 0;
  std::int64_t ceiling_ms = 0;
  std::int64_t reported_ms = 0;
  std::int64_t since_ms = 0;
  std::int64_t live = 0;
};

struct ClusterRow {
  std::string name;
  std::string layout;
  std::int64_t epoch_ms = 0;
};

struct WorkerTables {
  std::vector<NumberRow> numbers;  // by id
  std::vector<OwnerRow> owners;    // by worker
  std::optional<ClusterRow> cluster;
  bool own_tables = true;  // leafctl_workers and leafctl_cluster exist
};

// Owners are read first: a number that an owner has is made before, or together with, it. Errors: kConfig (no
// table leaf_workerid_alloc), kUnavailable, kPermission.
Result<WorkerTables> ReadWorkerTables(sql::Database& database);

// Pure.
WorkerInspection Inspect(const WorkerTables& tables, const InspectionOptions& options,
                         const core::ClusterProperties& configured);

// Pure. Takes the number from its owner; the ceiling stays. Nothing if it has no owner. Errors: kNotFound,
// kRefused (its node is live).
Result<std::optional<RepairStep>> PlanRelease(const WorkerTables& tables, std::uint64_t worker, WallTime now);

// All rows as records, in order.
std::vector<RawRecord> ToRecords(const WorkerTables& tables);

// In one transaction. False, and nothing happened, if a row is no longer what the step found. Errors: those
// of sql::Database::Transact.
Result<bool> ApplyStep(sql::Database& database, const RepairStep& step);

}  // namespace leaf::inspect
