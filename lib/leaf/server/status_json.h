// The JSON of /v1/status and /health/ready. Fields are only ever added.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "leaf/base/time.h"
#include "leaf/server/http.h"
#include "leaf/service/id_service.h"

namespace leaf::server {

struct NodeFacts {
  std::string version;
  std::string store;
  std::string state_dir;
  std::vector<std::string> listen;
  std::uint64_t max_count = 0;
  std::chrono::milliseconds uptime{};
  WallTime now;
};

// Which tags /v1/status tells of, in which order. All of them, by name, unless asked otherwise: there may be
// tens of thousands.
struct StatusQuery {
  enum class Sort {
    kTag,
    kTrouble,  // those with a problem, then the fastest
    kRate,     // the fastest first
    kReserve,  // first what is used up first
    kIssued,   // the most first
  };
  std::string search;  // in the tag, whatever the case of its ASCII letters; "" for all
  Sort sort = Sort::kTag;
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> limit;
  std::optional<std::uint64_t> problems;  // at most so many
};
// Reads search, sort, offset, limit and problems. Errors: kInvalidArgument.
Result<StatusQuery> ParseStatusQuery(const Target& target);

nlohmann::ordered_json ReadinessJson(const service::Readiness& readiness);
// A node's mark of one tag, and what it has seen of it; `status` if it serves the tag.
nlohmann::ordered_json MarkJson(const std::string& tag, const core::Mark& mark,
                                const std::optional<service::TagStatus>& status);
nlohmann::ordered_json StatusJson(const NodeFacts& facts, const service::IdService& ids,
                                  const StatusQuery& query);

}  // namespace leaf::server
