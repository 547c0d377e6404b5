// What a reload may change, and what it would take a restart for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "leaf/config/config.h"

namespace leaf::config {

// Whether a new value of `key` is taken over by a running daemon on SIGHUP.
bool IsReloadable(std::string_view key);

struct Reload {
  Config config;                         // `old_config` with the reloadable values of `new_config`
  std::vector<std::string> changed;      // "key = value" of each that is different now
  std::vector<std::string> restart_for;  // keys whose new value is not in `config`
};

Reload PlanReload(const Config& old_config, const Config& new_config);

}  // namespace leaf::config
