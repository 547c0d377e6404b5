#include "leaf/zookeeper/connect_string.h"

#include <fmt/format.h>

#include <algorithm>

#include "leaf/base/text.h"
#include "leaf/zookeeper/tree.h"

namespace leaf::zookeeper {
namespace {

bool IsServer(std::string_view server) {
  const std::size_t colon = server.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view host = server.substr(0, colon);
  if (ParseWhole<std::uint16_t>(server.substr(colon + 1)).value_or(0) == 0) return false;
  const bool bracketed = host.front() == '[' && host.back() == ']' && host.size() > 2;
  const std::string_view name = bracketed ? host.substr(1, host.size() - 2) : host;
  return std::all_of(name.begin(), name.end(), [&](char c) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '-' || c == '_';
    return plain || (bracketed && (c == ':' || c == '%'));
  });
}

}  // namespace

Result<ConnectString> ParseConnectString(std::string_view text) {
  const auto wrong = [&](std::string_view why) {
    return Error{ErrorCode::kConfig, fmt::format("zookeeper.connect: {}: {}", Quoted(text), why),
                 "it is host:port,host:port, with /path after the last one for a chroot"};
  };
  const std::size_t slash = std::min(text.find('/'), text.size());
  ConnectString connect{std::string(text.substr(0, slash)), std::string(text.substr(slash))};
  if (connect.chroot == "/") connect.chroot.clear();
  // The same rules as for the root of a tree.
  if (!Tree::Make("any", connect.chroot).ok()) return wrong("the chroot is not a path");
  std::string_view rest = connect.hosts;
  while (true) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view server = rest.substr(0, comma);
    if (server.empty()) return wrong("a server is missing");
    if (!IsServer(server)) return wrong(fmt::format("{} is not host:port", Quoted(server)));
    if (comma == rest.size()) return connect;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace leaf::zookeeper
