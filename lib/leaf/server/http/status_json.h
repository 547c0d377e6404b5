// The JSON of /v1/status and /health/ready. Fields are only ever added.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "leaf/access/gate.h"
#include "leaf/base/time.h"
#include "leaf/server/http/message.h"
#include "leaf/service/id_service.h"

namespace leaf::server {

struct NodeFacts {
  std::string version;
  std::string store;
  std::string store_at;
  std::string state_dir;
  std::vector<std::string> listen;
  const access::Gate* gate = nullptr;
  bool is_open = false;  // any machine may ask, without a token, and nothing says that this is meant
  std::uint64_t max_count = 0;
  std::chrono::milliseconds uptime{};
  WallTime now;
};

// Which tags /v1/status tells of, in which order: by name, unless asked otherwise.
struct StatusQuery {
  // There may be tens of thousands of tags: a client that wants more than these says so.
  static constexpr std::uint64_t kDefaultLimit = 1000;

  enum class Sort {
    kTag,
    kTrouble,  // those with a problem, then the fastest
    kRate,     // the fastest first
    kReserve,  // first what is used up first
    kIssued,   // the most first
  };
  std::string tag;     // this one alone; "" for those that match what follows
  std::string search;  // a part of the tag, with ASCII letters in any case; "" for all
  Sort sort = Sort::kTag;
  std::uint64_t offset = 0;
  std::uint64_t limit = kDefaultLimit;
  std::optional<std::uint64_t> problems;  // at most so many

  bool operator==(const StatusQuery&) const = default;
};
// Reads tag, or search, sort, offset and limit; and problems. Errors: kInvalidArgument.
Result<StatusQuery> ParseStatusQuery(const Target& target);

nlohmann::ordered_json ReadinessJson(const service::Readiness& readiness);
// A node's mark of one tag, and what it has seen of it; `status` if it serves the tag.
nlohmann::ordered_json MarkJson(const std::string& tag, const core::Mark& mark,
                                const std::optional<service::TagStatus>& status);

// What /v1/status tells, as it was at one moment, for any number of queries. Thread-safe.
class StatusSnapshot {
 public:
  // Looks at every tag.
  StatusSnapshot(const NodeFacts& facts, const service::IdService& ids);

  // What `query` chooses. With query.tag that tag is as it is in `ids` now; all else is the snapshot's.
  nlohmann::ordered_json Tell(const StatusQuery& query, const service::IdService& ids) const;

 private:
  nlohmann::ordered_json common_;         // but for tags and problems
  std::vector<service::TagStatus> tags_;  // by name
  nlohmann::ordered_json problems_;
};

}  // namespace leaf::server
