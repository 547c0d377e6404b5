// The registry of the configuration as the worker commands see it, whichever it is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "context.h"
#include "leaf/base/result.h"
#include "leaf/core/worker_inspection.h"
#include "stores.h"

namespace leaf::cmd {

class WorkerSource {
 public:
  // Errors: kConfig (no snowflake.cluster, and what the registry's own settings lack), kPermission. ZooKeeper
  // and databases are asked by the calls below, which add kUnavailable.
  static Result<std::unique_ptr<WorkerSource>> Open(CommandContext& context, Store::Access access);
  virtual ~WorkerSource() = default;

  // "static", "zookeeper", "sql".
  virtual std::string_view registry() const = 0;
  // Name of the cluster; "" for a private one that nobody has started yet.
  const std::string& cluster() const { return cluster_; }

  virtual Result<core::WorkerInspection> Inspect() = 0;
  // The same for who is going to do the steps: what they rewrite is watched first, so that no running node is
  // written over. Takes a few seconds if there is such a step.
  virtual Result<core::WorkerInspection> InspectForRepair(bool java_retired) = 0;

  // All that is stored, in a stable order.
  virtual Result<std::vector<core::RawRecord>> Records() = 0;

  // Nothing if nobody owns the number. Errors: kNotFound, kRefused.
  virtual Result<std::optional<core::RepairStep>> PlanRelease(std::uint64_t worker) = 0;

  // False if something has changed since it was looked at, and nothing was done.
  virtual Result<bool> Apply(const core::RepairStep& step) = 0;

 protected:
  explicit WorkerSource(std::string cluster) : cluster_(std::move(cluster)) {}

  std::string cluster_;
};

}  // namespace leaf::cmd
