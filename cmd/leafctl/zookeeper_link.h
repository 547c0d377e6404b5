// A session with the ZooKeeper of the configuration.
#pragma once

#include "leaf/embed/zookeeper_link.h"

namespace leaf::cmd {

using embed::kZookeeperTimeout;
using embed::OpenZookeeper;

}  // namespace leaf::cmd
