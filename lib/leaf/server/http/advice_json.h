// What /v1/segment/{tag}/advice says. Fields are only ever added.
#pragma once

#include <nlohmann/json.hpp>

#include "leaf/base/time.h"
#include "leaf/service/tag_generator.h"

namespace leaf::server {

// `watched`: for how long the tag's rate was looked at.
nlohmann::ordered_json AdviceJson(const service::TagStatus& status, MonotonicTime::duration watched);

}  // namespace leaf::server
