// The JSON of /v1/status and /health/ready. Fields are only ever added.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "leaf/base/time.h"
#include "leaf/service/id_service.h"

namespace leaf::server {

struct NodeFacts {
  std::string version;
  std::string store;
  std::vector<std::string> listen;
  std::uint64_t max_count = 0;
  std::chrono::milliseconds uptime{};
  WallTime now;
};

nlohmann::ordered_json ReadinessJson(const service::Readiness& readiness);
nlohmann::ordered_json StatusJson(const NodeFacts& facts, const service::IdService& ids);

}  // namespace leaf::server
