#include "leaf/zookeeper/presence.h"

#include <utility>

namespace leaf::zookeeper {

Presence::Presence(Client& client, Logger& log) : client_(client), log_(log), node_(client, log) {}

void Presence::Begin(const Tree& tree, const std::string& address, const TemporaryRecord& record) {
  {
    const MutexLock lock(mutex_);
    announced_.emplace(Announced{tree, address});
  }
  node_.Begin(tree.Temporary(address), FormatTemporary(record));
}

Result<std::vector<core::Peer>> Presence::Peers() {
  std::optional<Announced> announced;
  {
    const MutexLock lock(mutex_);
    announced = announced_;
  }
  if (!announced) return Error{ErrorCode::kUnavailable, "this node has no worker number yet", ""};
  const Tree& tree = announced->tree;
  LEAF_ASSIGN_OR_RETURN(const auto children, client_.Children(tree.Temporaries()));
  std::vector<std::string> addresses;
  std::vector<std::string> paths;
  for (const std::string& address : children.value_or(std::vector<std::string>{})) {
    if (address == announced->address) continue;
    addresses.push_back(address);
    paths.push_back(tree.Temporary(address));
  }
  LEAF_ASSIGN_OR_RETURN(const auto nodes, client_.GetAll(paths));
  std::vector<core::Peer> peers;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!nodes[i]) continue;  // has just gone
    if (auto record = ParseTemporary(nodes[i]->data); record.ok()) {
      peers.push_back({addresses[i], std::move(record->url), record->worker});
    } else {
      log_.Warning("{}: {}", paths[i], record.error().message);
    }
  }
  return peers;
}

}  // namespace leaf::zookeeper
