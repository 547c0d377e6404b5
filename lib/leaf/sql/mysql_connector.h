// Which of the endpoints of a replicated cluster is in use, for all connections of this process to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/base/result.h"
#include "leaf/sql/connection_pool.h"
#include "leaf/sql/mysql_session.h"

namespace leaf::sql {

// The endpoint in use is kept while it can be connected to and takes writes. If not, the list is tried in
// order from its first, and the first that takes writes is used from then on.
//
// Invariant: at any time all statements of this process go to one server. Each connection belongs to a
// *term*, the time over which one server (an endpoint, and what answers there) is in use; connections of an
// earlier term are dropped before their next statement, and before COMMIT. The schedule that breaks without
// it: A is in use, with two connections. One of them is cut, and by then A cannot be reached any more: B is
// elected. A, which was demoted too late or not at all, still answers on the other connection, and grants
// from it what B grants as well.
//
// What a new server has lost is not judged here. It need not be: service::Granter judges every grant by this
// node's durable mark, read before the row is, whichever server the row comes from. So the first grant after
// a change is checked before any of its IDs is issued, without waiting for a refresh.
//
// Thread-safe. Blocks as long as the time-outs of `options` allow for each endpoint, once. A call that comes
// while another one tries them all waits for its result, and takes it.
class MysqlConnector {
 public:
  // `log` is told about every change; null for none. Both outlive this.
  MysqlConnector(MysqlOptions options, const Clock& clock, Logger* log);

  // Of all connections of this process, at most MysqlOptions::connections_max.
  ConnectionPool& pool() { return pool_; }

  // A connection to the server in use. Errors, without "cannot …": kUnavailable if no endpoint takes writes,
  // kPermission or kConfig if all say the same; the message names each, and why. `full` tells whether a
  // server refused because of too many connections: one that is in use stays in use.
  Result<PooledConnection> Connect(bool& full);

  // Whether connections of `term` may still be used.
  bool InUse(std::uint64_t term) const { return term_.load(std::memory_order_acquire) == term; }

  struct State {
    std::string endpoint;  // "" before the first connection
    std::string identity;  // which server, as it says itself
    std::uint64_t identity_changes = 0;
  };
  State state() const;

  const MysqlOptions& options() const { return options_; }

 private:
  // What came of trying an endpoint.
  struct Probe {
    std::size_t index = 0;
    std::unique_ptr<soci::session> session;  // null if there is an error
    std::string identity;
    Error error;
    bool full = false;  // the server lets in no more connections
  };
  struct Choice {
    std::optional<std::size_t> index;
    std::uint64_t term = 0;
  };
  Choice CurrentChoice() const;
  Probe Try(std::size_t index) const;
  // Makes the server of `probe` the one in use, or joins it, unless the choice is not `seen` any more: then
  // null.
  std::optional<PooledConnection> Adopt(const Choice& seen, Probe probe);
  // Tries all but the one that has just failed. Null if the choice has changed meanwhile.
  Result<std::optional<PooledConnection>> Elect(const Choice& seen, std::optional<Probe> failed,
                                                std::uint64_t rounds_failed, bool& full);
  Error ErrorOf(const Probe& probe) const;
  Error NoneError(const std::vector<Probe>& probes) const;

  const MysqlOptions options_;
  Logger* const log_;
  ConnectionPool pool_;

  Mutex election_mutex_;  // held while the list is tried; before mutex_

  mutable Mutex mutex_;
  std::optional<std::size_t> index_ LEAF_GUARDED_BY(mutex_);
  State state_ LEAF_GUARDED_BY(mutex_);
  std::optional<Error> round_error_ LEAF_GUARDED_BY(mutex_);  // of the last round that found none
  bool round_full_ LEAF_GUARDED_BY(mutex_) = false;  // a server lets in no more connections, said that round

  std::atomic<std::uint64_t> term_{0};           // written under mutex_
  std::atomic<std::uint64_t> rounds_failed_{0};  // written under election_mutex_
};

}  // namespace leaf::sql
