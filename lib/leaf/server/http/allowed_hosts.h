// The names that requests may give in their Host field.
//
// A web page can let a name of its own resolve to 127.0.0.1, and then reads from a server there like one of
// its own (DNS rebinding). Its requests carry that name, and a page can change neither it nor an IP address
// in its place.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace leaf::server {

// Immutable, so thread-safe.
class AllowedHosts {
 public:
  // `configured`: server.allowed_hosts. A name stands for itself, "*.NAME" for every name under it, "*" for
  // all. `machine`: what this machine is called. Upper and lower case are the same.
  AllowedHosts(std::vector<std::string> configured, std::vector<std::string> machine);

  // Whether requests to a listener on loopback addresses, or to any other one, are looked at at all. Of
  // others only if names are configured: their callers have names in DNS, which this machine does not know.
  bool ChecksListener(bool on_loopback) const { return !all_ && (on_loopback || has_configured_); }

  // Whether `host`, the Host field's value (RFC 9110, 7.2), is an IP address, localhost, a name under that,
  // or one of the names. An empty one is allowed, since no web page can send it.
  bool Allows(std::string_view host) const;

  // Whether a page with this Origin field (RFC 6454, 7; not empty) is this server's own, which clients ask as
  // `host`: it is the same, or one of the configured names, by which a proxy is asked.
  bool IsOwnOrigin(std::string_view origin, std::string_view host) const;

 private:
  bool IsConfigured(const std::string& name) const;

  std::vector<std::string> configured_;  // lower case, as they are
  std::vector<std::string> names_;       // lower case
  std::vector<std::string> suffixes_;    // ".name", lower case
  bool has_configured_ = false;
  bool all_ = false;
};

}  // namespace leaf::server
