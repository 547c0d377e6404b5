#include "leaf/config/reload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "leaf/base/check.h"
#include "leaf/config/keys.h"

namespace leaf::config {
namespace {

constexpr std::array<std::string_view, 22> kReloadable = {
    "server.drain_timeout",
    "server.max_count",
    "server.tls_cert",
    "server.tls_key",
    "server.tls_client_ca",
    "server.max_connections",
    "server.max_connections_per_address",
    "server.header_timeout",
    "server.idle_timeout",
    "server.max_requests_per_second",
    "server.max_tag_requests_per_second",
    "auth.tokens_file",
    "auth.anonymous",
    "codes.key_file",
    "codes.length",
    "codes.alphabet",
    "codes.check",
    "codes.group",
    "codes.tags",
    "segment.refresh_interval",
    "segment.reserve_time",
    "log.level",
};

}  // namespace

bool IsReloadable(std::string_view key) {
  return std::find(kReloadable.begin(), kReloadable.end(), key) != kReloadable.end();
}

Reload PlanReload(const Config& old_config, const Config& new_config) {
  Reload reload{.config = old_config, .changed = {}, .restart_for = {}};
  // A port does not change what is spoken on it.
  const bool switches_tls = old_config.server.tls_cert.empty() != new_config.server.tls_cert.empty();
  for (const Key& key : Keys()) {
    const Value value = key.load(new_config);
    if (value == key.load(old_config)) continue;
    if (!IsReloadable(key.name) || (switches_tls && key.name.starts_with("server.tls_"))) {
      reload.restart_for.push_back(key.name);
      continue;
    }
    const auto stored = key.store(reload.config, value);
    LEAF_CHECK(stored.ok());  // it was good enough for `new_config`
    reload.changed.push_back(fmt::format("{} = {}", key.name, FormatToml(value)));
  }
  return reload;
}

}  // namespace leaf::config
