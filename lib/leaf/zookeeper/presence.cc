#include "leaf/zookeeper/presence.h"

#include <fmt/format.h>

#include <utility>

#include "leaf/base/text.h"

namespace leaf::zookeeper {
namespace {

// How often somebody else may come in between before the next Refresh has to try.
constexpr int kAttempts = 4;

}  // namespace

Presence::Presence(Client& client, Logger& log)
    : client_(client), log_(log), subscription_(client.OnNewSession([this] { Refresh(); })) {}

Presence::~Presence() { subscription_.reset(); }

void Presence::Begin(const Tree& tree, const std::string& address, TemporaryRecord record) {
  const std::lock_guard lock(mutex_);
  announced_.emplace(Announced{tree, address, FormatTemporary(record)});
  made_in_ = 0;
  RefreshLocked();
}

void Presence::Refresh() {
  const std::lock_guard lock(mutex_);
  RefreshLocked();
}

void Presence::RefreshLocked() {
  if (!announced_ || !announced_->live) return;
  const std::int64_t session = client_.session_id();
  if (session == 0 || session == made_in_) return;
  if (const auto made = Make(); !made.ok()) {
    if (!std::exchange(failing_, true))
      log_.Warning("this node does not appear among the live ones: {}", made.error().message);
    return;
  }
  // Of the session in which it was begun, at the latest: if there is a newer one already, it is made again.
  made_in_ = session;
  failing_ = false;
}

Result<void> Presence::Make() {
  const std::string path = announced_->tree.Temporary(announced_->address);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    LEAF_ASSIGN_OR_RETURN(const auto found, client_.Get(path));
    std::vector<Operation> operations;
    if (found) {
      if (found->stat.ephemeral_owner == client_.session_id() && found->data == announced_->data) return {};
      // Of a session of ours that has not run out yet.
      operations.push_back(Operation::Delete(path, found->stat.version));
    }
    operations.push_back(Operation::CreateEphemeral(path, announced_->data));
    LEAF_ASSIGN_OR_RETURN(const WriteOutcome made, client_.Write(operations));
    if (made.done()) return {};
  }
  return Error{ErrorCode::kUnavailable, fmt::format("{} keeps changing", Quoted(path)), ""};
}

void Presence::End() {
  const std::lock_guard lock(mutex_);
  if (!announced_ || !std::exchange(announced_->live, false)) return;
  made_in_ = 0;
  const std::string path = announced_->tree.Temporary(announced_->address);
  const auto found = client_.Get(path);
  if (!found.ok() || !*found || (*found)->data != announced_->data) return;
  // If this does not arrive, the end of the session does it.
  if (const auto removed = client_.Write({Operation::Delete(path, (*found)->stat.version)}); !removed.ok())
    log_.Debug("{} remains until the session ends: {}", path, removed.error().message);
}

Result<std::vector<core::Peer>> Presence::Peers() {
  std::optional<Announced> announced;
  {
    const std::lock_guard lock(mutex_);
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
