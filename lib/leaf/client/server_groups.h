// Which of several daemons to ask, in which order: the nearest group first, a server that did not answer
// lately last.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "leaf/base/time.h"

namespace leaf::client {

// Thread-safe, and without a lock: in a child of fork no thread would give it back.
class ServerGroups {
 public:
  // Groups nearest first; `away`: how long a server that did not answer is passed over.
  ServerGroups(const std::vector<std::vector<std::string>>& groups, std::chrono::milliseconds away);

  // All servers, each once, as they are to be tried at `now`: those that are not away as they were given,
  // then the others, the same way.
  std::vector<std::size_t> Order(MonotonicTime now) const;
  const std::string& name(std::size_t server) const { return servers_[server].name; }

  void Answered(std::size_t server);
  void DidNotAnswer(std::size_t server, MonotonicTime now);

 private:
  struct Server {
    explicit Server(std::string its_name) : name(std::move(its_name)) {}
    const std::string name;
    std::atomic<MonotonicTime> away_until{};  // the clock's zero for one that answers
  };
  const std::chrono::milliseconds away_;
  std::deque<Server> servers_;  // never added to after the constructor
};

}  // namespace leaf::client
