// Which of several daemons to ask, in which order: the nearest group first, whoever did not answer lately
// last.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "leaf/base/time.h"

namespace leaf::client {

// Thread-safe.
class ServerGroups {
 public:
  // Groups nearest first; `away`: how long who did not answer is passed over.
  ServerGroups(const std::vector<std::vector<std::string>>& groups, std::chrono::milliseconds away);

  // All servers, each once, as they are to be tried at `now`: those that are not away as they were given,
  // then the others, the same way.
  std::vector<std::size_t> Order(MonotonicTime now) const;
  const std::string& name(std::size_t server) const { return servers_[server].name; }

  void Answered(std::size_t server);
  void DidNotAnswer(std::size_t server, MonotonicTime now);

 private:
  struct Server {
    std::string name;
    MonotonicTime away_until;  // the clock's zero for who answers
  };
  const std::chrono::milliseconds away_;
  mutable std::mutex mutex_;
  std::vector<Server> servers_;  // their times are guarded by mutex_
};

}  // namespace leaf::client
