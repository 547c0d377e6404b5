#include "sim/sql_database.h"

#include <fmt/format.h>

#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/endpoint.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"

namespace leaf::sim {
namespace {

SqlDatabase* the_database = nullptr;

// As the nodes set it for their sessions (idle_transaction_timeout).
constexpr Nanos kIdleTransaction = 2 * kSecond;

std::int64_t NumberOf(const SqlServer::Value& value) {
  const auto* const number = std::get_if<std::int64_t>(&value);
  return number == nullptr ? 0 : *number;
}

}  // namespace

SqlDatabase::SqlDatabase(World& world, History& history, const Plan& plan)
    : Database(world, history), endpoints_(plan.endpoints) {
  LEAF_CHECK(the_database == nullptr);
  the_database = this;
  for (const std::size_t index : {std::size_t{0}, std::size_t{1}}) {
    servers_[index] = std::make_unique<SqlServer>(
        fmt::format("db{}", index),
        [this, index](const SqlServer::Commit& commit) { Committed(index, commit); });
    servers_[index]->privileged = plan.privileged;
    servers_[index]->tells_insert_ids = !plan.trigger;
  }
  RolesChanged();
}

SqlDatabase::~SqlDatabase() { the_database = nullptr; }

SqlDatabase& SqlDatabase::running() {
  LEAF_CHECK(the_database != nullptr);
  return *the_database;
}

// ---- how it is kept

const Database::Rows& SqlDatabase::RowsOf(std::size_t server) const {
  Kept& kept = kept_[server];
  if (kept.version == servers_[server]->version()) return kept.rows;
  kept.rows.clear();
  for (const SqlServer::Row& row :
       servers_[server]->Look("SELECT biz_tag, max_id, step FROM leaf_alloc", {})) {
    const auto& tag = std::get<std::string>(row[0]);
    kept.rows[tag] = {tag, NumberOf(row[1]), NumberOf(row[2]), std::nullopt, {}};
  }
  kept.version = servers_[server]->version();
  return kept.rows;
}

void SqlDatabase::ByHand(std::size_t server, const std::string& text, const SqlServer::Binds& binds) {
  servers_[server]->Hand(text, binds);
  Committed(server, {{text, binds}});
}

void SqlDatabase::Committed(std::size_t server, const SqlServer::Commit& commit) {
  // What a server takes that is no primary any more is no part of the table's history.
  if (server != primary() && !split()) return;
  if (!split()) log_.push_back({world().now(), commit});
  for (const SqlServer::Write& write : commit) {
    if (const auto tag = write.binds.find("tag"); tag != write.binds.end())
      Changed(server, std::get<std::string>(tag->second));
  }
}

void SqlDatabase::Store(std::size_t server, const std::string& tag, const std::optional<core::TagRow>& row) {
  if (!row) return ByHand(server, "DELETE FROM leaf_alloc WHERE biz_tag = :tag", {{"tag", tag}});
  ByHand(server,
         "INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES (:tag, :max_id, :step) "
         "ON CONFLICT (biz_tag) DO UPDATE SET max_id = excluded.max_id, step = excluded.step",
         {{"tag", tag}, {"max_id", row->max_id}, {"step", row->step}});
}

void SqlDatabase::PutStrict(const std::string& tag) {
  const auto raise = std::string(sql::kSqlite.raise_orders_version);
  ByHand(primary(), raise, {{"tag", ""}});
  ByHand(primary(),
         "INSERT INTO leafctl_orders (biz_tag, version, strict, since) "
         "SELECT :tag, version, 1, 1 FROM leafctl_orders WHERE biz_tag = ''",
         {{"tag", tag}});
}

bool SqlDatabase::IsStrictOn(std::size_t server, const std::string& tag) {
  const auto rows = servers_[server]->Look(
      "SELECT strict FROM leafctl_orders WHERE biz_tag = :tag AND strict = 1", {{"tag", tag}});
  return !rows.empty();
}

void SqlDatabase::Overwrite(std::size_t server) { servers_[server]->Load(servers_[1 - server]->Save()); }

void SqlDatabase::Replicate(bool all) {
  for (const auto& server : servers_) server->CloseIdleTransactions(world().now() - kIdleTransaction);
  while (!split() && !log_.empty() && (all || log_.front().at + lag <= world().now())) {
    // A replica that was written to, and cannot follow, is made anew.
    if (!servers_[1 - primary()]->Apply(log_.front().commit)) {
      Overwrite(1 - primary());
      log_.clear();
      return;
    }
    log_.pop_front();
  }
}

void SqlDatabase::KeepBackup(std::size_t most) {
  dumps_.push_back({world().now(), servers_[primary()]->Save()});
  if (dumps_.size() > most) dumps_.pop_front();
}

bool SqlDatabase::LoadBackup(Nanos age) {
  if (dumps_.empty()) return false;
  const Dumped* chosen = &dumps_.front();
  for (const Dumped& dumped : dumps_) {
    if (dumped.at <= world().now() - age) chosen = &dumped;
  }
  for (const auto& server : servers_) server->Load(chosen->dump);
  return true;
}

void SqlDatabase::RolesChanged() {
  servers_[primary()]->read_only = switching();
  servers_[1 - primary()]->read_only = !split();
}

Result<core::Grant> SqlDatabase::RaiseByStep(std::uint64_t node, const std::string& tag) {
  const std::size_t server = ServerOf(node);
  const auto found = RowsOf(server).find(tag);
  if (found == RowsOf(server).end()) return Error{ErrorCode::kNotFound, "unknown tag " + Quoted(tag), ""};
  const core::TagRow row = found->second;
  if (row.step < 1 || row.max_id < 0 || row.step > kStepMax ||
      kMaxIdLimit - static_cast<std::uint64_t>(row.max_id) < static_cast<std::uint64_t>(row.step))
    return Error{ErrorCode::kRefused, "bad step or max_id of " + Quoted(tag), ""};
  if (servers_[server]->read_only || servers_[server]->IsLocked("leaf_alloc", "biz_tag", tag))
    return Error{ErrorCode::kUnavailable, "the row is locked", ""};
  ByHand(server, "UPDATE leaf_alloc SET max_id = max_id + step WHERE biz_tag = :tag", {{"tag", tag}});
  const auto begin = static_cast<std::uint64_t>(row.max_id);
  return core::Grant{{begin, begin + static_cast<std::uint64_t>(row.step)}, row.step};
}

bool SqlDatabase::IsHeld(const std::string& tag) {
  return servers_[primary()]->IsLocked("leaf_alloc", "biz_tag", tag);
}

void SqlDatabase::HoldRow(const std::string& tag) {
  SqlServer& server = *servers_[primary()];
  const std::uint64_t connection = server.Connect(world().now());
  server.SetPatient(connection);
  server.Execute(connection, "START TRANSACTION", {}, world().now());
  const auto outcome =
      server.Execute(connection, "SELECT max_id FROM leaf_alloc WHERE biz_tag = :tag FOR UPDATE",
                     {{"tag", tag}}, world().now());
  if (outcome.blocked) return server.Close(connection);
  holders_.emplace_back(primary(), connection);
}

void SqlDatabase::LetRowsGo() {
  for (const auto& [server, connection] : std::exchange(holders_, {})) servers_[server]->Close(connection);
}

// ---- Java Leaf's fork

std::optional<std::uint64_t> SqlDatabase::ForkNumber(std::uint64_t node, const std::string& address,
                                                     std::int64_t now_ms) {
  const std::size_t index = ServerOf(node);
  SqlServer& server = *servers_[index];
  if (server.read_only || server.IsLocked("leaf_workerid_alloc", "ip_port", address)) return std::nullopt;
  const auto look = [&] {
    return server.Look("SELECT id, max_timestamp FROM leaf_workerid_alloc WHERE ip_port = :address",
                       {{"address", address}});
  };
  auto rows = look();
  if (rows.empty()) {
    ByHand(index,
           "INSERT INTO leaf_workerid_alloc (id, ip_port, ip, port, max_timestamp) "
           "VALUES (:id, :address, '127.0.0.1', '1', :now)",
           {{"id", server.NextNumber("leaf_workerid_alloc")}, {"address", address}, {"now", now_ms}});
    rows = look();
  } else if (NumberOf(rows.front()[1]) > now_ms) {
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(NumberOf(rows.front()[0]));
}

void SqlDatabase::ForkReport(std::uint64_t node, std::uint64_t worker, std::int64_t now_ms) {
  const std::size_t index = ServerOf(node);
  const auto id = static_cast<std::int64_t>(worker);
  if (servers_[index]->read_only || servers_[index]->IsLocked("leaf_workerid_alloc", "id", id)) return;
  ByHand(index, "UPDATE leaf_workerid_alloc SET max_timestamp = :now WHERE id = :id",
         {{"now", now_ms}, {"id", id}});
}

std::int64_t SqlDatabase::CeilingOf(const std::string& address) {
  const auto rows = servers_[primary()]->Look(
      "SELECT max(ceiling_ms) FROM leafctl_workers WHERE ip_port = :address", {{"address", address}});
  return NumberOf(rows.front().front());
}

void SqlDatabase::MarkGone(std::int64_t worker) {
  if (servers_[primary()]->IsLocked("leafctl_workers", "worker", worker)) return;
  ByHand(primary(), "UPDATE leafctl_workers SET live = 0 WHERE worker = :worker", {{"worker", worker}});
}

// ---- the network

const SqlDatabase::Client* SqlDatabase::FindClient(const std::string& user) const {
  const auto found = clients_.find(user);
  return found == clients_.end() ? nullptr : &found->second;
}

std::vector<Endpoint> SqlDatabase::Endpoints() const {
  if (endpoints_ == 1) return {{"db", kMysqlPort}};
  return {{"db0", kMysqlPort}, {"db1", kMysqlPort}};
}

std::size_t SqlDatabase::ServerBehind(const std::string& host, std::uint64_t node) const {
  if (host == "db") return ServerOf(node);
  return host == "db0" ? 0 : 1;
}

bool SqlDatabase::Reaches(std::uint64_t node, std::size_t server) const {
  if (away || cut_off.contains(node)) return false;
  // Two that take writes at once are on two sides of a broken network.
  return !split() || server == ServerOf(node);
}

Nanos SqlDatabase::TravelTime() {
  const auto usual = static_cast<double>(world().dice().Between(100 * kMicro, kMilli));
  return static_cast<Nanos>(usual * slowness);
}

// ---- what a daemon has of it

namespace {

std::shared_ptr<sql::MysqlConnector> MakeConnector(SqlDatabase& database, Process& process,
                                                   std::uint64_t node, const Clock& clock, Logger& log) {
  sql::MysqlOptions options;
  options.endpoints = database.Endpoints();
  options.user = fmt::format("process{}", process.number);
  database.Admit(options.user, {&process, node});
  return std::make_shared<sql::MysqlConnector>(std::move(options), clock, &log);
}

}  // namespace

SqlPorts::SqlPorts(SqlDatabase& database, Process& process, std::uint64_t node, const Clock& clock,
                   Logger& log, WatchedStore::OnReserved on_reserved)
    : connector_(MakeConnector(database, process, node, clock, log)),
      database_(connector_),
      registry_database_(connector_, sql::Use::kUrgent),
      store_(database.world(), database_, std::move(on_reserved)),
      orders_(database_) {}

Result<core::Grant> SqlPorts::Store::Reserve(std::string_view tag, const core::GrantSizer& sizer) {
  auto grant = store_.Reserve(tag, sizer);
  Note(tag, grant);
  return grant;
}

Result<std::optional<core::Grant>> SqlPorts::Store::ReserveUnread(std::string_view tag, std::uint64_t floor,
                                                                  const UnreadSizer& size) {
  auto grant = store_.ReserveUnread(tag, floor, size);
  if (!grant.ok()) {
    Note(tag, grant.error());
  } else if (*grant) {
    Note(tag, **grant);
  }
  return grant;
}

void SqlPorts::Store::Note(std::string_view tag, const Result<core::Grant>& grant) {
  if (!grant.ok()) return world_.Trace(static_cast<std::uint64_t>(grant.error().code));
  Saw(tag);
  world_.Trace(grant->range.begin);
  on_reserved_(tag, grant->range);
}

Result<std::vector<core::TagRow>> SqlPorts::Store::List() {
  auto rows = store_.List();
  if (rows.ok()) SawAll(*rows);
  return rows;
}

Result<core::TagRow> SqlPorts::Store::Describe(std::string_view tag) {
  auto row = store_.Describe(tag);
  if (row.ok()) Saw(tag);
  return row;
}

}  // namespace leaf::sim
