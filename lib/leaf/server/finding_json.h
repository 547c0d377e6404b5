// The JSON of a finding, the same wherever findings are told: leafctl(1), FINDINGS.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "leaf/core/finding.h"

namespace leaf::server {

nlohmann::ordered_json FindingJson(const core::Finding& finding);
// An array of them.
nlohmann::ordered_json FindingsJson(const std::vector<core::Finding>& findings);

}  // namespace leaf::server
