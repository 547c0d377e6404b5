// The registry of the configuration as the worker commands see it, whichever it is.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/config/config.h"
#include "leaf/embed/stores.h"
#include "leaf/inspect/environment.h"
#include "leaf/inspect/workers.h"

namespace leaf::inspect {

class WorkerSource {
 public:
  // Errors: kConfig (no snowflake.cluster, and what the registry's own settings lack), kPermission. ZooKeeper
  // and databases are asked by the calls below, which add kUnavailable.
  static Result<std::unique_ptr<WorkerSource>> Open(Environment& environment, embed::Store::Access access);
  virtual ~WorkerSource() = default;

  // "static", "zookeeper", "sql".
  virtual std::string_view registry() const = 0;
  // Name of the cluster; "" for a private one before its first start.
  const std::string& cluster() const { return cluster_; }

  virtual Result<WorkerInspection> Inspect() = 0;
  // The same for a caller that is going to do the steps: what they rewrite is watched first, so that no
  // record of a running node is overwritten. Takes a few seconds if there is such a step.
  virtual Result<WorkerInspection> InspectForRepair(bool java_retired) = 0;

  // All that is stored, in a stable order.
  virtual Result<std::vector<RawRecord>> Records() = 0;

  // Nothing if the number has no owner. Errors: kNotFound, kRefused.
  virtual Result<std::optional<RepairStep>> PlanRelease(std::uint64_t worker) = 0;

  // False if something has changed since it was looked at, and nothing was done.
  virtual Result<bool> Apply(const RepairStep& step) = 0;

 protected:
  WorkerSource(Environment& environment, std::string cluster, InspectionOptions options)
      : environment_(environment), cluster_(std::move(cluster)), options_(std::move(options)) {}

  Environment& environment_;
  const std::string cluster_;
  InspectionOptions options_;
};

// What works as it is configured, and should only be known, is a warning.
void GradeFindings(std::vector<WorkerFinding>& findings, const config::Config& config);

}  // namespace leaf::inspect
