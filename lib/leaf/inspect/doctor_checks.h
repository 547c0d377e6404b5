// What the groups of doctor's checks have in common.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/logger.h"
#include "leaf/config/loader.h"
#include "leaf/core/worker_ports.h"
#include "leaf/inspect/diagnosis.h"
#include "leaf/inspect/environment.h"

namespace leaf::inspect {

class DoctorChecks {
 public:
  struct Shared {
    Environment& environment;
    Logger& log;
    const config::Resolved& resolved;
    std::vector<Diagnosis> found{};
    std::optional<core::WorkerState> state{};  // of the state directory, as far as it can be read
    std::size_t strict_tags = 0;               // of the table
  };
  explicit DoctorChecks(Shared& shared)
      : shared_(shared),
        environment_(shared.environment),
        resolved_(shared.resolved),
        config_(shared.resolved.config) {}

 protected:
  void Add(Diagnosis diagnosis) { shared_.found.push_back(std::move(diagnosis)); }
  void Add(std::vector<Diagnosis> several) {
    for (Diagnosis& one : several) shared_.found.push_back(std::move(one));
  }
  void Ok(std::string check, std::string found) { Add(Diagnosis::Ok(std::move(check), std::move(found))); }
  void Warn(std::string check, std::string found, std::string cause, std::string remedy) {
    Add({std::move(check), Level::kWarning, std::move(found), std::move(cause), std::move(remedy)});
  }
  void Problem(std::string check, std::string found, std::string cause, std::string remedy) {
    Add({std::move(check), Level::kProblem, std::move(found), std::move(cause), std::move(remedy)});
  }
  void Failed(std::string check, const Error& error, std::string cause) {
    Problem(std::move(check), error.message, std::move(cause), error.hint);
  }

  bool UsesRegistry() const { return config_.snowflake.enabled; }
  bool IsShared() const { return config_.snowflake.registry != "static"; }
  bool UsesDatabase() const {
    return config_.segment.enabled || (UsesRegistry() && config_.snowflake.registry == "sql");
  }

  // Within what is not known of it for sure, and what is configured.
  void CompareClock(std::string check, std::string_view whose, std::chrono::milliseconds ahead,
                    std::chrono::milliseconds uncertainty);

  Shared& shared_;
  Environment& environment_;
  const config::Resolved& resolved_;
  const config::Config& config_;
};

// Worker numbers, the other nodes, and the fence.
void CheckCluster(DoctorChecks::Shared& shared);

}  // namespace leaf::inspect
