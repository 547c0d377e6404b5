#include "leaf/zookeeper/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"

namespace leaf::zookeeper {
namespace {

// Keys in the order in which they are written: Leaf's has a fixed one, and ours should read well.
using Json = nlohmann::ordered_json;

// What a path element may be (ZooKeeper's PathUtils), except that the reserved name "zookeeper" is only
// special at the very top, where it is none of ours. No longer than any file's name.
bool IsPathElement(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && CountCodePoints(name).has_value() &&
         !HasControlCharacter(name);
}

// Digits only; nothing if there are none, or too many for `max`.
std::optional<std::uint64_t> ParseDigits(std::string_view text, std::uint64_t max) {
  const auto number = ParseWhole<std::uint64_t>(text);
  return number && *number <= max ? number : std::nullopt;
}

constexpr std::uint64_t kNumberMax = std::uint64_t{1} << 61;  // as in the state file
constexpr std::uint64_t kGenerationMax = std::uint64_t{1} << 62;
constexpr std::uint64_t kOrderVersionMax = std::uint64_t{1} << 62;
constexpr std::uint64_t kForeverMax = (std::uint64_t{1} << 31) - 1;  // a Java int
// An ID's time can be beyond the year 10000 in a wide layout.
constexpr std::int64_t kMillisMax = core::kEpochMillisMax * 2;

Error Malformed(std::string_view what, std::string_view why) {
  return {ErrorCode::kInvalidArgument, fmt::format("{} record is malformed: {}", what, why), ""};
}

// The text as a JSON object that names no key twice; `why` says what is wrong with it otherwise.
std::optional<Json> ParseObject(std::string_view text, std::string& why) {
  // No record has more than a list in an object. The library copies values by recursion when an object grows,
  // so that a deep one would end the process.
  constexpr int kNestingMax = 8;
  std::size_t keys = 0;
  bool deep = false;
  const auto look = [&](int depth, Json::parse_event_t event, const Json&) {
    if (event == Json::parse_event_t::key && depth == 1) ++keys;
    if (depth > kNestingMax) deep = true;
    return !deep;
  };
  Json json = Json::parse(text.begin(), text.end(), look, /*allow_exceptions=*/false);
  if (text.empty()) {
    why = "it is empty";
  } else if (deep) {
    why = "it is nested too deeply";
  } else if (json.is_discarded()) {
    why = "it is not JSON";
  } else if (!json.is_object()) {
    why = "it is not a JSON object";
  } else if (json.size() != keys) {
    why = "it names a key twice";
  } else {
    return std::make_optional(std::move(json));
  }
  return std::nullopt;
}

// Takes one of our own records apart. The first thing that is not as it should be is remembered, and makes
// Finish fail.
class RecordReader {
 public:
  // `more`: keys that may be missing.
  RecordReader(std::string_view what, std::string_view text, std::initializer_list<const char*> keys,
               std::initializer_list<const char*> more = {})
      : what_(what) {
    auto json = ParseObject(text, why_);
    if (!json) return;
    json_ = *std::move(json);
    for (const char* key : keys) {
      if (!json_.contains(key)) Fail(fmt::format("'{}' is missing", key));
    }
    for (const auto& [key, value] : json_.items()) {
      const auto same = [&key = key](const char* known) { return key == known; };
      if (std::none_of(keys.begin(), keys.end(), same) && std::none_of(more.begin(), more.end(), same))
        Fail(fmt::format("{} is unknown", Quoted(key)));
    }
  }

  bool Has(const char* key) const { return ok() && json_.contains(key); }
  // An ID, written as text: more than what a double holds.
  std::uint64_t IdLimit(const char* key) {
    const std::string text = Text(key);
    if (const auto number = ParseDigits(text, kMaxIdLimit)) return *number;
    Fail(fmt::format("'{}' is not a number in 0..{}", key, kMaxIdLimit));
    return 0;
  }

  std::string Text(const char* key) {
    if (!ok()) return "";
    const Json& value = json_[key];
    if (!value.is_string()) {
      Fail(fmt::format("'{}' is not a string", key));
      return "";
    }
    return value.get<std::string>();
  }
  std::vector<std::string> Texts(const char* key) {
    if (!ok()) return {};
    const Json& value = json_[key];
    if (!value.is_array() ||
        !std::all_of(value.begin(), value.end(), [](const Json& item) { return item.is_string(); })) {
      Fail(fmt::format("'{}' is not a list of strings", key));
      return {};
    }
    return value.get<std::vector<std::string>>();
  }
  bool Flag(const char* key) {
    if (!ok()) return false;
    const Json& value = json_[key];
    if (!value.is_boolean()) {
      Fail(fmt::format("'{}' is neither true nor false", key));
      return false;
    }
    return value.get<bool>();
  }
  std::int64_t Number(const char* key, std::int64_t max) {
    if (!ok()) return 0;
    const Json& value = json_[key];
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(max)) {
      Fail(fmt::format("'{}' is not a number in 0..{}", key, max));
      return 0;
    }
    return value.get<std::int64_t>();
  }
  // Whatever Java may have written.
  std::int64_t Integer(const char* key) {
    if (!ok()) return 0;
    const Json& value = json_[key];
    const bool fits =
        value.is_number_integer() &&
        (!value.is_number_unsigned() ||
         value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
    if (!fits) {
      Fail(fmt::format("'{}' is not a whole number", key));
      return 0;
    }
    return value.get<std::int64_t>();
  }
  std::uint64_t Unsigned(const char* key, std::uint64_t max) {
    return static_cast<std::uint64_t>(Number(key, static_cast<std::int64_t>(max)));
  }
  std::optional<std::int64_t> OptionalNumber(const char* key, std::int64_t max) {
    if (!ok() || json_[key].is_null()) return std::nullopt;
    return Number(key, max);
  }
  std::optional<WallTime> OptionalTime(const char* key) {
    const auto millis = OptionalNumber(key, kMillisMax);
    if (!millis) return std::nullopt;
    return WallTimeOf(*millis);
  }

  void Fail(std::string why) {
    if (why_.empty()) why_ = std::move(why);
  }
  bool ok() const { return why_.empty(); }
  template <typename Record>
  Result<Record> Finish(Record record) const {
    if (!ok()) return Malformed(what_, why_);
    return record;
  }

 private:
  std::string_view what_;
  std::string why_;
  Json json_;
};

Json TimeOrNull(const std::optional<WallTime>& time) {
  return time ? Json(UnixMillis(*time)) : Json(nullptr);
}

// Text that is not UTF-8 (a host name could be) is replaced rather than thrown at.
std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// "ip:port" taken apart at the last colon: an IPv6 address has more.
std::pair<std::string_view, std::string_view> SplitAddress(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return {address, ""};
  return {address.substr(0, colon), address.substr(colon + 1)};
}

}  // namespace

Result<Tree> Tree::Make(std::string_view cluster, std::string_view root) {
  if (!IsPathElement(cluster)) {
    return Error{ErrorCode::kConfig,
                 fmt::format("the cluster name {} is not allowed in a ZooKeeper path", Quoted(cluster)),
                 "set snowflake.cluster to a name without '/' and control characters"};
  }
  std::string_view rest = root;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('/', 1), rest.size());
    if (rest.front() != '/' || !IsPathElement(rest.substr(1, end - 1))) {
      return Error{ErrorCode::kConfig, fmt::format("{} is not a ZooKeeper path", Quoted(root)), ""};
    }
    rest.remove_prefix(end);
  }
  return Tree(std::string(cluster), std::string(root), Join(std::string(root), cluster));
}

std::vector<std::string> Tree::RootFolders() const {
  std::vector<std::string> folders;
  for (std::size_t end = root_.find('/', 1); !root_.empty(); end = root_.find('/', end + 1)) {
    folders.push_back(root_.substr(0, end));
    if (end == std::string::npos) break;
  }
  return folders;
}

bool Tree::IsOwn(std::string_view path) const {
  const std::string own = Own();
  return path.starts_with(own) && (path.size() == own.size() || path[own.size()] == '/');
}

std::string Tree::Witness(std::string_view tag) const { return Join(Witnesses(), WitnessName(tag)); }

std::vector<std::string> Tree::SegmentFolders() const {
  std::vector<std::string> folders = RootFolders();
  for (std::string folder : {Base(), Own(), Witnesses(), Daemons(), Nodes()})
    folders.push_back(std::move(folder));
  return folders;
}

std::vector<std::string> Tree::Folders() const {
  std::vector<std::string> folders = RootFolders();
  for (std::string folder :
       {Base(), Forever(), Own(), Owners(), Addresses(), Ceilings(), Leases(), Temporaries()})
    folders.push_back(std::move(folder));
  return folders;
}

// ---- names

Result<void> ValidateAddress(std::string_view address) {
  const auto [host, port] = SplitAddress(address);
  const auto number = ParseDigits(port, 65535);
  if (IsPathElement(address) && !host.empty() && number && *number > 0 && port.front() != '0' &&
      address.find('-') == std::string_view::npos)
    return {};
  return Error{
      ErrorCode::kConfig,
      fmt::format("{} cannot be this node's address in ZooKeeper: it has to be ip:port, without '-', "
                  "which would stop every Java node of the cluster",
                  Quoted(address)),
      "set snowflake.address"};
}

std::optional<ForeverName> ParseForeverName(std::string_view name) {
  const std::size_t dash = name.rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const std::string_view digits = name.substr(dash + 1);
  const auto worker = ParseDigits(digits, kForeverMax);
  if (!worker) return std::nullopt;
  const std::string_view address = name.substr(0, dash);
  return ForeverName{std::string(address), *worker, digits.size() == 10 && ValidateAddress(address).ok()};
}

std::string FormatForeverName(std::string_view address, std::uint64_t worker) {
  return fmt::format("{}-{:010}", address, worker);
}

std::optional<std::uint64_t> ParseNumberName(std::string_view name) {
  const auto number = ParseDigits(name, kNumberMax);
  if (!number || (name.size() > 1 && name.front() == '0')) return std::nullopt;
  return number;
}

std::string WitnessName(std::string_view tag) {
  std::string name;
  for (const char c : tag) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '-' || (c == '.' && !name.empty());
    if (plain) {
      name += c;
    } else {
      fmt::format_to(std::back_inserter(name), "%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return name;
}

std::optional<std::string> ParseWitnessName(std::string_view name) {
  std::string tag;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '%') {
      tag += name[i];
      continue;
    }
    const std::string_view digits = name.substr(i + 1, 2);
    const auto byte = ParseWhole<unsigned>(digits, 16);
    if (digits.size() != 2 || !byte) return std::nullopt;
    tag += static_cast<char>(*byte);
    i += 2;
  }
  if (tag.empty() || WitnessName(tag) != name) return std::nullopt;
  return tag;
}

std::optional<std::uint64_t> ParseRecycleName(std::string_view name) {
  constexpr std::string_view kPrefix = "workId:";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  return ParseNumberName(name.substr(kPrefix.size()));
}

// ---- contents

std::string FormatForeverData(std::string_view address, WallTime now) {
  const auto [ip, port] = SplitAddress(address);
  return Dump(Json{{"ip", ip}, {"port", port}, {"timestamp", UnixMillis(now)}});
}

Result<ForeverData> ParseForeverData(std::string_view json) {
  constexpr std::string_view kWhat = "Leaf's";
  std::string why;
  // Java takes the last of two values for one key, but nothing writes two.
  const auto object = ParseObject(json, why);
  if (!object) return Malformed(kWhat, why);
  ForeverData data;
  for (const auto& [key, value] : object->items()) {
    if (key == "ip" && (value.is_string() || value.is_null())) {
      data.ip = value.is_null() ? "" : value.get<std::string>();
    } else if (key == "port" && (value.is_string() || value.is_null())) {
      data.port = value.is_null() ? "" : value.get<std::string>();
    } else if (key == "port" && value.is_number_integer()) {
      data.port = value.dump();
    } else if (key == "timestamp" && value.is_number_integer()) {
      if (value.is_number_unsigned() &&
          value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return Malformed(kWhat, "'timestamp' is too large");
      data.timestamp_ms = value.get<std::int64_t>();
    } else if (key == "timestamp" && value.is_number_float()) {
      // Beyond 2^53 the fraction is not the question any more.
      const double timestamp = value.get<double>();
      if (!(std::abs(timestamp) < 9007199254740992.0)) return Malformed(kWhat, "'timestamp' is too large");
      data.timestamp_ms = static_cast<std::int64_t>(timestamp);
    } else if (key == "timestamp" && value.is_null()) {
      data.timestamp_ms = 0;
    } else if (key == "ip" || key == "port" || key == "timestamp") {
      return Malformed(kWhat, fmt::format("'{}' has the wrong type", key));
    } else {
      return Malformed(kWhat, fmt::format("{} is unknown", Quoted(key)));
    }
  }
  return data;
}

std::string FormatProperties(const PropertiesRecord& record) {
  return Dump(Json{{"name", record.cluster.name},
                   {"registry", record.cluster.registry},
                   {"layout", record.cluster.layout.Bits()},
                   {"epoch_ms", record.cluster.layout.epoch_ms()},
                   {"recycle", record.recycle}});
}

Result<PropertiesRecord> ParseProperties(std::string_view json) {
  RecordReader reader("cluster", json, {"name", "registry", "layout", "epoch_ms", "recycle"});
  PropertiesRecord record;
  record.cluster.name = reader.Text("name");
  record.cluster.registry = reader.Text("registry");
  record.recycle = reader.Flag("recycle");
  const std::string bits = reader.Text("layout");
  const std::int64_t epoch_ms = reader.Number("epoch_ms", core::kEpochMillisMax);
  if (reader.ok()) {
    if (const auto layout = core::IdLayout::Parse(bits, epoch_ms); layout.ok()) {
      record.cluster.layout = *layout;
    } else {
      reader.Fail(layout.error().message);
    }
  }
  return reader.Finish(std::move(record));
}

Result<void> CheckSameProperties(const PropertiesRecord& stored, const PropertiesRecord& configured,
                                 std::string_view where) {
  LEAF_RETURN_IF_ERROR(core::CheckSameCluster(stored.cluster, configured.cluster, where));
  if (stored.recycle == configured.recycle) return {};
  return Error{ErrorCode::kRefused,
               fmt::format("{} belongs to a cluster whose recycle is {}, but {} is configured", where,
                           stored.recycle, configured.recycle),
               "configure the old value of snowflake.recycle, or use a new state_dir and a new cluster name"};
}

std::string FormatOwner(const OwnerRecord& record) {
  return Dump(Json{{"uuid", record.uuid},
                   {"address", record.address},
                   {"host", record.host},
                   {"since_ms", UnixMillis(record.since)}});
}

Result<OwnerRecord> ParseOwner(std::string_view json) {
  RecordReader reader("owner", json, {"uuid", "address", "host", "since_ms"});
  OwnerRecord record;
  record.uuid = reader.Text("uuid");
  record.address = reader.Text("address");
  record.host = reader.Text("host");
  record.since = WallTimeOf(reader.Number("since_ms", kMillisMax));
  if (record.uuid.empty()) reader.Fail("'uuid' is empty");
  return reader.Finish(std::move(record));
}

std::string FormatWitness(const WitnessRecord& record) {
  // As text: more than what a double holds.
  Json json{{"end", std::to_string(record.end)},
            {"claim", record.claim},
            {"by", record.by},
            {"at_ms", UnixMillis(record.at)}};
  if (record.strict) {
    json["strict_version"] = record.strict->version;
    if (record.strict->since) json["strict_since"] = std::to_string(*record.strict->since);
  }
  return Dump(json);
}

Result<WitnessRecord> ParseWitness(std::string_view json) {
  RecordReader reader("witness", json, {"end", "claim", "by", "at_ms"}, {"strict_version", "strict_since"});
  WitnessRecord record;
  record.end = reader.IdLimit("end");
  record.claim = reader.Text("claim");
  record.by = reader.Text("by");
  record.at = WallTimeOf(reader.Number("at_ms", kMillisMax));
  if (reader.Has("strict_version")) {
    record.strict.emplace();
    record.strict->version = reader.Unsigned("strict_version", kOrderVersionMax);
    if (reader.Has("strict_since")) record.strict->since = reader.IdLimit("strict_since");
  } else if (reader.Has("strict_since")) {
    reader.Fail("'strict_since' is there without 'strict_version'");
  }
  return reader.Finish(std::move(record));
}

std::string FormatDaemon(const DaemonRecord& record) {
  return Dump(Json{{"host", record.host}, {"process", record.process}, {"urls", record.urls}});
}

Result<DaemonRecord> ParseDaemon(std::string_view json) {
  RecordReader reader("daemon", json, {"host", "process", "urls"});
  DaemonRecord record;
  record.host = reader.Text("host");
  record.process = reader.Text("process");
  record.urls = reader.Texts("urls");
  return reader.Finish(std::move(record));
}

std::string FormatNode(const NodeRecord& record) {
  return Dump(Json{{"contributed", record.contributed},
                   {"beat", record.beat},
                   {"claims", record.claims},
                   {"left", record.left},
                   {"daemon", record.daemon},
                   {"host", record.host},
                   {"process", record.process},
                   {"at_ms", UnixMillis(record.at)}});
}

Result<NodeRecord> ParseNode(std::string_view json) {
  RecordReader reader("node", json,
                      {"contributed", "beat", "claims", "left", "daemon", "host", "process", "at_ms"});
  NodeRecord record;
  record.contributed = reader.Unsigned("contributed", kGenerationMax);
  record.beat = reader.Unsigned("beat", kGenerationMax);
  record.claims = reader.Flag("claims");
  record.left = reader.Flag("left");
  record.daemon = reader.Text("daemon");
  record.host = reader.Text("host");
  record.process = reader.Text("process");
  record.at = WallTimeOf(reader.Number("at_ms", kMillisMax));
  return reader.Finish(std::move(record));
}

std::string FormatIncarnation(const IncarnationRecord& record) {
  return Dump(Json{{"number", record.number},
                   {"settled", record.settled},
                   {"why", record.why},
                   {"by", record.by},
                   {"at_ms", UnixMillis(record.at)}});
}

Result<IncarnationRecord> ParseIncarnation(std::string_view json) {
  RecordReader reader("incarnation", json, {"number", "settled", "why", "by", "at_ms"});
  IncarnationRecord record;
  record.number = reader.Unsigned("number", kGenerationMax);
  record.settled = reader.Flag("settled");
  record.why = reader.Text("why");
  record.by = reader.Text("by");
  record.at = WallTimeOf(reader.Number("at_ms", kMillisMax));
  if (record.number == 0) reader.Fail("'number' is 0");
  return reader.Finish(std::move(record));
}

std::string FormatAddress(const AddressRecord& record) {
  return Dump(Json{{"uuid", record.uuid}, {"worker", record.worker ? Json(*record.worker) : Json(nullptr)}});
}

Result<AddressRecord> ParseAddress(std::string_view json) {
  RecordReader reader("address", json, {"uuid", "worker"});
  AddressRecord record;
  record.uuid = reader.Text("uuid");
  if (const auto worker = reader.OptionalNumber("worker", static_cast<std::int64_t>(kNumberMax)))
    record.worker = static_cast<std::uint64_t>(*worker);
  if (record.uuid.empty()) reader.Fail("'uuid' is empty");
  return reader.Finish(std::move(record));
}

std::string FormatCeiling(const CeilingRecord& record) {
  return Dump(Json{{"uuid", record.uuid},
                   {"generation", record.generation},
                   {"ceiling_ms", TimeOrNull(record.ceiling)},
                   {"leaf_version", record.leaf_version},
                   {"leaf_timestamp_ms", record.leaf_timestamp_ms}});
}

Result<CeilingRecord> ParseCeiling(std::string_view json) {
  RecordReader reader("ceiling", json,
                      {"uuid", "generation", "ceiling_ms", "leaf_version", "leaf_timestamp_ms"});
  CeilingRecord record;
  record.uuid = reader.Text("uuid");
  record.generation = reader.Unsigned("generation", kGenerationMax);
  record.ceiling = reader.OptionalTime("ceiling_ms");
  record.leaf_version = static_cast<std::int32_t>(reader.Number("leaf_version", (std::int64_t{1} << 31) - 1));
  record.leaf_timestamp_ms = reader.Integer("leaf_timestamp_ms");
  return reader.Finish(std::move(record));
}

std::string FormatLease(const LeaseRecord& record) {
  return Dump(Json{{"generation", record.generation},
                   {"uuid", record.uuid},
                   {"address", record.address},
                   {"ceiling_ms", TimeOrNull(record.ceiling)}});
}

Result<LeaseRecord> ParseLease(std::string_view json) {
  RecordReader reader("lease", json, {"generation", "uuid", "address", "ceiling_ms"});
  LeaseRecord record;
  record.generation = reader.Unsigned("generation", kGenerationMax);
  record.uuid = reader.Text("uuid");
  record.address = reader.Text("address");
  record.ceiling = reader.OptionalTime("ceiling_ms");
  return reader.Finish(std::move(record));
}

std::string FormatTemporary(const TemporaryRecord& record) {
  return Dump(Json{{"url", record.url}, {"worker", record.worker}, {"uuid", record.uuid}});
}

Result<TemporaryRecord> ParseTemporary(std::string_view json) {
  RecordReader reader("temporary", json, {"url", "worker", "uuid"});
  TemporaryRecord record;
  record.url = reader.Text("url");
  record.worker = reader.Unsigned("worker", kNumberMax);
  record.uuid = reader.Text("uuid");
  return reader.Finish(std::move(record));
}

Result<RecycleData> ParseRecycleData(std::string_view json) {
  constexpr std::string_view kWhat = "the fork's recycle";
  std::string why;
  const auto object = ParseObject(json, why);
  if (!object) return Malformed(kWhat, why);
  RecycleData data;
  bool has_worker = false;
  for (const auto& [key, value] : object->items()) {
    if (key == "workId" && value.is_number_unsigned()) {
      data.worker = value.get<std::uint64_t>();
      has_worker = true;
    } else if (key == "lastUsedTimestamp" && value.is_number_unsigned() &&
               value.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMillisMax)) {
      data.timestamp_ms = value.get<std::int64_t>();
    } else if (key == "lastUsedIp" && value.is_string()) {
      data.ip = value.get<std::string>();
    } else if (key == "lastUsedPort" && (value.is_string() || value.is_number_unsigned())) {
      data.port = value.is_string() ? value.get<std::string>() : value.dump();
    } else if (!value.is_null() || key == "workId") {
      return Malformed(kWhat, fmt::format("{} has the wrong type", Quoted(key)));
    }
  }
  if (!has_worker) return Malformed(kWhat, "'workId' is missing");
  return data;
}

}  // namespace leaf::zookeeper
