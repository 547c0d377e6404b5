#include "leaf/zookeeper/ephemeral_node.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "leaf/base/text.h"

namespace leaf::zookeeper {
namespace {

// How often another client may come in between before the next Refresh has to try.
constexpr int kAttempts = 4;

}  // namespace

EphemeralNode::EphemeralNode(Client& client, Logger& log)
    : client_(client), log_(log), subscription_(client.OnNewSession([this] { Refresh(); })) {}

EphemeralNode::~EphemeralNode() { subscription_.reset(); }

void EphemeralNode::Begin(std::string path, std::string data) {
  const MutexLock lock(mutex_);
  standing_.emplace(Standing{std::move(path), std::move(data)});
  made_in_ = 0;
  RefreshLocked();
}

bool EphemeralNode::stands() {
  const MutexLock lock(mutex_);
  return made_in_ != 0 && made_in_ == client_.session_id();
}

void EphemeralNode::Refresh() {
  const MutexLock lock(mutex_);
  RefreshLocked();
}

void EphemeralNode::RefreshLocked() {
  if (!standing_ || !standing_->live) return;
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

Result<void> EphemeralNode::Make() {
  const std::string& path = standing_->path;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    LEAF_ASSIGN_OR_RETURN(const auto found, client_.Get(path));
    std::vector<Operation> operations;
    if (found) {
      if (found->stat.ephemeral_owner == client_.session_id() && found->data == standing_->data) return {};
      // Of a session of ours that has not run out yet.
      operations.push_back(Operation::Delete(path, found->stat.version));
    }
    operations.push_back(Operation::CreateEphemeral(path, standing_->data));
    LEAF_ASSIGN_OR_RETURN(const WriteOutcome made, client_.Write(operations));
    if (made.done()) return {};
  }
  return Error{ErrorCode::kUnavailable, fmt::format("{} keeps changing", Quoted(path)), ""};
}

void EphemeralNode::End() {
  const MutexLock lock(mutex_);
  if (!standing_ || !std::exchange(standing_->live, false)) return;
  made_in_ = 0;
  const std::string& path = standing_->path;
  const auto found = client_.Get(path);
  if (!found.ok() || !*found || (*found)->data != standing_->data) return;
  // If this does not arrive, the end of the session does it.
  if (const auto removed = client_.Write({Operation::Delete(path, (*found)->stat.version)}); !removed.ok())
    log_.Debug("{} remains until the session ends: {}", path, removed.error().message);
}

}  // namespace leaf::zookeeper
