#include "leaf/inspect/sql_workers.h"

#include <fmt/format.h>
#include <soci/soci.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/core/java_leaf.h"
#include "leaf/sql/error_map.h"

namespace leaf::inspect {
namespace {

using Json = nlohmann::ordered_json;
using Change = RepairChange;
using Words = WorkerInspection::Words;

constexpr std::string_view kNumbers = "leaf_workerid_alloc/";
constexpr std::string_view kOwners = "leafctl_workers/";

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

std::string NumberName(const NumberRow& row) { return fmt::format("{}{}", kNumbers, row.id); }
std::string OwnerName(const OwnerRow& row) { return fmt::format("{}{}", kOwners, row.worker); }

std::string RowText(const NumberRow& row) {
  return Dump({{"id", row.id},
               {"ip", OrNull(row.ip)},
               {"port", OrNull(row.port)},
               {"ip_port", row.ip_port},
               {"max_timestamp", OrNull(row.max_timestamp)},
               {"create_time", OrNull(row.create_time)},
               {"update_time", OrNull(row.update_time)}});
}

std::string RowText(const OwnerRow& row) {
  return Dump({{"worker", row.worker},
               {"ip_port", row.ip_port},
               {"uuid", row.uuid},
               {"host", row.host},
               {"url", row.url},
               {"claims", row.claims},
               {"ceiling_ms", row.ceiling_ms},
               {"reported_ms", row.reported_ms},
               {"since_ms", row.since_ms},
               {"live", row.live}});
}

RawRecord RowRecord(const NumberRow& row) { return {NumberName(row), RowText(row), {}}; }
RawRecord RowRecord(const OwnerRow& row) { return {OwnerName(row), RowText(row), {}}; }

Change WriteRecord(RawRecord before, std::string after) {
  return {Change::Kind::kWrite, std::move(before), 0, std::move(after)};
}

template <typename T>
std::optional<T> Optional(const T& value, soci::indicator state) {
  return state == soci::i_ok ? std::optional(value) : std::nullopt;
}

constexpr std::string_view kNumberColumns =
    "id, ip, port, ip_port, max_timestamp, CAST(create_time AS CHAR), CAST(update_time AS CHAR)";
constexpr std::string_view kOwnerColumns =
    "worker, ip_port, uuid, host, url, claims, ceiling_ms, reported_ms, since_ms, live";

// Every row of `query`, which selects kNumberColumns.
std::vector<NumberRow> SelectNumbers(soci::session& session, const std::string& query) {
  std::vector<NumberRow> rows;
  long long id = 0;
  long long timestamp = 0;
  std::string ip;
  std::string port;
  std::string ip_port;
  std::string created;
  std::string updated;
  soci::indicator ip_state = soci::i_ok;
  soci::indicator port_state = soci::i_ok;
  soci::indicator timestamp_state = soci::i_ok;
  soci::indicator created_state = soci::i_ok;
  soci::indicator updated_state = soci::i_ok;
  soci::statement read =
      (session.prepare << query, soci::into(id), soci::into(ip, ip_state), soci::into(port, port_state),
       soci::into(ip_port), soci::into(timestamp, timestamp_state), soci::into(created, created_state),
       soci::into(updated, updated_state));
  read.execute();
  while (read.fetch()) {
    rows.push_back({id, Optional(ip, ip_state), Optional(port, port_state), ip_port,
                    Optional(static_cast<std::int64_t>(timestamp), timestamp_state),
                    Optional(created, created_state), Optional(updated, updated_state)});
  }
  return rows;
}

std::vector<OwnerRow> SelectOwners(soci::session& session, const std::string& query) {
  std::vector<OwnerRow> rows;
  OwnerRow row;
  long long worker = 0;
  long long claims = 0;
  long long ceiling = 0;
  long long reported = 0;
  long long since = 0;
  long long live = 0;
  soci::statement read = (session.prepare << query, soci::into(worker), soci::into(row.ip_port),
                          soci::into(row.uuid), soci::into(row.host), soci::into(row.url), soci::into(claims),
                          soci::into(ceiling), soci::into(reported), soci::into(since), soci::into(live));
  read.execute();
  while (read.fetch()) {
    row.worker = worker;
    row.claims = claims;
    row.ceiling_ms = ceiling;
    row.reported_ms = reported;
    row.since_ms = since;
    row.live = live;
    rows.push_back(row);
  }
  return rows;
}

bool IsLive(const OwnerRow& row, WallTime now) {
  return row.live == 1 && WallTimeOf(row.reported_ms) + kLiveReport > now;
}

bool IsTime(std::int64_t unix_millis) { return unix_millis >= 0 && unix_millis <= core::kEpochMillisMax; }

// The row as it is once the number has no owner.
OwnerRow Released(OwnerRow row) {
  row.uuid.clear();
  row.live = 0;
  // So that a report of the former owner that is on its way fails, even if it claims again.
  ++row.claims;
  return row;
}

// As the collations of MySQL compare addresses.
std::string Folded(std::string_view text) {
  while (text.ends_with(' ')) text.remove_suffix(1);
  return LowerCase(text);
}

class TableInspector {
 public:
  TableInspector(const WorkerTables& tables, const InspectionOptions& options,
                 const core::ClusterProperties& configured)
      : tables_(tables), options_(options), configured_(configured) {
    for (const OwnerRow& row : tables.owners) owners_.emplace(row.worker, &row);
    for (const NumberRow& row : tables.numbers) numbers_.emplace(row.id, &row);
  }

  WorkerInspection Run() {
    ListEntries();
    CompareCluster();
    for (const NumberRow& row : tables_.numbers) CheckNumber(row);
    CheckAddresses();
    for (const OwnerRow& row : tables_.owners) CheckOwner(row);
    return std::move(result_);
  }

 private:
  void ListEntries() {
    const auto fill = [&](WorkerEntry& entry, const OwnerRow& row) {
      entry.owner = row.uuid;
      if (!row.uuid.empty()) {
        entry.host = row.host;
        if (IsTime(row.since_ms)) entry.since = WallTimeOf(row.since_ms);
      }
      if (row.ceiling_ms > 0 && IsTime(row.ceiling_ms)) entry.ceiling = WallTimeOf(row.ceiling_ms);
      entry.generation = static_cast<std::uint64_t>(std::max<std::int64_t>(row.claims, 0));
      entry.live = IsLive(row, options_.now);
      if (entry.live) entry.url = row.url;
      entry.records.push_back(RowRecord(row));
    };
    for (const NumberRow& row : tables_.numbers) {
      if (row.id < 0) continue;  // a finding
      WorkerEntry entry;
      entry.worker = static_cast<std::uint64_t>(row.id);
      entry.address = row.ip_port;
      if (row.max_timestamp && IsTime(*row.max_timestamp)) entry.reported = WallTimeOf(*row.max_timestamp);
      entry.records.push_back(RowRecord(row));
      const auto owner = owners_.find(row.id);
      if (owner != owners_.end()) fill(entry, *owner->second);
      const bool reported_by_leafctl =
          owner != owners_.end() && row.max_timestamp == owner->second->reported_ms;
      if (!entry.live && entry.reported && !reported_by_leafctl &&
          std::chrono::abs(options_.now - *entry.reported) < kLiveReport)
        entry.live = entry.java = true;
      result_.entries.push_back(std::move(entry));
    }
    for (const OwnerRow& row : tables_.owners) {
      if (row.worker < 0 || numbers_.count(row.worker) > 0) continue;
      WorkerEntry entry;
      entry.worker = static_cast<std::uint64_t>(row.worker);
      entry.address = row.ip_port;
      fill(entry, row);
      result_.entries.push_back(std::move(entry));
    }
    std::stable_sort(result_.entries.begin(), result_.entries.end(),
                     [](const WorkerEntry& left, const WorkerEntry& right) {
                       return std::tie(left.worker, left.address) < std::tie(right.worker, right.address);
                     });
  }

  void CompareCluster() {
    if (!tables_.own_tables) {
      result_.Leave("tables-missing", "leafctl_workers",
                    {"the tables leafctl_workers and leafctl_cluster are missing",
                     "leafctl nodes cannot claim a number: there is nowhere to remember owners and ceilings",
                     "leafctl db init"},
                    "tables are made by db init");
    }
    if (!tables_.cluster) return;
    core::ClusterProperties stored = configured_;
    stored.name = tables_.cluster->name;
    auto layout = core::IdLayout::Parse(tables_.cluster->layout, tables_.cluster->epoch_ms);
    if (layout.ok()) stored.layout = *layout;
    const Result<void> same = layout.ok()
                                  ? core::CheckSameCluster(stored, configured_, "table leaf_workerid_alloc")
                                  : Result<void>(layout.error());
    if (same.ok()) return;
    result_.Leave("cluster-differs", "leafctl_cluster/1",
                  {same.error().message, "leafctl nodes refuse to start rather than repeat IDs",
                   "correct the configuration, here or on the other nodes"},
                  "only the operator knows which of the two is right");
  }

  void CheckNumber(const NumberRow& row) {
    const std::string subject = NumberName(row);
    const std::size_t colon = row.ip_port.rfind(':');
    if (colon == std::string::npos) {
      result_.Leave("malformed-name", subject,
                    {fmt::format("{} is not an ip:port", Quoted(row.ip_port)), "no node has such an address",
                     "find out what created the row; remove it when the number is not in use"},
                    "the number may be in use");
    } else if (IsSharedHost(std::string_view(row.ip_port).substr(0, colon))) {
      result_.Leave(
          "shared-address", subject,
          {fmt::format("many machines have the address {} (loopback, docker's bridge, or none at all)",
                       Quoted(row.ip_port)),
           "two machines with it share one number and repeat each other's IDs",
           "check whether more than one machine uses it, and set snowflake.address"},
          "only the machines themselves show how many use it");
    }
    if (row.id < 0 || static_cast<std::uint64_t>(row.id) >= options_.layout.worker_end()) {
      result_.Leave("number-too-large", subject,
                    {fmt::format("number {} does not fit {} bits", row.id, options_.layout.worker_bits()),
                     fmt::format("the node of {} cannot start", Quoted(row.ip_port)),
                     "release numbers of nodes that are gone for good, remove their rows from "
                     "leaf_workerid_alloc, and lower its AUTO_INCREMENT"},
                    "only an operator can decide which of the smaller numbers is no longer needed");
    } else if (static_cast<std::uint64_t>(row.id) < options_.worker_begin ||
               static_cast<std::uint64_t>(row.id) >= options_.worker_end) {
      result_.Leave(
          "number-outside-range", subject,
          {fmt::format("number {} is outside snowflake.worker_range {}-{}", row.id, options_.worker_begin,
                       options_.worker_end - 1),
           "a leafctl node of this address refuses to start", "widen the range, if nothing else uses those"},
          "the range is configured");
    }
    CheckTime(row);
  }

  void CheckTime(const NumberRow& row) {
    const std::int64_t timestamp = row.max_timestamp.value_or(0);
    if (timestamp <= UnixMillis(options_.now + options_.ahead_max)) return;
    const auto found = owners_.find(row.id);
    const OwnerRow* const owner = found == owners_.end() ? nullptr : found->second;
    const std::string subject = NumberName(row);
    const bool storable = IsTime(timestamp + core::kJavaMargin.count());
    const Words words{
        fmt::format("max_timestamp is {}, which is in the future",
                    storable ? FormatRfc3339(WallTimeOf(timestamp)) : std::to_string(timestamp)),
        "a node of the fork with this address refuses to start until then; IDs up to then may have "
        "been issued",
        "correct the clock of its machine"};
    const auto leave = [&](std::string why) { result_.Leave("future-time", subject, words, std::move(why)); };
    if (!storable) {
      leave("no ceiling can hold such a time");
    } else if (options_.moving.count(subject) > 0) {
      leave("its node runs: it reports the right time once its clock is right");
    } else if (owner != nullptr && !owner->uuid.empty()) {
      leave("a state directory owns the number: its node reports the right time once its clock is right");
    } else if (!tables_.own_tables) {
      leave("there is no table leafctl_workers to keep it in");
    } else if (!options_.java_retired) {
      leave(
          "only this record keeps a node of the fork from repeating IDs; if none will ever start here again: "
          "leafctl worker repair --java-retired");
    } else {
      PlanTakeBack(row, owner, timestamp, words);
    }
  }

  void PlanTakeBack(const NumberRow& row, const OwnerRow* owner, std::int64_t timestamp, const Words& words) {
    const std::int64_t end = timestamp + core::kJavaMargin.count();
    OwnerRow kept;
    if (owner != nullptr) {
      kept = *owner;
    } else {
      kept.worker = row.id;
      kept.ip_port = row.ip_port;
    }
    kept.ceiling_ms = std::max(kept.ceiling_ms, end);
    // The ceiling covers what was reported: the time that stands there from now on is no node's report.
    kept.reported_ms = UnixMillis(options_.now);
    NumberRow number = row;
    number.max_timestamp = kept.reported_ms;
    const Change ceiling = owner != nullptr
                               ? WriteRecord(RowRecord(*owner), RowText(kept))
                               : Change{Change::Kind::kCreate, {OwnerName(kept), "", {}}, 0, RowText(kept)};
    result_.Mend("future-time", NumberName(row), words,
                 fmt::format("keep {} as the ceiling of number {}, and set max_timestamp to the present time",
                             FormatRfc3339(WallTimeOf(end)), row.id),
                 {ceiling, WriteRecord(RowRecord(row), RowText(number))});
  }

  void CheckAddresses() {
    std::map<std::string, std::vector<std::string>> rows;
    for (const NumberRow& row : tables_.numbers)
      rows[Folded(row.ip_port)].push_back(fmt::format("{} ({})", row.id, Quoted(row.ip_port)));
    for (const auto& [address, same] : rows) {
      if (same.size() < 2) continue;
      result_.Leave(
          "duplicate-address", address,
          {fmt::format("rows differ in case or blanks only: {}", fmt::join(same, ", ")),
           "one machine has several numbers, and which one it gets depends on how its address is written",
           "decode a recent ID of the machine to see which number it uses; remove the other rows when it is "
           "stopped"},
          "only an operator can tell which of the numbers is in use");
    }
  }

  void CheckOwner(const OwnerRow& row) {
    const std::string subject = OwnerName(row);
    const auto number = numbers_.find(row.worker);
    if (number == numbers_.end()) {
      CheckOrphan(row);
    } else if (number->second->ip_port != row.ip_port) {
      const Words words{
          fmt::format("number {} was claimed by {}, but leaf_workerid_alloc gives it to {}", row.worker,
                      Quoted(row.ip_port), Quoted(number->second->ip_port)),
          "the node of the new address is refused",
          fmt::format("stop the node of the old address for good, then: leafctl worker release {}",
                      row.worker)};
      if (row.uuid.empty()) {
        OwnerRow moved = row;
        moved.ip_port = number->second->ip_port;
        result_.Mend("owners-disagree", subject, words, fmt::format("give {} the new address", subject),
                     {WriteRecord(RowRecord(row), RowText(moved))});
      } else {
        result_.Leave("owners-disagree", subject, words, "a state directory owns the number");
      }
    }
    if (row.ceiling_ms > UnixMillis(options_.now + options_.window + options_.ahead_max)) {
      result_.Leave("future-ceiling", subject,
                    {fmt::format("IDs of number {} may have been issued up to {}", row.worker,
                                 IsTime(row.ceiling_ms) ? FormatRfc3339(WallTimeOf(row.ceiling_ms))
                                                        : std::to_string(row.ceiling_ms)),
                     "a leafctl node with this number issues nothing until then",
                     "wait, or give the node an address with another number"},
                    "no ceiling is ever lowered: that would repeat IDs");
    }
  }

  void CheckOrphan(const OwnerRow& row) {
    if (row.uuid.empty()) return;  // remembers a ceiling
    const bool live = IsLive(row, options_.now);
    result_.Leave(
        "orphaned-owner", OwnerName(row),
        {fmt::format("number {} belongs to state directory {} on {}, but leaf_workerid_alloc has no "
                     "such number",
                     row.worker, row.uuid, Quoted(row.host)),
         "its node gets another number at its next start; if this one is given again, its new node is "
         "refused",
         live ? "stop the node, and start it again"
              : fmt::format("once that node is gone for good: leafctl worker release {}", row.worker)},
        live ? "its node is live" : "its node may be cut off, and still issue IDs");
  }

  const WorkerTables& tables_;
  const InspectionOptions& options_;
  const core::ClusterProperties& configured_;
  std::map<std::int64_t, const OwnerRow*> owners_;
  std::map<std::int64_t, const NumberRow*> numbers_;
  WorkerInspection result_;
};

// ---- writing

// Where a record of a step stands. Requires: a name that this file made.
struct Place {
  bool owner = false;
  long long key = 0;
};

Place PlaceOf(const std::string& name) {
  const bool owner = name.starts_with(kOwners);
  LEAF_CHECK(owner || name.starts_with(kNumbers));
  return {owner, std::stoll(name.substr(owner ? kOwners.size() : kNumbers.size()))};
}

// The row as text; nothing if there is none.
std::optional<std::string> ReadWorkerRow(soci::session& session, const sql::Dialect& dialect,
                                         const Place& place) {
  if (place.owner) {
    const auto rows = SelectOwners(session, fmt::format("SELECT {} FROM leafctl_workers WHERE worker = {}{}",
                                                        kOwnerColumns, place.key, dialect.for_update));
    return rows.empty() ? std::nullopt : std::optional(RowText(rows.front()));
  }
  const auto rows = SelectNumbers(session, fmt::format("SELECT {} FROM leaf_workerid_alloc WHERE id = {}{}",
                                                       kNumberColumns, place.key, dialect.for_update));
  return rows.empty() ? std::nullopt : std::optional(RowText(rows.front()));
}

void WriteRow(soci::session& session, const sql::Dialect& dialect, const Place& place, const Change& change) {
  const Json after = Json::parse(change.after);
  if (!place.owner) {
    const auto timestamp = after.at("max_timestamp").get<long long>();
    session << fmt::format("UPDATE leaf_workerid_alloc SET max_timestamp = :time{} WHERE id = :id",
                           dialect.touch),
        soci::use(timestamp, "time"), soci::use(place.key, "id");
    return;
  }
  const auto ip_port = after.at("ip_port").get<std::string>();
  const auto uuid = after.at("uuid").get<std::string>();
  const auto host = after.at("host").get<std::string>();
  const auto url = after.at("url").get<std::string>();
  const auto claims = after.at("claims").get<long long>();
  const auto ceiling = after.at("ceiling_ms").get<long long>();
  const auto reported = after.at("reported_ms").get<long long>();
  const auto since = after.at("since_ms").get<long long>();
  const auto live = after.at("live").get<long long>();
  session << (change.kind == Change::Kind::kCreate
                  ? "INSERT INTO leafctl_workers (worker, ip_port, uuid, host, url, claims, ceiling_ms, "
                    "reported_ms, since_ms, live) VALUES (:worker, :ip_port, :uuid, :host, :url, :claims, "
                    ":ceiling, :reported, :since, :live)"
                  : "UPDATE leafctl_workers SET ip_port = :ip_port, uuid = :uuid, host = :host, url = :url, "
                    "claims = :claims, ceiling_ms = :ceiling, reported_ms = :reported, since_ms = :since, "
                    "live = :live WHERE worker = :worker"),
      soci::use(place.key, "worker"), soci::use(ip_port, "ip_port"), soci::use(uuid, "uuid"),
      soci::use(host, "host"), soci::use(url, "url"), soci::use(claims, "claims"),
      soci::use(ceiling, "ceiling"), soci::use(reported, "reported"), soci::use(since, "since"),
      soci::use(live, "live");
}

}  // namespace

Result<WorkerTables> ReadWorkerTables(sql::Database& database) {
  WorkerTables tables;
  LEAF_RETURN_IF_ERROR(database.Run("read the worker numbers", [&](soci::session& session) -> Result<void> {
    try {
      tables.owners =
          SelectOwners(session, fmt::format("SELECT {} FROM leafctl_workers ORDER BY worker", kOwnerColumns));
      ClusterRow row;
      long long epoch_ms = 0;
      session << "SELECT name, layout, epoch_ms FROM leafctl_cluster WHERE one = 1", soci::into(row.name),
          soci::into(row.layout), soci::into(epoch_ms);
      if (session.got_data()) {
        row.epoch_ms = epoch_ms;
        tables.cluster = std::move(row);
      }
    } catch (const std::exception& exception) {
      // The fork's own database, before `db init`.
      if (!sql::IsMissingTable(exception)) throw;
      tables.own_tables = false;
    }
    tables.numbers =
        SelectNumbers(session, fmt::format("SELECT {} FROM leaf_workerid_alloc ORDER BY id", kNumberColumns));
    return {};
  }));
  return tables;
}

WorkerInspection Inspect(const WorkerTables& tables, const InspectionOptions& options,
                         const core::ClusterProperties& configured) {
  return TableInspector(tables, options, configured).Run();
}

Result<std::optional<RepairStep>> PlanRelease(const WorkerTables& tables, std::uint64_t worker,
                                              WallTime now) {
  const auto is_worker = [&](std::int64_t number) {
    return number >= 0 && static_cast<std::uint64_t>(number) == worker;
  };
  const auto owner = std::find_if(tables.owners.begin(), tables.owners.end(),
                                  [&](const OwnerRow& row) { return is_worker(row.worker); });
  const bool known =
      owner != tables.owners.end() || std::any_of(tables.numbers.begin(), tables.numbers.end(),
                                                  [&](const NumberRow& row) { return is_worker(row.id); });
  if (!known) {
    return Error{ErrorCode::kNotFound, fmt::format("there is no worker {} in leaf_workerid_alloc", worker),
                 "leafctl worker list"};
  }
  if (owner == tables.owners.end() || owner->uuid.empty()) return std::optional<RepairStep>{};
  if (IsLive(*owner, now)) {
    return Error{ErrorCode::kRefused,
                 fmt::format("cannot release worker {}: its node reported {}", worker,
                             FormatRfc3339(WallTimeOf(owner->reported_ms))),
                 fmt::format("stop it first; a node that was killed counts as live for {} s",
                             kLiveReport.count() / 1000)};
  }
  RepairStep step;
  step.code = "release";
  step.what = fmt::format("release worker {} of state directory {} on {} ({})", worker, owner->uuid,
                          Quoted(owner->host), owner->ip_port);
  step.why = "so that another state directory can have it; its ceiling stays";
  step.changes.push_back(WriteRecord(RowRecord(*owner), RowText(Released(*owner))));
  return std::optional(std::move(step));
}

std::vector<RawRecord> ToRecords(const WorkerTables& tables) {
  std::vector<RawRecord> records;
  if (tables.cluster) {
    records.push_back({"leafctl_cluster/1",
                       Dump({{"name", tables.cluster->name},
                             {"layout", tables.cluster->layout},
                             {"epoch_ms", tables.cluster->epoch_ms}}),
                       {}});
  }
  for (const NumberRow& row : tables.numbers) records.push_back(RowRecord(row));
  for (const OwnerRow& row : tables.owners) records.push_back(RowRecord(row));
  return records;
}

Result<bool> ApplyStep(sql::Database& database, const RepairStep& step) {
  bool changed_meanwhile = false;
  const Result<void> done = database.Transact(
      step.what, sql::Database::Finish::kCommit, [&](soci::session& session) -> Result<void> {
        for (const Change& change : step.changes) {
          const auto row = ReadWorkerRow(session, database.dialect(), PlaceOf(change.before.name));
          const bool same =
              change.kind == Change::Kind::kCreate ? !row : row == std::optional(change.before.data);
          if (!same) {
            changed_meanwhile = true;
            return Error{ErrorCode::kRefused, "changed meanwhile", ""};  // rolls back; no caller sees it
          }
        }
        for (const Change& change : step.changes)
          WriteRow(session, database.dialect(), PlaceOf(change.before.name), change);
        return {};
      });
  if (changed_meanwhile) return false;
  if (!done.ok()) return done.error();
  return true;
}

}  // namespace leaf::inspect
