#include "leaf/server/http/shared_status.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace leaf::server {

std::string SharedStatus::Answer(const StatusQuery& query) {
  std::shared_ptr<const StatusSnapshot> snapshot;
  {
    const MutexLock lock(mutex_);
    Refresh();
    const auto kept =
        std::find_if(kept_.begin(), kept_.end(), [&](const Kept& one) { return one.query == query; });
    if (kept != kept_.end()) return kept->body;
    snapshot = snapshot_;
  }
  // Not under the lock: callers of one kind must not keep those of another waiting.
  std::string body =
      snapshot->Tell(query, ids_).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  // A request for one tag always gets its present state: nothing is kept.
  if (!query.tag.empty()) return body;
  const MutexLock lock(mutex_);
  if (snapshot == snapshot_) Keep(query, body);
  return body;
}

void SharedStatus::Refresh() {
  const std::uint64_t changes = changes_.load();
  if (snapshot_ && changes == changes_seen_ && clock_.Monotonic() - made_at_ < kMaxAge) return;
  kept_.clear();
  kept_bytes_ = 0;
  snapshot_ = std::make_shared<const StatusSnapshot>(gather_());
  // From its end on: were it to take a second, each request would take another one.
  made_at_ = clock_.Monotonic();
  changes_seen_ = changes;
}

void SharedStatus::Keep(const StatusQuery& query, const std::string& body) {
  while (!kept_.empty() && (kept_.size() >= kKeptAnswers || kept_bytes_ > kKeptBytes)) {
    kept_bytes_ -= kept_.front().body.size();
    kept_.pop_front();
  }
  kept_.push_back({query, body});
  kept_bytes_ += body.size();
}

}  // namespace leaf::server
