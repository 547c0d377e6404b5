#include "leaf/sql/worker_registry.h"

#include <fmt/format.h>
#include <soci/soci.h>

#include <algorithm>
#include <utility>

#include "leaf/base/duration.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/core/java_leaf.h"

namespace leaf::sql {

// The row of a number in leafctl_workers.
struct RegisteredOwner {
  bool found = false;
  std::string address;
  std::string uuid;
  std::string host{};
  long long claims = 0;
  long long ceiling_ms = 0;
  long long reported_ms = 0;
};

namespace {

using std::chrono::milliseconds;

// How often the claim looks at a row that it watches.
constexpr milliseconds kLook{250};
constexpr int kInsertAttempts = 5;
// A node that crashed stays live in the table: those that reported last are asked first.
constexpr int kPeersMax = 64;

// The fork keeps both parts beside the whole.
std::pair<std::string, std::string> SplitAddress(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {address, ""};
  return {address.substr(0, colon), address.substr(colon + 1)};
}

RegisteredOwner ReadOwner(soci::session& session, const Dialect& dialect, long long worker) {
  RegisteredOwner row;
  session << fmt::format(
      "SELECT ip_port, uuid, host, claims, ceiling_ms, reported_ms FROM leafctl_workers WHERE worker = "
      ":worker{}",
      dialect.for_update),
      soci::use(worker, "worker"), soci::into(row.address), soci::into(row.uuid), soci::into(row.host),
      soci::into(row.claims), soci::into(row.ceiling_ms), soci::into(row.reported_ms);
  row.found = session.got_data();
  return row;
}

void InsertOwner(soci::session& session, const SqlRegistryOptions& options, const RegisteredOwner& owner,
                 long long worker, long long now_ms) {
  session << "INSERT INTO leafctl_workers (worker, ip_port, uuid, host, url, claims, ceiling_ms, "
             "reported_ms, since_ms, live) VALUES (:worker, :address, :uuid, :host, :url, :claims, :ceiling, "
             ":reported, :now, 1)",
      soci::use(worker, "worker"), soci::use(owner.address, "address"), soci::use(owner.uuid, "uuid"),
      soci::use(options.host, "host"), soci::use(options.url, "url"), soci::use(owner.claims, "claims"),
      soci::use(owner.ceiling_ms, "ceiling"), soci::use(owner.reported_ms, "reported"),
      soci::use(now_ms, "now");
}

// A row of the fork's table for `address`; `worker` for one that had that number before, else the next one.
// Returns the number.
long long InsertNumber(soci::session& session, const Dialect& dialect, const std::string& address,
                       long long now_ms, std::optional<long long> worker) {
  const auto [ip, port] = SplitAddress(address);
  if (worker) {
    session
        << "INSERT INTO leaf_workerid_alloc (id, ip_port, ip, port, max_timestamp, create_time, update_time) "
           "VALUES (:worker, :address, :ip, :port, :time, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)",
        soci::use(*worker, "worker"), soci::use(address, "address"), soci::use(ip, "ip"),
        soci::use(port, "port"), soci::use(now_ms, "time");
    return *worker;
  }
  session << "INSERT INTO leaf_workerid_alloc (ip_port, ip, port, max_timestamp, create_time, update_time) "
             "VALUES (:address, :ip, :port, :time, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)",
      soci::use(address, "address"), soci::use(ip, "ip"), soci::use(port, "port"), soci::use(now_ms, "time");
  long long number = 0;
  session << std::string(dialect.last_insert_id), soci::into(number);
  return number;
}

// Whether no table knows the number.
bool IsUnknown(soci::session& session, const Dialect& dialect, long long worker) {
  long long id = 0;
  session << fmt::format("SELECT id FROM leaf_workerid_alloc WHERE id = :worker{}", dialect.for_update),
      soci::use(worker, "worker"), soci::into(id);
  return !session.got_data() && !ReadOwner(session, dialect, worker).found;
}

Error Lost(std::uint64_t worker, const std::string& why) {
  return {ErrorCode::kNotOwner, fmt::format("worker number {} is no longer this node's: {}", worker, why),
          "run leafctl worker show, then restart"};
}

// The same, where the number may be claimed again without a restart.
Error Displaced(std::uint64_t worker, const std::string& why) {
  return {ErrorCode::kRefused, fmt::format("worker number {} is not this node's at present: {}", worker, why),
          "this node claims its number again by itself, as soon as that is over"};
}

// The row that every claim locks first: one at a time, so that no two of them wait for each other, and none
// is rolled back with a number that the database then never gives again.
Result<void> EnsureCluster(Database& database, const core::ClusterProperties& cluster) {
  auto made = database.Run("claim a worker number", [&](soci::session& session) -> Result<void> {
    int rows = 0;
    session << "SELECT COUNT(*) FROM leafctl_cluster WHERE one = 1", soci::into(rows);
    if (rows > 0) return {};
    const std::string bits = cluster.layout.Bits();
    const long long epoch = cluster.layout.epoch_ms();
    session << "INSERT INTO leafctl_cluster (one, name, layout, epoch_ms) VALUES (1, :name, :layout, :epoch)",
        soci::use(cluster.name, "name"), soci::use(bits, "layout"), soci::use(epoch, "epoch");
    return {};
  });
  // Another node was first.
  if (!made.ok() && made.error().code == ErrorCode::kAlreadyExists) return {};
  return made;
}

Result<void> CheckCluster(soci::session& session, const Dialect& dialect,
                          const core::ClusterProperties& cluster) {
  core::ClusterProperties stored = cluster;
  std::string bits;
  long long epoch_ms = 0;
  session << fmt::format("SELECT name, layout, epoch_ms FROM leafctl_cluster WHERE one = 1{}",
                         dialect.for_update),
      soci::into(stored.name), soci::into(bits), soci::into(epoch_ms);
  if (!session.got_data())
    return Error{ErrorCode::kUnavailable, "the cluster's row is being removed", "retry"};
  LEAF_ASSIGN_OR_RETURN(stored.layout, core::IdLayout::Parse(bits, epoch_ms));
  return core::CheckSameCluster(stored, cluster, "table leaf_workerid_alloc");
}

}  // namespace

// What changes as long as a node reports under a number.
struct SqlWorkerRegistry::Watched {
  std::int64_t timestamp_ms = 0;  // the fork's column
  std::int64_t ceiling_ms = 0;    // ours
  bool copied = false;            // it would be a process with a copy of our own state directory
  friend bool operator==(const Watched&, const Watched&) = default;
};

struct SqlWorkerRegistry::Attempt {
  core::WorkerClaim claim;
  // Another node may be alive with this number: what it says has to be watched before the number is claimed.
  std::optional<Watched> to_watch;
  bool new_to_node = false;  // the database may have forgotten whose it is
};

SqlWorkerRegistry::SqlWorkerRegistry(Database& database, SqlRegistryOptions options, const Clock& clock,
                                     Logger& log)
    : database_(database), options_(std::move(options)), clock_(clock), log_(log) {}

bool SqlWorkerRegistry::WaitUntil(MonotonicTime end) const {
  while (clock_.Monotonic() < end) {
    if (interrupted_.load()) return false;
    clock_.WaitUntil(std::min(end, clock_.Monotonic() + kLook));
  }
  return !interrupted_.load();
}

Result<void> SqlWorkerRegistry::WatchForOwners(std::optional<Position>& seen) {
  if (options_.claim_watch.count() == 0) return {};
  log_.Warning(
      "this node needs a worker number that its state directory did not hold before: watching the database "
      "for {} first, in case it was restored from a backup and the number is another node's",
      FormatDuration(options_.claim_watch));
  MonotonicTime end = clock_.Monotonic() + options_.claim_watch;
  while (true) {
    // While the database does not answer, owners cannot come back either.
    Position now;
    LEAF_RETURN_IF_ERROR(database_.Run("watch for the owners of worker numbers", [&](soci::session& session) {
      now = ReadPosition(session);
      return Result<void>{};
    }));
    if (seen && now.IsBehind(*seen)) {
      log_.Warning("the database lost data, or another server answers: watching once more");
      end = clock_.Monotonic() + options_.claim_watch;
    }
    seen = std::move(now);
    if (clock_.Monotonic() >= end) return {};
    if (!WaitUntil(std::min(end, clock_.Monotonic() + 2 * kLook)))
      return Error{ErrorCode::kUnavailable, "interrupted while a number was claimed", ""};
  }
}

SqlWorkerRegistry::Position SqlWorkerRegistry::ReadPosition(soci::session& session) const {
  Position position;
  position.server = database_.State().identity;
  session << "SELECT COALESCE(SUM(claims), 0), COALESCE(MAX(reported_ms), 0) FROM leafctl_workers",
      soci::into(position.claims), soci::into(position.reported);
  return position;
}

Result<core::WorkerClaim> SqlWorkerRegistry::Claim(const core::NodeIdentity& node,
                                                   const core::ClusterProperties& cluster) {
  LEAF_RETURN_IF_ERROR(EnsureCluster(database_, cluster));
  std::optional<Watched> watched;
  // A number that this process lost is no new one, and it gets no other.
  bool watched_for_owners = node.again.has_value();
  std::optional<Position> seen;
  for (int attempt = 0;; ++attempt) {
    auto tried = TryClaim(node, cluster, watched, watched_for_owners, seen);
    if (!tried.ok()) {
      // Another node inserted the same row in between: now it can be read.
      if (tried.error().code == ErrorCode::kAlreadyExists && attempt < kInsertAttempts) continue;
      return std::move(tried).error();
    }
    if (tried->new_to_node) {
      node.TellDenied();
      if (options_.check_one_writer) LEAF_RETURN_IF_ERROR(options_.check_one_writer());
      LEAF_RETURN_IF_ERROR(WatchForOwners(seen));
      if (options_.check_one_writer) LEAF_RETURN_IF_ERROR(options_.check_one_writer());
      watched_for_owners = true;
      continue;
    }
    if (!tried->to_watch) {
      const MutexLock lock(mutex_);
      held_ = {node.uuid, node.address, tried->claim.ceiling.value_or(WallTime{})};
      return tried->claim;
    }
    if (watched && tried->to_watch->copied) {
      return Error{ErrorCode::kRefused,
                   fmt::format("another process is alive with a copy of this state directory: it reports to "
                               "leafctl_workers as {}",
                               node.address),
                   "stop one of the two; a second node needs a state directory and an address of its own"};
    }
    if (watched) {
      return Error{ErrorCode::kRefused,
                   fmt::format("{} reports to leaf_workerid_alloc while it is being claimed: a Leaf node "
                               "with this address is running",
                               node.address),
                   "stop it first, or set another snowflake.address"};
    }
    watched = tried->to_watch;
    // Before the wait: a node that was told of another one does not start without the database.
    node.TellDenied();
    if (!WaitUntil(clock_.Monotonic() + (watched->copied ? core::kCopyWatch : core::kJavaWatch)))
      return Error{ErrorCode::kUnavailable, "interrupted while a number was claimed", ""};
  }
}

Result<SqlWorkerRegistry::Attempt> SqlWorkerRegistry::TryClaim(const core::NodeIdentity& node,
                                                               const core::ClusterProperties& cluster,
                                                               const std::optional<Watched>& watched,
                                                               bool watched_for_owners,
                                                               const std::optional<Position>& seen) {
  const std::string what = fmt::format("claim a worker number for {}", node.address);
  Attempt attempt;
  bool recreated = false;
  const Result<void> done =
      database_.Transact(what, Database::Finish::kCommit, [&](soci::session& session) -> Result<void> {
        attempt = {};
        recreated = false;
        LEAF_RETURN_IF_ERROR(CheckCluster(session, database_.dialect(), cluster));
        LEAF_ASSIGN_OR_RETURN(const std::optional<NumberRow> row,
                              FindNumber(session, node, watched_for_owners, seen));
        if (!row) {
          attempt.new_to_node = true;
          return Error{ErrorCode::kRefused, "to be watched first", ""};  // rolls back; no caller sees it
        }
        LEAF_ASSIGN_OR_RETURN(attempt, ClaimNumber(session, node, *row, watched));
        // The same.
        if (attempt.to_watch) return Error{ErrorCode::kRefused, "to be watched first", ""};
        recreated = row->recreated;
        return {};
      });
  if (done.ok() && recreated) times_put_back_.fetch_add(1);
  if (!done.ok() && !attempt.to_watch && !attempt.new_to_node) return done.error();
  return attempt;
}

Result<std::optional<SqlWorkerRegistry::NumberRow>> SqlWorkerRegistry::FindNumber(
    soci::session& session, const core::NodeIdentity& node, bool watched_for_owners,
    const std::optional<Position>& seen) {
  const Dialect& dialect = database_.dialect();
  const long long now_ms = UnixMillis(clock_.Wall());
  long long worker = 0;
  long long timestamp = 0;
  soci::indicator timestamp_state = soci::i_null;
  session << fmt::format("SELECT id, max_timestamp FROM leaf_workerid_alloc WHERE ip_port = :address{}",
                         dialect.for_update),
      soci::use(node.address, "address"), soci::into(worker), soci::into(timestamp, timestamp_state);
  const bool fresh = !session.got_data();
  // A copy has held nothing: where the database went back its original may not have come back yet.
  const std::optional<std::uint64_t> held = node.again                 ? node.again
                                            : node.former_uuid.empty() ? node.held
                                                                       : std::nullopt;
  const bool recreated = fresh && held && IsUnknown(session, dialect, static_cast<long long>(*held));
  if (fresh && node.again && !recreated) {
    return Error{ErrorCode::kRefused,
                 fmt::format("leaf_workerid_alloc has no row of {} any more", node.address),
                 "run leafctl worker check; a restart claims a new number"};
  }
  if (!fresh && node.again && static_cast<std::uint64_t>(worker) != *node.again) {
    return Error{ErrorCode::kRefused, fmt::format("{} has the number {} now", node.address, worker),
                 "run leafctl worker check, then restart this node"};
  }
  const bool is_held = fresh ? recreated : held && static_cast<std::uint64_t>(worker) == *held;
  if (!is_held && (!watched_for_owners || (seen && ReadPosition(session).IsBehind(*seen))))
    return std::optional<NumberRow>();
  if (fresh) {
    timestamp = now_ms;
    timestamp_state = soci::i_ok;
    if (recreated) worker = static_cast<long long>(*held);
    worker = InsertNumber(session, dialect, node.address, now_ms,
                          recreated ? std::optional(worker) : std::nullopt);
  }
  if (recreated) {
    log_.Warning(
        "the database has forgotten worker {} of this state directory (it was restored from a backup): "
        "creating its rows again",
        worker);
  }
  const auto number = static_cast<std::uint64_t>(worker);
  if (worker < 0 || number < options_.worker_begin || number >= options_.worker_end) {
    // Rolled back: no row is left behind. The database does not give the number again all the same.
    return Error{
        fresh && number >= options_.worker_end ? ErrorCode::kExhausted : ErrorCode::kRefused,
        fmt::format("leaf_workerid_alloc gives {} the number {}, which is not in {}..{}", node.address,
                    worker, options_.worker_begin, options_.worker_end - 1),
        "use registry zookeeper with recycle = true; or release numbers of nodes that are gone for good "
        "(leafctl worker list shows them, leafctl worker release N), remove their rows from "
        "leaf_workerid_alloc, and lower its AUTO_INCREMENT"};
  }
  return std::optional(NumberRow{worker,
                                 timestamp_state == soci::i_ok ? std::optional(timestamp) : std::nullopt,
                                 fresh, now_ms, recreated});
}

Result<SqlWorkerRegistry::Attempt> SqlWorkerRegistry::ClaimNumber(soci::session& session,
                                                                  const core::NodeIdentity& node,
                                                                  const NumberRow& row,
                                                                  const std::optional<Watched>& watched) {
  Attempt attempt;
  const long long worker = row.worker;
  const RegisteredOwner owner = ReadOwner(session, database_.dialect(), worker);
  const bool formerly_ours = owner.found && !node.former_uuid.empty() && owner.uuid == node.former_uuid;
  if (owner.found && !owner.uuid.empty() && owner.uuid != node.uuid && !formerly_ours) {
    return Error{ErrorCode::kRefused,
                 fmt::format("worker number {} of {} belongs to state directory {} on {}", worker,
                             node.address, owner.uuid, owner.host),
                 fmt::format("if that node is gone for good: leafctl worker release {}", worker)};
  }
  // A number that was released belongs to no address any more either.
  if (owner.found && !owner.uuid.empty() && owner.address != node.address) {
    return Error{ErrorCode::kRefused,
                 fmt::format("leaf_workerid_alloc gives worker number {} to {}, but it was claimed by {}",
                             worker, node.address, owner.address),
                 "leafctl worker check"};
  }
  WallTime ceiling = WallTimeOf(owner.found ? owner.ceiling_ms : 0);
  const bool foreign =
      !row.fresh && row.reported_ms && (!owner.found || *row.reported_ms != owner.reported_ms);
  if (foreign || formerly_ours) {
    if (const Watched now{row.reported_ms.value_or(0), owner.ceiling_ms, formerly_ours}; now != watched) {
      attempt.to_watch = now;
      return attempt;
    }
  }
  // One that never told a ceiling has begun when it reported first.
  const long long told_ms = owner.ceiling_ms > 0 ? owner.ceiling_ms : std::max(owner.reported_ms, 0LL);
  if (owner.found && owner.uuid != node.uuid)
    ceiling = std::max(ceiling, WallTimeOf(told_ms) + core::UntoldMax(options_.window));
  if (foreign) ceiling = std::max(ceiling, WallTimeOf(*row.reported_ms) + core::kJavaMargin);
  const long long claims = owner.claims + 1;
  const long long ceiling_ms = UnixMillis(ceiling);
  // What stands in the fork's column now, so that a later write of the fork is recognised.
  const long long reported_ms = row.reported_ms.value_or(-1);
  if (owner.found) {
    session << "UPDATE leafctl_workers SET uuid = :uuid, ip_port = :address, host = :host, url = :url, "
               "claims = :claims, ceiling_ms = :ceiling, reported_ms = :reported, since_ms = :now, live = 1 "
               "WHERE worker = :worker",
        soci::use(node.uuid, "uuid"), soci::use(node.address, "address"), soci::use(options_.host, "host"),
        soci::use(options_.url, "url"), soci::use(claims, "claims"), soci::use(ceiling_ms, "ceiling"),
        soci::use(reported_ms, "reported"), soci::use(row.now_ms, "now"), soci::use(worker, "worker");
  } else {
    InsertOwner(session, options_,
                {.found = true,
                 .address = node.address,
                 .uuid = node.uuid,
                 .claims = claims,
                 .ceiling_ms = ceiling_ms,
                 .reported_ms = reported_ms},
                worker, row.now_ms);
  }
  attempt.claim = {static_cast<std::uint64_t>(worker), static_cast<std::uint64_t>(claims),
                   ceiling > WallTime{} ? std::optional(ceiling) : std::nullopt};
  return attempt;
}

Result<void> SqlWorkerRegistry::Renew(const core::WorkerClaim& claim, WallTime ceiling) {
  return Report(claim, ceiling, Finality::kGoesOn);
}

Result<void> SqlWorkerRegistry::Release(const core::WorkerClaim& claim, WallTime end) {
  return Report(claim, end, Finality::kEnds);
}

Result<void> SqlWorkerRegistry::Report(const core::WorkerClaim& claim, WallTime ceiling, Finality finality) {
  const Dialect& dialect = database_.dialect();
  Held held;
  {
    const MutexLock lock(mutex_);
    held = held_;
  }
  const std::string& uuid = held.uuid;
  const std::string what = fmt::format("report worker {}", claim.worker);
  bool put_back = false;
  long long sent_ms = 0;
  const auto report_in = [&](soci::session& session) -> Result<void> {
    put_back = false;
    const auto worker = static_cast<long long>(claim.worker);
    RegisteredOwner owner = ReadOwner(session, dialect, worker);
    // No other node has had the number since: the row is older than what was acknowledged.
    const bool forgotten = !owner.found || (owner.claims < static_cast<long long>(claim.generation) &&
                                            (owner.uuid == uuid || owner.uuid.empty()) &&
                                            owner.ceiling_ms <= UnixMillis(held.ceiling));
    if (forgotten) {
      LEAF_ASSIGN_OR_RETURN(owner, PutBack(session, claim, held, owner));
      put_back = true;
    }
    if (owner.uuid != uuid) {
      return Lost(claim.worker, owner.uuid.empty() ? "it was released"
                                                   : fmt::format("it belongs to state directory {} on {}",
                                                                 owner.uuid, owner.host));
    }
    if (owner.claims != static_cast<long long>(claim.generation))
      return Lost(claim.worker, "it was claimed again with this state directory");
    if (owner.ceiling_ms > UnixMillis(held.ceiling) &&
        std::find(held.sent_ms.begin(), held.sent_ms.end(), owner.ceiling_ms) == held.sent_ms.end()) {
      return Lost(
          claim.worker,
          "another process reports with this one's identity: this machine was copied, or set back to a "
          "snapshot, while leafctl ran");
    }
    std::string address;
    long long timestamp = 0;
    soci::indicator timestamp_state = soci::i_null;
    session << fmt::format("SELECT ip_port, max_timestamp FROM leaf_workerid_alloc WHERE id = :worker{}",
                           dialect.for_update),
        soci::use(worker, "worker"), soci::into(address), soci::into(timestamp, timestamp_state);
    if (!session.got_data() || address != owner.address)
      return Displaced(claim.worker, "its row in leaf_workerid_alloc is gone");
    if (timestamp_state == soci::i_ok && timestamp != owner.reported_ms) {
      return Displaced(claim.worker,
                       fmt::format("a Leaf node with its address is running: it reports for {}", address));
    }

    const long long ceiling_ms =
        finality == Finality::kEnds ? static_cast<long long>(UnixMillis(ceiling))
                                    : std::max(owner.ceiling_ms, static_cast<long long>(UnixMillis(ceiling)));
    sent_ms = ceiling_ms;
    // The fork's column holds the true time, which it compares with its clock at its start.
    const long long now_ms = UnixMillis(clock_.Wall());
    const bool report = finality == Finality::kEnds ? now_ms > owner.reported_ms
                                                    : now_ms - owner.reported_ms >= core::kJavaReport.count();
    const long long reported_ms = report ? now_ms : owner.reported_ms;
    const int live = finality == Finality::kGoesOn ? 1 : 0;
    if (report) {
      session << fmt::format("UPDATE leaf_workerid_alloc SET max_timestamp = :time{} WHERE id = :worker",
                             dialect.touch),
          soci::use(now_ms, "time"), soci::use(worker, "worker");
    }
    session << "UPDATE leafctl_workers SET ceiling_ms = :ceiling, reported_ms = :reported, live = :live "
               "WHERE worker = :worker",
        soci::use(ceiling_ms, "ceiling"), soci::use(reported_ms, "reported"), soci::use(live, "live"),
        soci::use(worker, "worker");
    return {};
  };
  auto reported = database_.Transact(what, Database::Finish::kCommit, report_in);
  if (!reported.ok()) {
    const MutexLock lock(mutex_);
    if (reported.error().code == ErrorCode::kOutcomeUnknown) held_.sent_ms.push_back(sent_ms);
    return reported;
  }
  if (put_back) {
    times_put_back_.fetch_add(1);
    log_.Warning(
        "worker {}: the database had lost what it had acknowledged (it was restored from a backup): "
        "restoring this node's rows",
        claim.worker);
  }
  const MutexLock lock(mutex_);
  held_.ceiling = std::max(held_.ceiling, WallTimeOf(sent_ms));
  held_.sent_ms.clear();
  return {};
}

Result<RegisteredOwner> SqlWorkerRegistry::PutBack(soci::session& session, const core::WorkerClaim& claim,
                                                   const Held& held, const RegisteredOwner& found) {
  const auto worker = static_cast<long long>(claim.worker);
  const Dialect& dialect = database_.dialect();
  const long long now_ms = UnixMillis(clock_.Wall());
  std::string address;
  long long timestamp = 0;
  soci::indicator timestamp_state = soci::i_null;
  session << fmt::format("SELECT ip_port, max_timestamp FROM leaf_workerid_alloc WHERE id = :worker{}",
                         dialect.for_update),
      soci::use(worker, "worker"), soci::into(address), soci::into(timestamp, timestamp_state);
  const bool has_number = session.got_data();
  if (has_number && address != held.address) {
    return Displaced(claim.worker,
                     fmt::format("the database had forgotten it, and gives it to {} now", address));
  }
  long long number_of_address = worker;
  session << fmt::format("SELECT id FROM leaf_workerid_alloc WHERE ip_port = :address{}", dialect.for_update),
      soci::use(held.address, "address"), soci::into(number_of_address);
  if (session.got_data() && number_of_address != worker) {
    return Displaced(claim.worker,
                     fmt::format("the database had forgotten it, and gives {} the number {} now",
                                 held.address, number_of_address));
  }
  if (!has_number) {
    timestamp = now_ms;
    timestamp_state = soci::i_ok;
    InsertNumber(session, dialect, held.address, now_ms, worker);
  }
  RegisteredOwner owner = found;
  owner.address = held.address;
  owner.uuid = held.uuid;
  owner.claims = static_cast<long long>(claim.generation);
  owner.ceiling_ms = UnixMillis(held.ceiling);
  owner.reported_ms = timestamp_state == soci::i_ok ? timestamp : -1;
  if (!found.found) {
    InsertOwner(session, options_, owner, worker, now_ms);
    owner.found = true;
    return owner;
  }
  session << "UPDATE leafctl_workers SET uuid = :uuid, ip_port = :address, host = :host, url = :url, "
             "claims = :claims WHERE worker = :worker",
      soci::use(owner.uuid, "uuid"), soci::use(owner.address, "address"), soci::use(options_.host, "host"),
      soci::use(options_.url, "url"), soci::use(owner.claims, "claims"), soci::use(worker, "worker");
  return owner;
}

Result<std::vector<core::Peer>> SqlWorkerRegistry::LivePeers() {
  std::string uuid;
  {
    const MutexLock lock(mutex_);
    uuid = held_.uuid;
  }
  std::vector<core::Peer> peers;
  LEAF_RETURN_IF_ERROR(
      database_.Run("look for the other workers", [&](soci::session& session) -> Result<void> {
        core::Peer peer;
        long long worker = 0;
        soci::statement read =
            (session.prepare << fmt::format(
                 "SELECT ip_port, url, worker FROM leafctl_workers WHERE live = 1 AND url <> '' AND uuid <> "
                 ":uuid ORDER BY reported_ms DESC LIMIT {}",
                 kPeersMax),
             soci::use(uuid, "uuid"), soci::into(peer.address), soci::into(peer.url), soci::into(worker));
        read.execute();
        while (read.fetch()) {
          peer.worker = static_cast<std::uint64_t>(worker);
          peers.push_back(peer);
        }
        return {};
      }));
  return peers;
}

}  // namespace leaf::sql
