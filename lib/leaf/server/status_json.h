// The JSON of /v1/status and /health/ready. Fields are only ever added.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
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
// A node's mark of one tag, and what it has seen of it; `status` if it serves the tag.
nlohmann::ordered_json MarkJson(const std::string& tag, const core::Mark& mark,
                                const std::optional<service::TagStatus>& status);
nlohmann::ordered_json StatusJson(const NodeFacts& facts, const service::IdService& ids);

}  // namespace leaf::server
