// Where a static worker number comes from (snowflake.worker_id, snowflake.workers).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "leaf/base/result.h"
#include "leaf/config/config.h"

namespace leaf::config {

// The word for snowflake.worker_id that takes the number out of the host name.
inline constexpr std::string_view kOrdinal = "ordinal";

// The number at the end of the host name's first label, after a dash: 3 of "leafctl-3" and of
// "leafctl-3.leafctl.svc". The dash is asked for because names that are drawn at random end with a digit
// often enough: a container's, or a pod's of a Deployment. Errors: kInvalidArgument that names the host name;
// a number that `end` (exclusive) does not allow, or that has leading zeros, as "leafctl-3" and "leafctl-03"
// would be one.
Result<std::uint64_t> OrdinalOf(std::string_view host, std::uint64_t begin, std::uint64_t end);

// Where this node's number comes from, for people: "snowflake.worker_id", "snowflake.workers", "host name
// 'leafctl-3'", "registry zookeeper", "drawn for the state directory". `config` has been through Load.
std::string WorkerSourceOf(const Config& config);

// For ordinals only, else "": "3, from the host name 'leafctl-3'".
std::string OrdinalText(const Config& config);

}  // namespace leaf::config
