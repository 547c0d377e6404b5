#include "sim/database.h"

#include <algorithm>
#include <utility>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "support/fake_orders.h"

namespace leaf::sim {
namespace {

constexpr Nanos kBackupInterval = 5 * kSecond;
constexpr std::size_t kBackups = 60;

Error DatabaseAway() { return {ErrorCode::kUnavailable, "the database is away", ""}; }

bool CanGrant(const core::TagRow& row) { return row.step >= 1 && row.step <= kStepMax && row.max_id >= 0; }

}  // namespace

void Database::Put(const std::string& tag, std::int64_t max_id, std::int64_t step) {
  Store(primary_, tag, core::TagRow{tag, max_id, step, std::nullopt, {}});
  NoteRegressions();
}

void Database::PutStrict(const std::string& tag) {
  Orders& orders = orders_[primary_];
  orders.table.rows.push_back({tag, core::TagOrder::kStrict, 1, ++orders.table.version});
  orders_[1 - primary_] = orders;
}

void Database::ChangeOrders(std::uint64_t node, const std::function<void(Orders&)>& change) {
  Orders& orders = orders_[ServerOf(node)];
  change(orders);
  if (!split_) log_.push_back({world_.now(), "", std::nullopt, orders});
}

bool Database::IsStrictOn(std::size_t server, const std::string& tag) {
  const auto& rows = orders_[server].table.rows;
  return std::any_of(rows.begin(), rows.end(), [&](const core::OrderRow& row) {
    return row.tag == tag && row.order == core::TagOrder::kStrict;
  });
}

bool Database::IsStrict(const std::string& tag) {
  return IsStrictOn(primary_, tag) && (!split_ || IsStrictOn(1 - primary_, tag));
}

void Database::Store(std::size_t server, const std::string& tag, const std::optional<core::TagRow>& row) {
  if (row) {
    servers_[server][tag] = *row;
  } else {
    servers_[server].erase(tag);
  }
  Changed(server, tag);
}

void Database::Live(const Process& outside) {
  while (true) {
    if (!backed_up_at_ || world_.now() - *backed_up_at_ >= kBackupInterval) {
      KeepBackup(kBackups);
      backed_up_at_ = world_.now();
    }
    Replicate(/*all=*/false);
    world_.Block(outside, 100 * kMilli);
  }
}

void Database::KeepBackup(std::size_t most) {
  backups_.push_back({world_.now(), rows(), orders_[primary_]});
  if (backups_.size() > most) backups_.pop_front();
}

bool Database::LoadBackup(Nanos age) {
  if (backups_.empty()) return false;
  const Backup* chosen = &backups_.front();
  for (const Backup& backup : backups_) {
    if (backup.at <= world_.now() - age) chosen = &backup;
  }
  servers_ = {chosen->rows, chosen->rows};
  orders_ = {chosen->orders, chosen->orders};
  return true;
}

void Database::Replicate(bool all) {
  while (!split_ && !log_.empty() && (all || log_.front().at + lag <= world_.now())) {
    const Change& change = log_.front();
    Rows& replica = servers_[1 - primary_];
    if (change.orders) {
      orders_[1 - primary_] = *change.orders;
    } else if (change.row) {
      replica[change.tag] = *change.row;
    } else {
      replica.erase(change.tag);
    }
    log_.pop_front();
  }
}

void Database::Log(const std::string& tag) {
  const auto found = servers_[primary_].find(tag);
  log_.push_back({world_.now(), tag,
                  found == servers_[primary_].end() ? std::nullopt : std::optional(found->second),
                  std::nullopt});
}

void Database::Changed(std::size_t server, const std::string& tag) {
  const Rows& rows = RowsOf(server);
  if (const auto found = rows.find(tag); found != rows.end()) {
    auto& highest = highest_[tag];
    highest = std::max(highest, static_cast<std::uint64_t>(std::max<std::int64_t>(found->second.max_id, 0)));
  }
  if (!split_) Log(tag);
}

void Database::NoteRegressions() {
  for (const std::size_t server : {std::size_t{0}, std::size_t{1}}) {
    if (server != primary_ && !split_) continue;
    for (const auto& [tag, row] : RowsOf(server)) {
      if (row.max_id < static_cast<std::int64_t>(highest_[tag])) history_.WentBack(tag);
    }
  }
  for (const std::string& tag : history_.StrictTags()) {
    if (!IsStrict(tag)) history_.OrderLost(tag);
  }
}

std::uint64_t Database::HighestOf(const std::string& tag) const {
  const auto found = highest_.find(tag);
  return found == highest_.end() ? 0 : found->second;
}

void Database::FailOver() {
  if (split_) return;
  switching_ = false;
  primary_ = 1 - primary_;
  Overwrite(1 - primary_);
  ForgetLog();
  RolesChanged();
  NoteRegressions();
}

void Database::BeginSwitch() {
  if (split_ || switching_) return;
  switching_ = true;
  RolesChanged();
}

void Database::EndSwitch() {
  if (!switching_) return;
  switching_ = false;
  Replicate(/*all=*/true);
  primary_ = 1 - primary_;
  RolesChanged();
  NoteRegressions();
}

void Database::Restore(Nanos age) {
  if (split_ || !LoadBackup(age)) return;
  ForgetLog();
  NoteRegressions();
}

void Database::Split() {
  if (split_) return;
  switching_ = false;
  split_ = true;
  ForgetLog();
  RolesChanged();
  // From here on both may grant the same.
  for (const std::size_t server : {std::size_t{0}, std::size_t{1}}) {
    for (const auto& [tag, row] : RowsOf(server)) history_.WentBack(tag);
  }
}

void Database::Join() {
  if (!split_) return;
  split_ = false;
  if (world_.dice().Chance(0.5)) primary_ = 1 - primary_;
  Overwrite(1 - primary_);
  RolesChanged();
  NoteRegressions();
}

void Database::Erase(const std::string& tag) { Store(primary_, tag, std::nullopt); }

void Database::SetStep(const std::string& tag, std::int64_t step) {
  const auto found = rows().find(tag);
  if (found == rows().end()) return;
  core::TagRow row = found->second;
  row.step = step;
  Store(primary_, tag, row);
}

void Database::Lower(const std::string& tag, std::int64_t max_id) {
  const auto found = rows().find(tag);
  if (found == rows().end() || found->second.max_id <= max_id) return;
  core::TagRow row = found->second;
  row.max_id = max_id;
  Store(primary_, tag, row);
  NoteRegressions();
}

void Database::RaiseTo(const std::string& tag, std::uint64_t max_id) {
  const auto found = rows().find(tag);
  if (found == rows().end() || found->second.max_id >= static_cast<std::int64_t>(max_id)) return;
  core::TagRow row = found->second;
  row.max_id = static_cast<std::int64_t>(max_id);
  Store(primary_, tag, row);
}

Result<std::optional<core::Grant>> Database::Raise(std::uint64_t node, const core::TagRow& seen,
                                                   const core::GrantSize& size) {
  const auto begin = static_cast<std::uint64_t>(seen.max_id);
  if (kMaxIdLimit - begin < size.least)
    return Error{ErrorCode::kOverflow, "nothing left of " + Quoted(seen.tag), ""};
  const std::uint64_t count = std::min(size.wanted, kMaxIdLimit - begin);
  Rows& rows = servers_[ServerOf(node)];
  const auto found = rows.find(seen.tag);
  if (found == rows.end()) return std::optional<core::Grant>();
  core::TagRow& row = found->second;
  if (row.max_id < seen.max_id || kMaxIdLimit - static_cast<std::uint64_t>(row.max_id) < count)
    return std::optional<core::Grant>();
  const auto granted = static_cast<std::uint64_t>(row.max_id);
  row.max_id += static_cast<std::int64_t>(count);
  Changed(ServerOf(node), row.tag);
  return std::optional(core::Grant{{granted, granted + count}, seen.step});
}

Result<core::Grant> Database::RaiseByStep(std::uint64_t node, const std::string& tag) {
  const Rows& rows = RowsFor(node);
  const auto found = rows.find(tag);
  if (found == rows.end()) return Error{ErrorCode::kNotFound, "unknown tag " + Quoted(tag), ""};
  const core::TagRow row = found->second;
  if (!CanGrant(row)) return Error{ErrorCode::kRefused, "bad step or max_id of " + Quoted(tag), ""};
  const auto step = static_cast<std::uint64_t>(row.step);
  LEAF_ASSIGN_OR_RETURN(const auto grant, Raise(node, row, {step, step}));
  return *grant;
}

void WayToDatabase::Travel() {
  World& world = database_.world();
  const auto usual = static_cast<double>(world.dice().Between(200 * kMicro, 3 * kMilli));
  world.Block(process_, static_cast<Nanos>(usual * database_.slowness));
}

bool WayToDatabase::Reaches() const {
  return !process_.dead && !database_.away && !database_.cut_off.contains(node_);
}

Result<void> WayToDatabase::Ask() {
  if (process_.dead) {
    database_.world().Block(process_, 0);
    return DatabaseAway();
  }
  Travel();
  World& world = database_.world();
  if (database_.away || database_.cut_off.contains(node_)) {
    // Refused at once, or by a time-out.
    world.Block(process_, world.dice().Chance(0.5) ? kMilli : 2 * kSecond);
    return DatabaseAway();
  }
  if (world.dice().Chance(database_.refuses)) return DatabaseAway();
  return {};
}

// Reads the row and raises it in another statement, between which others have their turn.
Result<core::Grant> SimSegmentStore::RaiseFrom(std::string_view tag, const core::GrantSizer& sizer) {
  constexpr int kAttempts = 8;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Database::Rows* const server = &database_.RowsFor(node_);
    const auto found = server->find(std::string(tag));
    if (found == server->end()) return Error{ErrorCode::kNotFound, "unknown tag " + Quoted(tag), ""};
    const core::TagRow row = found->second;
    if (!CanGrant(row)) return Error{ErrorCode::kRefused, "bad step or max_id of " + Quoted(tag), ""};
    LEAF_ASSIGN_OR_RETURN(const core::GrantSize size, sizer(row));
    way_.Travel();
    // The connection was to that server.
    if (!way_.Reaches() || server != &database_.RowsFor(node_)) return DatabaseAway();
    LEAF_ASSIGN_OR_RETURN(const auto grant, database_.Raise(node_, row, size));
    if (grant) return *grant;
  }
  return DatabaseAway();
}

Result<core::Grant> SimSegmentStore::Reserve(std::string_view tag, const core::GrantSizer& sizer) {
  LEAF_RETURN_IF_ERROR(way_.Ask());
  World& world = database_.world();
  const Error lost{ErrorCode::kOutcomeUnknown, "the reply to COMMIT was lost", ""};
  const bool loses = world.dice().Chance(database_.loses_reply);
  if (loses && world.dice().Chance(0.5)) {
    // It went as far as COMMIT.
    const Database::Rows& rows = database_.RowsFor(node_);
    if (const auto found = rows.find(std::string(tag)); found != rows.end() && CanGrant(found->second))
      (void)sizer(found->second);
    way_.Travel();
    return lost;
  }
  auto grant = RaiseFrom(tag, sizer);
  if (database_.RowsFor(node_).contains(std::string(tag))) Saw(tag);
  if (grant.ok()) {
    world.Trace(grant->range.begin);
    on_reserved_(tag, grant->range);
  }
  way_.Travel();
  if (loses && grant.ok()) return lost;
  return grant;
}

Result<std::vector<core::TagRow>> SimSegmentStore::List() {
  LEAF_RETURN_IF_ERROR(way_.Ask());
  std::vector<core::TagRow> rows;
  for (const auto& [tag, row] : database_.RowsFor(node_)) rows.push_back(row);
  way_.Travel();
  SawAll(rows);
  return rows;
}

Result<core::TagRow> SimSegmentStore::Describe(std::string_view tag) {
  LEAF_RETURN_IF_ERROR(way_.Ask());
  const Database::Rows& rows = database_.RowsFor(node_);
  const auto found = rows.find(std::string(tag));
  if (found == rows.end()) return Error{ErrorCode::kNotFound, "unknown tag " + Quoted(tag), ""};
  const core::TagRow row = found->second;
  Saw(tag);
  way_.Travel();
  return row;
}

// ---- the orders of tags

Result<void> SimTagOrders::Write(const std::function<void(Database::Orders&)>& change) {
  LEAF_RETURN_IF_ERROR(way_.Ask());
  World& world = database_.world();
  const bool loses = world.dice().Chance(database_.loses_reply);
  const bool happens = !loses || world.dice().Chance(0.5);
  if (happens) database_.ChangeOrders(node_, change);
  way_.Travel();
  if (loses) return Error{ErrorCode::kOutcomeUnknown, "the reply to COMMIT was lost", ""};
  return {};
}

Result<std::optional<core::TagOrderTable>> SimTagOrders::Enter(const core::OrderNode& node) {
  core::TagOrderTable table;
  LEAF_RETURN_IF_ERROR(Write([&](Database::Orders& orders) {
    std::erase_if(orders.nodes, [&](const auto& entry) { return entry.second.place == node.place; });
    orders.nodes[node.id] = node;
    ++orders.table.version;
    table = orders.table;
  }));
  return std::optional(std::move(table));
}

Result<std::optional<core::TagOrders::Look>> SimTagOrders::LookAt(const std::string& node) {
  LEAF_RETURN_IF_ERROR(way_.Ask());
  const Database::Orders& orders = database_.OrdersFor(node_);
  Look look{orders.table.version, 0, std::nullopt};
  if (const auto found = orders.nodes.find(node); found != orders.nodes.end())
    look.acknowledged = found->second.acknowledged;
  way_.Travel();
  return std::optional(look);
}

Result<std::optional<core::TagOrderTable>> SimTagOrders::Read() {
  LEAF_RETURN_IF_ERROR(way_.Ask());
  core::TagOrderTable table = database_.OrdersFor(node_).table;
  way_.Travel();
  return std::optional(std::move(table));
}

Result<void> SimTagOrders::Restore(const core::OrderRow& row) {
  return Write([&](Database::Orders& orders) { testing::RestoreIn(orders.table, row); });
}

Result<bool> SimTagOrders::Acknowledge(const std::string& node, const core::TagOrderTable& table) {
  bool is_current = false;
  LEAF_RETURN_IF_ERROR(Write([&](Database::Orders& orders) {
    is_current = testing::IsSameState(table, orders.table);
    const auto found = orders.nodes.find(node);
    if (is_current && found != orders.nodes.end()) found->second.acknowledged = table.version;
  }));
  return is_current;
}

Result<void> SimTagOrders::Leave(const std::string& node) {
  return Write([&](Database::Orders& orders) { orders.nodes.erase(node); });
}

void WatchedStore::SawAll(const std::vector<core::TagRow>& rows) {
  ++lists_;
  for (const core::TagRow& row : rows) Saw(row.tag);
}

std::uint64_t WatchedStore::ListsWithout(const std::string& tag) const {
  const auto found = seen_.find(tag);
  return lists_ - (found == seen_.end() ? 0 : found->second);
}

}  // namespace leaf::sim
