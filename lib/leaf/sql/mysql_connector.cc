#include "leaf/sql/mysql_connector.h"

#include <fmt/format.h>
#include <soci/soci.h>

#include <algorithm>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/limits.h"
#include "leaf/sql/error_map.h"
#include "leaf/sql/mysql_server.h"

namespace leaf::sql {

MysqlConnector::MysqlConnector(MysqlOptions options, const Clock& clock, Logger* log)
    : options_(std::move(options)),
      log_(log),
      pool_(
          {.connections_max = options_.connections_max,
           .idle_kept = kIdleConnectionsKept,
           .idle_time = kIdleConnectionTime,
           // What another task may need to find that no endpoint answers, or that its statement does not end.
           .wait = static_cast<int>(options_.endpoints.size()) * options_.connect_timeout +
                   options_.query_timeout},
          &clock, log) {
  LEAF_CHECK(!options_.endpoints.empty());
}

MysqlConnector::State MysqlConnector::state() const {
  const MutexLock lock(mutex_);
  return state_;
}

MysqlConnector::Choice MysqlConnector::CurrentChoice() const {
  const MutexLock lock(mutex_);
  return {index_, term_.load()};
}

Result<PooledConnection> MysqlConnector::Connect(bool& full) {
  // Each turn but the last ends because another thread chose a server meanwhile.
  constexpr int kTurns = 5;
  for (int turn = 0; turn < kTurns; ++turn) {
    const std::uint64_t rounds_failed = rounds_failed_.load();
    const Choice seen = CurrentChoice();
    std::optional<Probe> failed;
    if (seen.index) {
      Probe probe = Try(*seen.index);
      if (probe.session) {
        if (auto connection = Adopt(seen, std::move(probe))) return std::move(*connection);
        continue;
      }
      if (probe.full) {
        // It answers, and the connections to it that are up are well: no reason to work with another one.
        full = true;
        return ErrorOf(probe);
      }
      failed = std::move(probe);
    }
    LEAF_ASSIGN_OR_RETURN(auto connection, Elect(seen, std::move(failed), rounds_failed, full));
    if (connection) return std::move(*connection);
  }
  return Error{ErrorCode::kUnavailable, "the database server in use changes too often", "retry later"};
}

MysqlConnector::Probe MysqlConnector::Try(std::size_t index) const {
  Probe probe;
  probe.index = index;
  auto session = OpenMysql(options_, options_.endpoints[index], &probe.full);
  if (!session.ok()) {
    probe.error = std::move(session).error();
    return probe;
  }
  try {
    MysqlServer server = AskServer(**session);
    if (const auto why = WhyNotWritable(server)) {
      probe.error = {ErrorCode::kUnavailable, *why, ""};
      return probe;
    }
    // A node that has just taken over may not have applied yet what it has received: without waiting for
    // that, a max_id would seem to have gone back.
    if (server.galera) **session << "SET SESSION wsrep_sync_wait = 1";
    probe.identity = std::move(server.identity);
    probe.session = std::move(*session);
  } catch (const std::exception& exception) {
    probe.error = TranslateReason(exception, Phase::kStatement);
  }
  return probe;
}

std::optional<PooledConnection> MysqlConnector::Adopt(const Choice& seen, Probe probe) {
  std::string before;
  std::string before_endpoint;
  State now;
  bool other_server = false;
  bool changed = false;
  std::uint64_t term = 0;
  {
    const MutexLock lock(mutex_);
    term = term_.load();
    if (term != seen.term) return std::nullopt;
    changed = index_ != probe.index || state_.identity != probe.identity;
    if (changed) {
      other_server = !state_.identity.empty() && state_.identity != probe.identity;
      before = state_.identity;
      before_endpoint = state_.endpoint;
      index_ = probe.index;
      state_.identity = std::move(probe.identity);
      state_.endpoint = EndpointText(options_.endpoints[probe.index]);
      if (other_server) ++state_.identity_changes;
      term_.store(++term, std::memory_order_release);
    }
    now = state_;
  }
  if (log_ != nullptr && other_server) {
    log_->Warning(
        "another database server is in use: {} ({}) instead of {} ({}); every grant is checked against this "
        "node's marks",
        now.endpoint, now.identity, before_endpoint, before);
  } else if (log_ != nullptr && changed) {
    log_->Info("the database server in use is {} ({})", now.endpoint, now.identity);
  }
  return PooledConnection{std::move(probe.session), term};
}

Result<std::optional<PooledConnection>> MysqlConnector::Elect(const Choice& seen, std::optional<Probe> failed,
                                                              std::uint64_t rounds_failed, bool& full) {
  const MutexLock election(election_mutex_);
  if (!InUse(seen.term)) return std::optional<PooledConnection>();
  if (rounds_failed_.load() != rounds_failed) {
    // Another thread has just tried them all.
    const MutexLock lock(mutex_);
    LEAF_CHECK(round_error_.has_value());
    full = round_full_;
    return *round_error_;
  }
  std::vector<Probe> probes;
  for (std::size_t index = 0; index < options_.endpoints.size(); ++index) {
    const bool tried = failed && failed->index == index;
    Probe probe = tried ? *std::exchange(failed, std::nullopt) : Try(index);
    if (probe.session) return Adopt(seen, std::move(probe));
    probes.push_back(std::move(probe));
  }
  Error error = NoneError(probes);
  full = std::any_of(probes.begin(), probes.end(), [](const Probe& probe) { return probe.full; });
  {
    const MutexLock lock(mutex_);
    round_error_ = error;
    round_full_ = full;
  }
  rounds_failed_.fetch_add(1);
  return error;
}

Error MysqlConnector::ErrorOf(const Probe& probe) const {
  Error error = probe.error;
  error.message = fmt::format("{} ({})", error.message, EndpointText(options_.endpoints[probe.index]));
  return error;
}

Error MysqlConnector::NoneError(const std::vector<Probe>& probes) const {
  if (probes.size() == 1) return ErrorOf(probes.front());
  Error error = probes.front().error;
  std::string reasons;
  for (const Probe& probe : probes) {
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ",
                           EndpointText(options_.endpoints[probe.index]), probe.error.message);
    // Where some refuse the password and others are away, waiting may help.
    if (probe.error.code != error.code) error.code = ErrorCode::kUnavailable;
    if (probe.error.hint != error.hint) error.hint.clear();
  }
  error.message = fmt::format("no endpoint takes writes: {}", reasons);
  return error;
}

}  // namespace leaf::sql
