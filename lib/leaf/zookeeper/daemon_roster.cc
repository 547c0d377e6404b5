#include "leaf/zookeeper/daemon_roster.h"

#include <cstddef>
#include <utility>

#include "leaf/zookeeper/folders.h"
#include "leaf/zookeeper/registry_options.h"

namespace leaf::zookeeper {

DaemonEntry::DaemonEntry(Tree tree, Client& client, Logger& log)
    : tree_(std::move(tree)), client_(client), log_(log), node_(client, log) {}

void DaemonEntry::EnsureFolder() {
  if (const auto made = EnsureFolders(client_, tree_, tree_.SegmentFolders()); !made.ok())
    log_.Debug("cannot make {} yet: {}", tree_.Daemons(), made.error().message);
}

void DaemonEntry::Begin(const std::string& id, const DaemonRecord& record) {
  EnsureFolder();
  node_.Begin(tree_.Daemon(id), FormatDaemon(record));
}

void DaemonEntry::Refresh() {
  if (node_.stands()) return;
  EnsureFolder();
  node_.Refresh();
}

Result<std::vector<DaemonRecord>> ReadDaemonRoster(Client& client, const Tree& tree) {
  LEAF_ASSIGN_OR_RETURN(const auto children, client.Children(tree.Daemons()));
  std::vector<std::string> paths;
  for (const std::string& id : children.value_or(std::vector<std::string>{}))
    paths.push_back(tree.Daemon(id));
  LEAF_ASSIGN_OR_RETURN(const auto nodes, client.GetAll(paths));
  std::vector<DaemonRecord> daemons;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (!nodes[i]) continue;  // has just gone
    auto record = ParseDaemon(nodes[i]->data);
    if (!record.ok()) {
      Error error = UnusableNode(paths[i], record.error());
      error.hint = "delete it, and restart the daemon that it belonged to, so that it is listed again";
      return error;
    }
    record->id = paths[i].substr(tree.Daemons().size() + 1);
    daemons.push_back(std::move(*record));
  }
  return daemons;
}

}  // namespace leaf::zookeeper
