// The folders of ours and Leaf's that have to be there before anything can stand in them.
#pragma once

#include <string>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/zookeeper/client.h"
#include "leaf/zookeeper/tree.h"

namespace leaf::zookeeper {

// What makes one node of a tree: of Leaf's, or of our own.
Operation CreateIn(const Tree& tree, const std::string& path, std::string data);

// What a chroot that is not there is answered with: a mistyped one is never made.
Error NoChroot();

// Makes what is missing of `folders` of a tree (parents first); anything may be repeated. Errors: kConfig (no
// chroot), and those of Client.
Result<void> EnsureFolders(Client& client, const Tree& tree, const std::vector<std::string>& folders);

}  // namespace leaf::zookeeper
