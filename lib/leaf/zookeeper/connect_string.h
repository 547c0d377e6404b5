// Where ZooKeeper is: "host:port,host:port[/chroot]", as Leaf writes it in leaf.snowflake.zk.address.
#pragma once

#include <string>
#include <string_view>

#include "leaf/base/result.h"

namespace leaf::zookeeper {

struct ConnectString {
  std::string hosts;   // "host:port,host:port"
  std::string chroot;  // "" or "/path", before every path
};

// IPv6 addresses stand in brackets. Errors: kConfig that names the text and what is wrong with it.
Result<ConnectString> ParseConnectString(std::string_view text);

}  // namespace leaf::zookeeper
