#include "leaf/client/server_groups.h"

namespace leaf::client {

ServerGroups::ServerGroups(const std::vector<std::vector<std::string>>& groups,
                           std::chrono::milliseconds away)
    : away_(away) {
  for (const auto& group : groups) {
    for (const std::string& name : group) servers_.push_back({name, {}});
  }
}

std::vector<std::size_t> ServerGroups::Order(MonotonicTime now) const {
  std::vector<std::size_t> order;
  std::vector<std::size_t> away;
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < servers_.size(); ++i)
    (servers_[i].away_until > now ? away : order).push_back(i);
  order.insert(order.end(), away.begin(), away.end());
  return order;
}

void ServerGroups::Answered(std::size_t server) {
  const std::lock_guard lock(mutex_);
  servers_[server].away_until = {};
}

void ServerGroups::DidNotAnswer(std::size_t server, MonotonicTime now) {
  const std::lock_guard lock(mutex_);
  servers_[server].away_until = now + away_;
}

}  // namespace leaf::client
