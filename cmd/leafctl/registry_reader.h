// Reads the registry of worker numbers for those who ask a daemon about it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/base/result.h"
#include "leaf/config/loader.h"
#include "leaf/inspect/environment.h"

namespace leaf::cmd {

// Has sessions and connections of its own, one for each reading: what looks at the registry must not delay
// or end those with which the daemon keeps its number.
class RegistryReader final : public inspect::Environment {
 public:
  // How long ZooKeeper or the database may take for one answer.
  static constexpr std::chrono::milliseconds kTimeout{3000};

  // All of it outlives this.
  RegistryReader(const config::Resolved& resolved, const Clock& clock, Logger& log)
      : resolved_(resolved), clock_(clock), log_(log) {}

  // The document of /v1/workers. Blocks. One call at a time. Errors: those of inspect::ReadWorkerList.
  Result<std::string> Read();

  Result<const config::Resolved*> Config() override { return &resolved_; }
  const Clock& ClockInUse() const override { return clock_; }
  std::optional<std::chrono::milliseconds> Timeout() const override { return kTimeout; }
  void Note(std::string_view message) override { log_.Debug("reading the registry: {}", message); }
  void Detail(std::string_view message) override { Note(message); }

 private:
  const config::Resolved& resolved_;
  const Clock& clock_;
  Logger& log_;
};

}  // namespace leaf::cmd
