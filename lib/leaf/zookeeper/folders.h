// The folders of ours and Leaf's that have to be there before anything can stand in them.
#pragma once

#include <string>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/zookeeper/client.h"

namespace leaf::zookeeper {

// Makes what is missing of `folders` (parents first); anything may be repeated. Errors: kConfig (no chroot),
// and those of Client.
Result<void> EnsureFolders(Client& client, const std::vector<std::string>& folders);

}  // namespace leaf::zookeeper
