#include "leaf/zookeeper/folders.h"

#include <cstddef>
#include <utility>

namespace leaf::zookeeper {

Operation CreateIn(const Tree& tree, const std::string& path, std::string data) {
  return tree.IsOwn(path) ? Operation::CreateOwn(path, std::move(data))
                          : Operation::Create(path, std::move(data));
}

Error NoChroot() {
  return {ErrorCode::kConfig, "the chroot of zookeeper.connect does not exist",
          "correct it, or create it in ZooKeeper"};
}

Result<void> EnsureFolders(Client& client, const Tree& tree, const std::vector<std::string>& folders) {
  LEAF_ASSIGN_OR_RETURN(const auto found, client.GetAll(folders));
  for (std::size_t i = 0; i < folders.size(); ++i) {
    if (found[i]) continue;
    LEAF_ASSIGN_OR_RETURN(const WriteOutcome made, client.Write({CreateIn(tree, folders[i], "")}));
    if (made.conflict == WriteOutcome::Conflict::kMissing) {
      if (i > 0) return Error{ErrorCode::kUnavailable, "the cluster's nodes are being removed", "retry"};
      // Made by us, a mistyped one would be a universe of its own, with all the numbers of the real one.
      return NoChroot();
    }
  }
  return {};
}

}  // namespace leaf::zookeeper
