#include "leaf/server/http/allowed_hosts.h"

#include <arpa/inet.h>

#include <algorithm>
#include <utility>

#include "leaf/base/text.h"

namespace leaf::server {
namespace {

// Without the port, and without the dot that ends an absolute name.
std::string_view NameOf(std::string_view host) {
  std::string_view name = host.substr(0, host.rfind(':'));
  if (name.ends_with('.')) name.remove_suffix(1);
  return name;
}

bool IsAddressV4(const std::string& name) {
  in_addr address{};
  return inet_pton(AF_INET, name.c_str(), &address) == 1;
}

}  // namespace

AllowedHosts::AllowedHosts(std::vector<std::string> configured, std::vector<std::string> machine)
    : suffixes_{".localhost"}, has_configured_(!configured.empty()) {
  for (const std::string& name : configured) {
    configured_.push_back(LowerCase(name));
    if (name == "*") {
      all_ = true;
    } else if (name.starts_with("*.")) {
      suffixes_.push_back(LowerCase(name.substr(1)));
    } else {
      names_.push_back(LowerCase(name));
    }
  }
  names_.emplace_back("localhost");
  for (const std::string& name : machine) names_.push_back(LowerCase(name));
}

bool AllowedHosts::Allows(std::string_view host) const {
  if (all_ || host.empty()) return true;
  // What stands in brackets is an IPv6 address or nothing that a name resolves.
  if (host.starts_with('[')) return true;
  const std::string name = LowerCase(NameOf(host));
  return IsAddressV4(name) || std::find(names_.begin(), names_.end(), name) != names_.end() ||
         std::any_of(suffixes_.begin(), suffixes_.end(),
                     [&](const std::string& suffix) { return name.ends_with(suffix) && name != suffix; });
}

bool AllowedHosts::IsConfigured(const std::string& name) const {
  return std::any_of(configured_.begin(), configured_.end(), [&](const std::string& each) {
    return each.starts_with("*.") ? name.ends_with(each.substr(1)) && name.size() >= each.size()
                                  : name == each;
  });
}

bool AllowedHosts::IsOwnOrigin(std::string_view origin, std::string_view host) const {
  const std::size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos) return false;  // "null", of a page without a place
  const std::string authority = LowerCase(origin.substr(scheme + 3));
  return authority == LowerCase(host) || IsConfigured(std::string(NameOf(authority)));
}

}  // namespace leaf::server
