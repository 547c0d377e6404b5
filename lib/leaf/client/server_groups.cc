#include "leaf/client/server_groups.h"

namespace leaf::client {

ServerGroups::ServerGroups(const std::vector<std::vector<std::string>>& groups,
                           std::chrono::milliseconds away)
    : away_(away) {
  for (const auto& group : groups) {
    for (const std::string& name : group) servers_.emplace_back(name);
  }
}

std::vector<std::size_t> ServerGroups::Order(MonotonicTime now) const {
  std::vector<std::size_t> order;
  std::vector<std::size_t> away;
  for (std::size_t i = 0; i < servers_.size(); ++i)
    (servers_[i].away_until.load() > now ? away : order).push_back(i);
  order.insert(order.end(), away.begin(), away.end());
  return order;
}

void ServerGroups::Answered(std::size_t server) { servers_[server].away_until.store({}); }

void ServerGroups::DidNotAnswer(std::size_t server, MonotonicTime now) {
  servers_[server].away_until.store(now + away_);
}

}  // namespace leaf::client
