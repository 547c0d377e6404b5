#include "leaf/config/leaf_properties.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "leaf/base/check.h"
#include "leaf/base/duration.h"
#include "leaf/base/endpoint.h"
#include "leaf/base/text.h"
#include "leaf/config/java_properties.h"
#include "leaf/config/jdbc_url.h"

namespace leaf::config {
namespace {

using NoteKind = ImportNote::Kind;
using Strings = std::vector<std::string>;

constexpr std::string_view kName = "leaf.name";
constexpr std::string_view kSegmentEnable = "leaf.segment.enable";
constexpr std::string_view kSnowflakeEnable = "leaf.snowflake.enable";
constexpr std::string_view kPort = "leaf.snowflake.port";
constexpr std::string_view kMode = "leaf.snowflake.mode";
constexpr std::string_view kWorkIdMap = "leaf.snowflake.local.workIdMap";

// The same thing in the two spellings; the fork has upstream's.
struct Spelled {
  std::string_view upstream;
  std::string_view starter;
};
constexpr Spelled kUrl{"leaf.jdbc.url", "leaf.segment.url"};
constexpr Spelled kUser{"leaf.jdbc.username", "leaf.segment.username"};
constexpr Spelled kPassword{"leaf.jdbc.password", "leaf.segment.password"};
constexpr Spelled kZookeeper{"leaf.snowflake.zk.address", "leaf.snowflake.address"};
constexpr std::array kAllSpelled{kUrl, kUser, kPassword, kZookeeper};

constexpr std::array kSingleSpelled{kName, kSegmentEnable, kSnowflakeEnable, kPort, kMode, kWorkIdMap};

constexpr std::uint64_t kWorkerMax = 1023;

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
std::string Lowered(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), Lower);
  return text;
}

// Without what Java's String.trim takes off.
std::string Trimmed(std::string_view text) {
  while (!text.empty() && static_cast<unsigned char>(text.front()) <= ' ') text.remove_prefix(1);
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.remove_suffix(1);
  return std::string(text);
}

std::optional<std::uint64_t> ParseNumber(std::string_view text, std::uint64_t max) {
  std::uint64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc{} || end != text.data() + text.size() || number > max) return std::nullopt;
  return number;
}

std::string EndpointText(const Endpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", endpoint.host, v6 ? "]" : "", endpoint.port);
}

bool HasDash(std::string_view text) { return text.find('-') != std::string_view::npos; }

// What a driver's option comes to.
struct OptionRule {
  std::string_view name;
  std::string_view why;
};
// Options that ask for what leafctl does anyway, or that say nothing to it.
constexpr std::array kUnneeded{
    OptionRule{"useUnicode", "connections always speak utf8mb4"},
    OptionRule{"characterSetResults", "connections always speak utf8mb4"},
    OptionRule{"connectionCollation", "tags are compared byte for byte"},
    OptionRule{"autoReconnect", "lost connections are always made anew"},
    OptionRule{"autoReconnectForPools", "lost connections are always made anew"},
    OptionRule{"serverTimezone", "no time of the database is used"},
    OptionRule{"useTimezone", "no time of the database is used"},
    OptionRule{"useLegacyDatetimeCode", "no time of the database is used"},
    OptionRule{"useJDBCCompliantTimezoneShift", "no time of the database is used"},
    OptionRule{"zeroDateTimeBehavior", "no time of the database is used"},
    OptionRule{"rewriteBatchedStatements", "there are no batches"},
    OptionRule{"allowMultiQueries", "there are no such statements"},
    OptionRule{"useAffectedRows", "it makes no difference to these statements"},
    OptionRule{"tinyInt1isBit", "there is no such column"},
    OptionRule{"nullCatalogMeansCurrent", "it concerns Java only"},
    OptionRule{"nullNamePatternMatchesAll", "it concerns Java only"},
    OptionRule{"useOldAliasMetadataBehavior", "it concerns Java only"},
    OptionRule{"maxReconnects", "connections are tried again without an end, with pauses"},
    OptionRule{"initialTimeout", "connections are tried again without an end, with pauses"},
    OptionRule{"tcpKeepAlive", "every statement has a deadline (mysql.query_timeout)"},
    OptionRule{"type", "of several endpoints the first that takes writes is used"},
    OptionRule{"failOverReadOnly", "of several endpoints the first that takes writes is used"},
    OptionRule{"allowPublicKeyRetrieval", "the client library settles this with the server"},
};

class Importer {
 public:
  Importer(std::vector<Property> properties, const ImportOptions& options)
      : properties_(std::move(properties)), options_(options) {}

  Result<Imported> Run() {
    Index();
    LEAF_RETURN_IF_ERROR(ChooseSpelling());
    LEAF_ASSIGN_OR_RETURN(const bool segment, Enabled(kSegmentEnable));
    LEAF_ASSIGN_OR_RETURN(const bool snowflake, Enabled(kSnowflakeEnable));
    LEAF_RETURN_IF_ERROR(Set("segment.enabled", segment, kSegmentEnable));
    LEAF_RETURN_IF_ERROR(Set("snowflake.enabled", snowflake, kSnowflakeEnable));
    if (!segment || !snowflake) {
      Advise(
          fmt::format("Java Leaf answers a mode that is switched off with the ID 0 and HTTP 200; leafctl "
                      "answers an error: see to it that nobody asks for {}",
                      !segment && !snowflake ? "either mode"
                      : segment              ? "snowflake mode"
                                             : "segment mode"));
    }
    if (!options_.listen.empty()) {
      LEAF_RETURN_IF_ERROR(Set("server.listen", options_.listen, "", "--listen"));
    } else {
      Advise(
          "Java Leaf listens on every interface, at Spring's server.port (8080 by default), which is not in "
          "this file; leafctl listens on 127.0.0.1:8080 unless server.listen (--listen) says otherwise");
    }
    if (snowflake) LEAF_RETURN_IF_ERROR(ImportSnowflake());
    // The fork reads the port before it looks whether the mode is on.
    if (!snowflake && result_.spelling == LeafSpelling::kFork) LEAF_RETURN_IF_ERROR(CheckPort());
    if (segment) LEAF_RETURN_IF_ERROR(ImportDatabase(kSegmentEnable));
    if (segment && snowflake && result_value("zookeeper.connect")) {
      Advise(
          "with ZooKeeper configured segment mode is fenced across the cluster (segment.fence = \"auto\"): "
          "no grant is used while ZooKeeper is away; segment.fence = \"node\" needs none, as Java Leaf");
    }
    ListUnused();
    SortResult();
    return std::move(result_);
  }

 private:
  const Value* result_value(std::string_view key) const {
    for (const auto& [name, value] : result_.values) {
      if (name == key) return &value;
    }
    return nullptr;
  }

  // ---- the file

  void Index() {
    for (std::size_t i = 0; i < properties_.size(); ++i) {
      const Property& property = properties_[i];
      const auto [place, added] = last_.try_emplace(property.key, i);
      if (added) continue;
      Note(NoteKind::kDropped, properties_[place->second],
           fmt::format("given again on line {}, which is the one that counts", property.line));
      used_.insert(place->second);
      place->second = i;
    }
  }

  const Property* Find(std::string_view key) {
    const auto found = last_.find(key);
    if (found == last_.end()) return nullptr;
    used_.insert(found->second);
    return &properties_[found->second];
  }

  const Property* Find(const Spelled& key) {
    return Find(result_.spelling == LeafSpelling::kStarter ? key.starter : key.upstream);
  }
  std::string_view NameOf(const Spelled& key) const {
    return result_.spelling == LeafSpelling::kStarter ? key.starter : key.upstream;
  }

  bool Has(std::string_view key) const { return last_.count(key) > 0; }

  Result<void> ChooseSpelling() {
    const Property* upstream = nullptr;
    const Property* starter = nullptr;
    for (const Spelled& spelled : kAllSpelled) {
      if (Has(spelled.upstream) && upstream == nullptr)
        upstream = &properties_[last_.find(spelled.upstream)->second];
      if (Has(spelled.starter) && starter == nullptr)
        starter = &properties_[last_.find(spelled.starter)->second];
    }
    result_.spelling = options_.spelling;
    if (options_.spelling != LeafSpelling::kAuto) return {};
    if (Has(kMode) || Has(kWorkIdMap)) {
      result_.spelling = LeafSpelling::kFork;
    } else if (starter == nullptr) {
      result_.spelling = LeafSpelling::kUpstream;
    } else if (upstream == nullptr) {
      result_.spelling = LeafSpelling::kStarter;
    } else {
      return Error{
          ErrorCode::kConfig,
          fmt::format("it has {} (line {}), which upstream reads, and {} (line {}), which the Spring "
                      "Boot starter reads",
                      upstream->key, upstream->line, starter->key, starter->line),
          "say which of them reads this file: --spelling upstream|starter|fork"};
    }
    return {};
  }

  // ---- results

  void Note(NoteKind kind, const Property& property, std::string text) {
    result_.notes.push_back({kind, property.line, property.key, std::move(text)});
  }
  void Advise(std::string text) { result_.notes.push_back({NoteKind::kAdvice, 0, "", std::move(text)}); }

  static Error Wrong(const Property& property, const std::string& why, std::string hint = "") {
    return {ErrorCode::kConfig, fmt::format("line {}: {}: {}", property.line, Printable(property.key), why),
            std::move(hint)};
  }
  static Error Missing(std::string_view key, const std::string& why, std::string hint = "") {
    return {ErrorCode::kConfig, fmt::format("{} is missing: {}", key, why), std::move(hint)};
  }

  // `from`: the property that it comes from, or `option` in the command line.
  Result<void> Set(std::string_view key, Value value, std::string_view from, std::string_view option = "") {
    const Key* const known = FindKey(key);
    LEAF_CHECK(known != nullptr);
    Config scratch;
    if (const auto stored = known->store(scratch, value); !stored.ok()) {
      const auto found = last_.find(from);
      if (!option.empty() || found == last_.end()) {
        return Error{ErrorCode::kInvalidArgument,
                     fmt::format("bad {}: {}", option.empty() ? from : option, stored.error().message), ""};
      }
      return Wrong(properties_[found->second], stored.error().message,
                   fmt::format("it would become {}", key));
    }
    result_.values.emplace_back(key, std::move(value));
    return {};
  }

  // The value without blanks around it, with a note if there were any.
  std::string Tidy(const Property& property) {
    std::string value = Trimmed(property.value);
    if (value != property.value)
      Note(NoteKind::kChanged, property, "it has a blank at its end, which Java keeps; taken without it");
    return value;
  }
  // As it is, with a note: what Java does with the blank works, and has to be the same here.
  const std::string& Exact(const Property& property) {
    if (Trimmed(property.value) != property.value)
      Note(NoteKind::kChanged, property,
           "it has a blank at its end, which Java keeps, and so it is kept here");
    if (std::any_of(property.value.begin(), property.value.end(),
                    [](char c) { return static_cast<unsigned char>(c) >= 0x80; }))
      Note(NoteKind::kChanged, property,
           fmt::format("it is not ASCII; read as Latin-1, as Java reads this file: {}",
                       Quoted(property.value)));
    return property.value;
  }

  Result<bool> Enabled(std::string_view key) {
    const bool starter = result_.spelling == LeafSpelling::kStarter;
    const Property* const property = Find(key);
    if (property == nullptr) {
      Advise(fmt::format("{} is absent, which {}", key,
                         starter ? "the starter takes for false" : "Java Leaf takes for true"));
      return !starter;
    }
    const std::string exact = Lowered(property->value);
    if (exact == "true") return true;
    if (exact == "false") return false;
    const std::string trimmed = Lowered(Trimmed(property->value));
    if (!starter) {
      // Boolean.parseBoolean: everything but "true" is false.
      Note(NoteKind::kChanged, *property,
           fmt::format("{} is false in Java{}", Quoted(property->value),
                       trimmed == "true" ? ", for the blank at its end" : ""));
      return false;
    }
    // Spring's own converter.
    const bool on = trimmed == "true" || trimmed == "on" || trimmed == "yes" || trimmed == "1";
    if (!on && trimmed != "false" && trimmed != "off" && trimmed != "no" && trimmed != "0" &&
        !trimmed.empty())
      return Wrong(*property, fmt::format("{} is neither true nor false", Quoted(property->value)));
    Note(NoteKind::kChanged, *property,
         fmt::format("{} is taken for {}, as by Spring", Quoted(property->value), on));
    return on;
  }

  // ---- snowflake

  Result<void> ImportSnowflake() {
    LEAF_ASSIGN_OR_RETURN(const std::string mode, Mode());
    LEAF_RETURN_IF_ERROR(ImportName());
    Advise(
        "a build of Java Leaf that passes a twepoch of its own to SnowflakeIDGenImpl has it in its code, not "
        "in "
        "this file: set snowflake.epoch_ms to it, or IDs repeat");
    if (mode == "local") return ImportLocal();
    LEAF_ASSIGN_OR_RETURN(const std::string address, Address({}));
    LEAF_RETURN_IF_ERROR(SetAddress(address));
    if (mode == "mysql") {
      LEAF_RETURN_IF_ERROR(Set("snowflake.registry", std::string("sql"), kMode));
      Advise(
          "the table leaf_workerid_alloc has no column for leaf.name: all nodes that share it are one "
          "cluster "
          "to leafctl, and must have one leaf.name");
      return ImportDatabase(kMode);
    }
    LEAF_RETURN_IF_ERROR(Set("snowflake.registry", std::string("zookeeper"), kMode));
    if (mode == "zk_recycle") {
      LEAF_RETURN_IF_ERROR(Set("snowflake.recycle", true, kMode));
      Advise(
          "the numbers under recycle/ and leafctl's leases know nothing of each other: a node of the fork "
          "may "
          "take any number from 0 to 1024. Stop every such node before the first leafctl starts, and wait "
          "until "
          "the clock has passed the newest lastUsedTimestamp by 4 s; do not run both at once");
    }
    return ImportZookeeper();
  }

  Result<std::string> Mode() {
    const Property* const property = Find(kMode);
    if (property == nullptr) return std::string("zk_normal");
    if (result_.spelling != LeafSpelling::kFork) {
      Note(NoteKind::kDropped, *property, "only the fork knows it");
      return std::string("zk_normal");
    }
    const std::string& mode = property->value;
    for (const std::string_view known : {"zk_normal", "zk_recycle", "mysql", "local"}) {
      if (mode == known) return mode;
    }
    return Wrong(*property, fmt::format("{} is none of zk_normal, zk_recycle, mysql, local", Quoted(mode)));
  }

  Result<void> ImportName() {
    const Property* const property = Find(kName);
    if (property == nullptr) {
      Advise("leaf.name is absent: Java Leaf then uses the word null, and so does this configuration");
      return Set("snowflake.cluster", std::string("null"), kName);
    }
    if (property->value.empty()) return Wrong(*property, "it is empty, and no path can be made of it");
    LEAF_RETURN_IF_ERROR(Set("snowflake.cluster", Exact(*property), kName));
    if (HasDash(property->value)) {
      Note(NoteKind::kAdvice, *property,
           "it has a dash: a new node of Java Leaf fails at its first start and succeeds at its second; "
           "leafctl is not disturbed");
    }
    return {};
  }

  // "" if there is none.
  Result<std::string> Port() {
    const Property* const property = Find(kPort);
    if (property == nullptr) return std::string();
    const bool starter = result_.spelling == LeafSpelling::kStarter;
    // Spring trims, Integer.parseInt does not.
    const std::string port = starter ? Tidy(*property) : property->value;
    const auto number = ParseNumber(std::string_view(port).substr(port.starts_with('+') ? 1 : 0), 65535);
    if (!number || *number == 0) {
      const bool blank = Trimmed(port) != port;
      return Wrong(*property, fmt::format("{} is no port from 1 to 65535", Quoted(port)),
                   blank ? "Java Leaf does not start with it either, for the blank: take it away"
                         : "it identifies the node, beside its IP address; nothing listens there");
    }
    return std::to_string(*number);
  }

  Result<void> CheckPort() {
    LEAF_ASSIGN_OR_RETURN(const std::string port, Port());
    if (!port.empty()) return {};
    return Missing(kPort, "the fork does not start without it, even while snowflake mode is off",
                   "add it to the file, with any port");
  }

  // This node's own ip:port. `candidates`: what it can be.
  Result<std::string> Address(const Strings& candidates) {
    LEAF_ASSIGN_OR_RETURN(const std::string port, Port());
    if (options_.address.empty()) {
      if (candidates.size() == 1) {
        Advise(fmt::format("{} is the only address in {}, so it is this node's", candidates.front(),
                           kWorkIdMap));
        return candidates.front();
      }
      return Error{
          ErrorCode::kInvalidArgument,
          "this node's IP address is not in the file: Java Leaf takes the first of the machine that "
          "is no loopback",
          "give the one that it has under /snowflake/<leaf.name>/forever (or in leaf_workerid_alloc, "
          "or in the map) with --address IP, so that the node keeps its worker number"};
    }
    const bool bare_v6 =
        options_.address.find(':') != options_.address.rfind(':') && options_.address.front() != '[';
    const std::string text = bare_v6 ? fmt::format("[{}]", options_.address) : options_.address;
    const auto parsed = ParseEndpoint(text, 1);
    if (!parsed.ok())
      return Error{ErrorCode::kInvalidArgument, fmt::format("bad --address: {}", parsed.error().message), ""};
    if (HasDash(parsed->host)) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("bad --address: {} has a dash, and one under forever keeps every node of Java Leaf "
                      "from starting",
                      Quoted(parsed->host)),
          "give an IP address"};
    }
    // Whether it has a port: with another default it would be another one.
    const auto again = ParseEndpoint(text, 2);
    if (again.ok() && again->port == parsed->port) {
      const std::string own = std::to_string(parsed->port);
      if (!port.empty() && own != port) {
        Advise(fmt::format(
            "--address has port {}, not {}: this is another node than the one the file is of, with "
            "another worker number",
            own, port));
      }
      return EndpointText(*parsed);
    }
    if (port.empty()) {
      return Missing(kPort, "Java Leaf does not start without it while snowflake mode is on",
                     "add it to the file, or give --address IP:PORT");
    }
    return EndpointText({parsed->host, static_cast<std::uint16_t>(*ParseNumber(port, 65535))});
  }

  Result<void> SetAddress(const std::string& address) {
    LEAF_RETURN_IF_ERROR(Set("snowflake.address", address, kPort, "--address"));
    LEAF_ASSIGN_OR_RETURN(const Endpoint own, ParseEndpoint(address, 1));
    // The port is a label; peers ask for the clock where the node listens.
    for (const std::string& listen : options_.listen) {
      const auto endpoint = ParseEndpoint(listen, 1);
      if (!endpoint.ok() || endpoint->host.starts_with("127.") || endpoint->host == "localhost" ||
          endpoint->host == "::1")
        continue;
      const bool wildcard = endpoint->host == "0.0.0.0" || endpoint->host == "::";
      return Set("snowflake.advertise",
                 "http://" + EndpointText({wildcard ? own.host : endpoint->host, endpoint->port}), "",
                 "--listen");
    }
    Advise(
        fmt::format("the port of {} only identifies the node: set snowflake.advertise to the URL where its "
                    "peers can reach it, or they cannot compare their clocks with its",
                    address));
    return {};
  }

  Result<void> ImportZookeeper() {
    const Property* const property = Find(kZookeeper);
    if (property == nullptr)
      return Missing(NameOf(kZookeeper), "snowflake mode takes its worker number from ZooKeeper",
                     "set leaf.snowflake.enable=false if it is not used");
    const std::string& text = property->value;
    const std::size_t slash = std::min(text.find('/'), text.size());
    std::string connect;
    std::string_view hosts = std::string_view(text).substr(0, slash);
    while (true) {
      const std::size_t comma = std::min(hosts.find(','), hosts.size());
      const std::string host(hosts.substr(0, comma));
      if (std::any_of(host.begin(), host.end(), [](unsigned char c) { return c <= ' '; })) {
        return Wrong(*property, fmt::format("{} has a blank in {}", Quoted(text), Quoted(host)),
                     "Java Leaf takes it for a part of the host or the port, and does not reach ZooKeeper: "
                     "take it away");
      }
      const auto endpoint = ParseEndpoint(host, 2181);
      if (!endpoint.ok()) return Wrong(*property, endpoint.error().message);
      connect += (connect.empty() ? "" : ",") + EndpointText(*endpoint);
      if (comma == hosts.size()) break;
      hosts.remove_prefix(comma + 1);
    }
    const std::string chroot = Exact(*property).substr(slash);
    if (chroot.size() > 1) {
      if (chroot.ends_with('/') || chroot.find("//") != std::string::npos)
        return Wrong(*property, fmt::format("{} is no path", Quoted(chroot)));
      connect += chroot;
    }
    return Set("zookeeper.connect", connect, property->key);
  }

  Result<void> ImportLocal() {
    LEAF_RETURN_IF_ERROR(Set("snowflake.registry", std::string("static"), kMode));
    const Property* const property = Find(kWorkIdMap);
    if (property == nullptr) return Missing(kWorkIdMap, "mode local takes the worker number from it");
    std::set<std::string> seen;
    std::string twice;
    // Java takes the last of two, and says nothing.
    const auto json = nlohmann::json::parse(
        property->value,
        [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
          if (event == nlohmann::json::parse_event_t::key && depth == 1 &&
              !seen.insert(parsed.get<std::string>()).second)
            twice = parsed.get<std::string>();
          return true;
        },
        false);
    if (!json.is_object()) return Wrong(*property, "it is no JSON object {\"ip:port\": number, …}");
    if (!twice.empty()) return Wrong(*property, fmt::format("{} stands there twice", Quoted(twice)));
    std::map<std::string, std::int64_t> workers;
    std::map<std::int64_t, std::string> addresses;
    Strings candidates;
    for (const auto& [name, number] : json.items()) {
      if (!number.is_number_integer() || number.get<std::int64_t>() < 0)
        return Wrong(*property, fmt::format("the value of {} is no worker number", Quoted(name)));
      const auto endpoint = ParseEndpoint(name, 1);
      if (!endpoint.ok() || EndpointText(*endpoint) != name)
        return Wrong(*property, fmt::format("{} is no ip:port", Quoted(name)));
      const std::int64_t worker = number.get<std::int64_t>();
      if (worker > static_cast<std::int64_t>(kWorkerMax))
        return Wrong(*property,
                     fmt::format("{} has number {}, and the largest is 1023", Quoted(name), worker));
      if (const auto [other, added] = addresses.try_emplace(worker, name); !added) {
        return Wrong(*property, fmt::format("{} and {} have the same number {}, and would issue the same IDs",
                                            Quoted(other->second), Quoted(name), worker));
      }
      workers[name] = worker;
      candidates.push_back(name);
    }
    if (workers.empty()) return Wrong(*property, "the map is empty");
    LEAF_ASSIGN_OR_RETURN(const std::string address, Address(candidates));
    if (workers.count(address) == 0) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} is not in {} (line {})", Quoted(address), kWorkIdMap, property->line),
                   "give an address that is in the map with --address"};
    }
    LEAF_RETURN_IF_ERROR(Set("snowflake.workers", workers, kWorkIdMap));
    Advise(
        "once a node of the fork has written its <tmpdir>/<leaf.name>/leafconf/<port>/workerID.json, it goes "
        "by "
        "that file and not by the map: compare the two before the node is replaced");
    return SetAddress(address);
  }

  // ---- database

  // Once; `why`: the key that asks for it.
  Result<void> ImportDatabase(std::string_view why) {
    if (result_value("mysql.endpoints") != nullptr) return {};
    const Property* const url = Find(kUrl);
    if (url == nullptr)
      return Missing(NameOf(kUrl), fmt::format("{} asks for a database", why),
                     "set leaf.segment.enable=false if segment mode is not used");
    auto parsed = ParseJdbcUrl(Tidy(*url));
    if (!parsed.ok()) {
      Error error = std::move(parsed).error();
      return Wrong(*url, error.message, std::move(error.hint));
    }
    const std::string_view from = url->key;
    LEAF_RETURN_IF_ERROR(Set("segment.store", std::string("mysql"), from));
    Strings endpoints;
    for (const Endpoint& host : parsed->hosts) {
      std::string text = EndpointText(host);
      if (std::find(endpoints.begin(), endpoints.end(), text) == endpoints.end())
        endpoints.push_back(std::move(text));
    }
    if (endpoints.size() > 1) {
      Note(NoteKind::kChanged, *url,
           fmt::format(
               "{} servers: they have to be one replicated cluster; the first that takes writes is used, "
               "and kept{}",
               endpoints.size(),
               parsed->scheme.ends_with(":loadbalance") ? ": load is not balanced over them" : ""));
    }
    LEAF_RETURN_IF_ERROR(Set("mysql.endpoints", std::move(endpoints), from));
    LEAF_RETURN_IF_ERROR(Set("mysql.database", parsed->database, from));
    return ImportOptionsOf(*url, *parsed);
  }

  Result<void> ImportOptionsOf(const Property& url, const JdbcUrl& parsed) {
    std::optional<std::string> user;
    std::optional<std::string> password;
    Tls tls;
    for (const auto& [name, value] : parsed.options) {
      if (name == "user") {
        user = value;
      } else if (name == "password") {
        password = value;
      } else if (name == "connectTimeout" || name == "socketTimeout") {
        LEAF_RETURN_IF_ERROR(ImportTimeout(url, name, value));
      } else if (!tls.Take(name, value)) {
        ListOption(url, name, value);
      }
    }
    LEAF_RETURN_IF_ERROR(ImportTls(url, tls));
    return ImportLogin(url, user, password);
  }

  Result<void> ImportTimeout(const Property& url, const std::string& name, const std::string& value) {
    const std::string key = name == "connectTimeout" ? "mysql.connect_timeout" : "mysql.query_timeout";
    constexpr std::uint64_t kMax = std::uint64_t{1} << 31;
    const auto millis = ParseNumber(value, kMax);
    if (!millis)
      return Wrong(url, fmt::format("option {}: {} is no number of milliseconds", name, Quoted(value)));
    if (*millis == 0) {
      Note(NoteKind::kDropped, url,
           fmt::format("option {}=0: leafctl waits for nothing without an end; {} stays", name, key));
      return {};
    }
    if (result_value(key) != nullptr) {
      Note(NoteKind::kDropped, url, fmt::format("option {}={}: given a second time", name, value));
      return {};
    }
    return Set(key, FormatDuration(Millis{static_cast<std::int64_t>(*millis)}), url.key);
  }

  // The options that ask for encryption, of both drivers and all their versions.
  struct Tls {
    std::optional<bool> use;
    std::optional<bool> require;
    std::optional<bool> verify;
    std::string mode;

    bool Take(const std::string& name, const std::string& value) {
      const std::string word = Lowered(value);
      const bool on = word == "true" || word == "yes" || word == "1";
      if (name == "useSSL" || name == "useSsl") {
        use = on;
      } else if (name == "requireSSL") {
        require = on;
      } else if (name == "verifyServerCertificate") {
        verify = on;
      } else if (name == "trustServerCertificate") {
        verify = !on;
      } else if (name == "sslMode") {
        mode = word;
      } else {
        return false;
      }
      return true;
    }
  };

  Result<void> ImportTls(const Property& url, const Tls& tls) {
    std::string level;
    if (!tls.mode.empty()) {
      const std::map<std::string, std::string> kModes{
          {"disabled", "disabled"}, {"disable", "disabled"},       {"preferred", "preferred"},
          {"required", "required"}, {"trust", "required"},         {"verify_ca", "verify"},
          {"verify-ca", "verify"},  {"verify_identity", "verify"}, {"verify-full", "verify"}};
      const auto found = kModes.find(tls.mode);
      if (found == kModes.end())
        return Wrong(url, fmt::format("option sslMode: {} is not known", Quoted(tls.mode)));
      level = found->second;
      if (tls.mode == "verify_ca" || tls.mode == "verify-ca")
        Note(NoteKind::kChanged, url,
             "option sslMode: mysql.tls = \"verify\" compares the server's name, too");
    } else if (tls.use == false) {
      level = "disabled";
    } else if (tls.use == true || tls.require == true) {
      level = tls.verify == true ? "verify" : "required";
      if (!tls.verify) {
        Note(NoteKind::kChanged, url,
             "option useSSL: whether the certificate is verified depends on the driver's version; it is "
             "not by mysql.tls = \"required\", and is by \"verify\"");
      }
    } else if (tls.verify) {
      Note(NoteKind::kDropped, url,
           "option verifyServerCertificate: without useSSL or sslMode it says nothing");
    }
    if (level.empty()) return {};
    return Set("mysql.tls", level, url.key);
  }

  void ListOption(const Property& url, const std::string& name, const std::string& value) {
    if (name == "p6spy" || name == "log4jdbc") {
      Note(NoteKind::kDropped, url,
           fmt::format("{} before the driver: it logs statements; leafctl does not", name));
      return;
    }
    if (name == "characterEncoding") {
      const std::string word = Lowered(value);
      const bool utf8 = word == "utf8" || word == "utf-8" || word == "utf8mb4";
      Note(NoteKind::kDropped, url,
           fmt::format(
               "option {}={}: {}", name, Printable(value),
               utf8 ? "connections always speak utf8mb4"
                    : "connections speak utf8mb4, and tags are compared byte for byte: see to it that the "
                      "tags that are not ASCII are stored as what they look like"));
      return;
    }
    // A key of a trust store, say: of a name that sounds like a secret nothing is shown.
    const std::string lowered = Lowered(name);
    const bool secret =
        lowered.find("password") != std::string::npos || lowered.find("secret") != std::string::npos;
    const std::string shown =
        Printable(value.empty() ? name : fmt::format("{}={}", name, secret ? "…" : value));
    for (const OptionRule& rule : kUnneeded) {
      if (rule.name == name) {
        Note(NoteKind::kDropped, url, fmt::format("option {}: not needed: {}", shown, rule.why));
        return;
      }
    }
    const bool trust = lowered.find("truststore") != std::string::npos ||
                       lowered.find("keystore") != std::string::npos || lowered == "serversslcert";
    Note(NoteKind::kDropped, url,
         fmt::format("option {}: {}", shown,
                     trust ? "leafctl reads PEM files: name the authorities in mysql.tls_ca"
                           : "leafctl has no counterpart"));
  }

  Result<void> ImportLogin(const Property& url, const std::optional<std::string>& url_user,
                           const std::optional<std::string>& url_password) {
    const Property* const user = Find(kUser);
    if (user != nullptr && url_user && *url_user != user->value)
      return Wrong(*user, "another user stands in the URL", "leave one of the two");
    if (user == nullptr && !url_user)
      return Missing(NameOf(kUser), "leafctl does not guess the database's user");
    LEAF_RETURN_IF_ERROR(
        Set("mysql.user", user != nullptr ? Exact(*user) : *url_user, user != nullptr ? user->key : url.key));

    const Property* const password = Find(kPassword);
    if (password != nullptr && url_password && *url_password != password->value)
      return Wrong(*password, "another password stands in the URL", "leave one of the two");
    const Property& source = password != nullptr ? *password : url;
    result_.password = password != nullptr ? password->value : url_password.value_or("");
    if (result_.password.find('\0') != std::string::npos || result_.password.find('\n') != std::string::npos)
      return Wrong(source, "the password has a character that no password file can hold");
    if (result_.password.empty()) return {};
    if (password != nullptr && Trimmed(result_.password) != result_.password)
      Note(NoteKind::kChanged, *password,
           "it has a blank at its end, which Java keeps, and so it is kept here");
    if (options_.password_file.empty()) {
      Note(NoteKind::kDropped, source,
           "no password stands in a configuration file: put it into a file that only its owner can read, and "
           "name that in mysql.password_file (--password-file FILE does both)");
      return {};
    }
    Note(NoteKind::kChanged, source, fmt::format("it stands in {} now", Printable(options_.password_file)));
    return Set("mysql.password_file", options_.password_file, "", "--password-file");
  }

  // ---- what is left

  void ListUnused() {
    Strings known;
    for (const std::string_view key : kSingleSpelled) known.emplace_back(key);
    for (const Spelled& spelled : kAllSpelled) known.emplace_back(NameOf(spelled));
    for (std::size_t i = 0; i < properties_.size(); ++i) {
      if (used_.count(i) > 0) continue;
      const Property& property = properties_[i];
      Note(NoteKind::kDropped, property, WhyUnused(property, known));
    }
  }

  std::string WhyUnused(const Property& property, const Strings& known) const {
    const std::string& key = property.key;
    if (std::find(known.begin(), known.end(), key) != known.end())
      return "not needed by the modes that are switched on";
    for (const Spelled& spelled : kAllSpelled) {
      if (key == spelled.upstream)
        return fmt::format("the starter does not read it, but {}", spelled.starter);
      if (key == spelled.starter)
        return fmt::format("only the starter reads it; here it is {}", spelled.upstream);
    }
    if (key == "server.port" || key == "server.address")
      return "it is Spring's: say with --listen where leafctl is to listen";
    // U+FEFF in Latin-1.
    if (key.starts_with("\xC3\xAF\xC2\xBB\xC2\xBF"))
      return "the file begins with a byte order mark, which Java takes for a part of this key: it is not "
             "read";
    const auto nearest = NearestName(key, known);
    return fmt::format("Java Leaf does not read it{}",
                       nearest ? fmt::format(" (did you mean {}?)", *nearest) : "");
  }

  void SortResult() {
    std::stable_sort(result_.notes.begin(), result_.notes.end(),
                     [](const ImportNote& a, const ImportNote& b) { return a.line < b.line; });
    const auto place = [](const std::string& name) { return FindKey(name); };
    std::stable_sort(result_.values.begin(), result_.values.end(),
                     [&](const auto& a, const auto& b) { return place(a.first) < place(b.first); });
  }

  const std::vector<Property> properties_;
  const ImportOptions& options_;
  std::map<std::string, std::size_t, std::less<>> last_;  // the property of each key that counts
  std::set<std::size_t> used_;                            // looked at, or listed
  Imported result_;
};

}  // namespace

std::string_view LeafSpellingName(LeafSpelling spelling) {
  switch (spelling) {
    case LeafSpelling::kAuto:
      return "auto";
    case LeafSpelling::kUpstream:
      return "upstream";
    case LeafSpelling::kStarter:
      return "starter";
    case LeafSpelling::kFork:
      return "fork";
  }
  return "";
}

std::string_view ImportNoteKindName(NoteKind kind) {
  switch (kind) {
    case NoteKind::kDropped:
      return "dropped";
    case NoteKind::kChanged:
      return "changed";
    case NoteKind::kAdvice:
      return "advice";
  }
  return "";
}

Result<Imported> ImportLeafProperties(std::string_view bytes, const ImportOptions& options) {
  LEAF_ASSIGN_OR_RETURN(auto properties, ParseJavaProperties(bytes));
  return Importer(std::move(properties), options).Run();
}

std::string FormatNote(const ImportNote& note) {
  const std::string_view kind = note.kind == NoteKind::kDropped ? "not carried over: " : "";
  if (note.line == 0) return Printable(note.text);
  return fmt::format("line {}: {}: {}{}", note.line, Printable(note.key), kind, Printable(note.text));
}

std::string FormatImported(const Imported& imported, std::string_view source) {
  std::string out = fmt::format("# Imported by leafctl from {} (spelling: {}).\n", Printable(source),
                                LeafSpellingName(imported.spelling));
  if (!imported.notes.empty()) out += "#\n";
  for (const ImportNote& note : imported.notes) out += fmt::format("# {}\n", FormatNote(note));
  std::string section;
  for (const auto& [name, value] : imported.values) {
    const std::size_t dot = name.find('.');
    if (const std::string own = name.substr(0, dot); own != section) {
      out += fmt::format("\n[{}]\n", own);
      section = own;
    }
    out += fmt::format("{} = {}\n", name.substr(dot + 1), FormatToml(value));
  }
  return out;
}

}  // namespace leaf::config
