#include "leaf/java/leaf_properties.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "leaf/base/endpoint.h"
#include "leaf/base/text.h"
#include "leaf/java/import_sheet.h"
#include "leaf/java/properties.h"

namespace leaf::java {
namespace {

using Strings = std::vector<std::string>;

constexpr std::uint64_t kWorkerMax = 1023;

bool HasDash(std::string_view text) { return text.find('-') != std::string_view::npos; }

// Goes through what a leaf.properties can hold.
class Importer {
 public:
  explicit Importer(ImportSheet& sheet) : sheet_(sheet) {}

  Result<void> Run() {
    LEAF_RETURN_IF_ERROR(sheet_.ChooseSpelling());
    LEAF_ASSIGN_OR_RETURN(const bool segment, sheet_.Enabled(kSegmentEnable));
    LEAF_ASSIGN_OR_RETURN(const bool snowflake, sheet_.Enabled(kSnowflakeEnable));
    if (sheet_.spelling() == LeafSpelling::kStarter) {
      LEAF_RETURN_IF_ERROR(sheet_.RefusePlaceholders(segment, snowflake));
      sheet_.Advise(
          "Spring lets the environment, -D options and application.properties override this file: compare it "
          "with what the running node uses");
    }
    LEAF_RETURN_IF_ERROR(sheet_.Set("segment.enabled", segment, kSegmentEnable));
    LEAF_RETURN_IF_ERROR(sheet_.Set("snowflake.enabled", snowflake, kSnowflakeEnable));
    if (!segment || !snowflake) {
      sheet_.Advise(
          fmt::format("Java Leaf answers a mode that is switched off with the ID 0 and HTTP 200; leafctl "
                      "answers an error: make sure that no caller asks for {}",
                      !segment && !snowflake ? "either mode"
                      : segment              ? "snowflake mode"
                                             : "segment mode"));
    }
    if (!sheet_.options().listen.empty()) {
      LEAF_RETURN_IF_ERROR(sheet_.Set("server.listen", sheet_.options().listen, "", "--listen"));
    } else {
      sheet_.Advise(
          "Java Leaf listens on every interface, at Spring's server.port (8080 by default), which is not in "
          "this file; leafctl listens on 127.0.0.1:8080 unless server.listen (--listen) says otherwise");
    }
    if (snowflake) LEAF_RETURN_IF_ERROR(ImportSnowflake());
    // The fork reads the port before it looks whether the mode is on.
    if (!snowflake && sheet_.spelling() == LeafSpelling::kFork) LEAF_RETURN_IF_ERROR(CheckPort());
    if (segment) LEAF_RETURN_IF_ERROR(ImportDatabase(sheet_, kSegmentEnable));
    if (segment && snowflake && sheet_.IsSet("zookeeper.connect")) {
      sheet_.Advise(
          "with ZooKeeper configured segment mode is fenced across the cluster (segment.fence = \"auto\"): "
          "no grant is used while ZooKeeper is unreachable; segment.fence = \"node\" needs no ZooKeeper, "
          "like Java Leaf");
    }
    return {};
  }

 private:
  // ---- snowflake

  Result<void> ImportSnowflake() {
    LEAF_ASSIGN_OR_RETURN(const std::string mode, Mode());
    LEAF_RETURN_IF_ERROR(ImportName());
    sheet_.Advise(
        "a build of Java Leaf that passes a twepoch of its own to SnowflakeIDGenImpl has it in its code, not "
        "in this file: set snowflake.epoch_ms to it, or IDs repeat");
    if (mode == "local") return ImportLocal();
    LEAF_ASSIGN_OR_RETURN(const std::string address, Address({}));
    LEAF_RETURN_IF_ERROR(SetAddress(address));
    if (mode == "mysql") {
      LEAF_RETURN_IF_ERROR(sheet_.Set("snowflake.registry", std::string("sql"), kMode));
      sheet_.Advise(
          "the table leaf_workerid_alloc has no column for leaf.name: all nodes that share it are one "
          "cluster to leafctl, and must have one leaf.name");
      return ImportDatabase(sheet_, kMode);
    }
    LEAF_RETURN_IF_ERROR(sheet_.Set("snowflake.registry", std::string("zookeeper"), kMode));
    if (mode == "zk_recycle") {
      LEAF_RETURN_IF_ERROR(sheet_.Set("snowflake.recycle", true, kMode));
      sheet_.Advise(
          "leafctl leases no number whose record under recycle/inuse is less than about an hour old, and "
          "takes a number that it leases out of recycle/: nodes of the fork may run on meanwhile");
    }
    return ImportZookeeper();
  }

  Result<std::string> Mode() {
    const Property* const property = sheet_.Find(kMode);
    if (property == nullptr) return std::string("zk_normal");
    if (sheet_.spelling() != LeafSpelling::kFork) {
      sheet_.Note(NoteKind::kDropped, *property, "only the fork knows it");
      return std::string("zk_normal");
    }
    const std::string& mode = property->value;
    for (const std::string_view known : {"zk_normal", "zk_recycle", "mysql", "local"}) {
      if (mode == known) return mode;
    }
    return Wrong(*property,
                 fmt::format("{} is not one of zk_normal, zk_recycle, mysql, local", Quoted(mode)));
  }

  Result<void> ImportName() {
    const Property* const property = sheet_.Find(kName);
    if (property == nullptr) {
      sheet_.Advise("leaf.name is absent: Java Leaf then uses the word null, and so does this configuration");
      return sheet_.Set("snowflake.cluster", std::string("null"), kName);
    }
    if (property->value.empty()) return Wrong(*property, "it is empty, and no path can be made of it");
    LEAF_RETURN_IF_ERROR(sheet_.Set("snowflake.cluster", sheet_.Exact(*property), kName));
    if (HasDash(property->value)) {
      sheet_.Note(NoteKind::kAdvice, *property,
                  "it has a dash: a new node of Java Leaf fails at its first start and succeeds at its "
                  "second; leafctl is not disturbed");
    }
    return {};
  }

  // "" if there is none.
  Result<std::string> Port() {
    const Property* const property = sheet_.Find(kPort);
    if (property == nullptr) return std::string();
    const bool starter = sheet_.spelling() == LeafSpelling::kStarter;
    // Spring trims, Integer.parseInt does not.
    const std::string port = starter ? sheet_.Tidy(*property) : property->value;
    const auto number = ParseNumber(std::string_view(port).substr(port.starts_with('+') ? 1 : 0), 65535);
    if (!number || *number == 0) {
      const bool blank = Trimmed(port) != port;
      return Wrong(*property, fmt::format("{} is not a port from 1 to 65535", Quoted(port)),
                   blank ? "Java Leaf does not start with it either, because of the blank: remove it"
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
    if (sheet_.options().address.empty()) {
      if (candidates.size() == 1) {
        sheet_.Advise(fmt::format("{} is the only address in {}, so it is this node's", candidates.front(),
                                  kWorkIdMap));
        return candidates.front();
      }
      return Error{
          ErrorCode::kInvalidArgument,
          "this node's IP address is not in the file: Java Leaf takes the first of the machine that is no "
          "loopback",
          "give the one that it has under /snowflake/<leaf.name>/forever (or in leaf_workerid_alloc, or in "
          "the map) with --address IP, so that the node keeps its worker number"};
    }
    const bool bare_v6 = sheet_.options().address.find(':') != sheet_.options().address.rfind(':') &&
                         sheet_.options().address.front() != '[';
    const std::string text =
        bare_v6 ? fmt::format("[{}]", sheet_.options().address) : sheet_.options().address;
    const auto parsed = ParseEndpoint(text, 1);
    if (!parsed.ok())
      return Error{ErrorCode::kInvalidArgument, fmt::format("bad --address: {}", parsed.error().message), ""};
    if (HasDash(parsed->host)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("bad --address: {} has a dash, and one under forever keeps every node of Java "
                               "Leaf from starting",
                               Quoted(parsed->host)),
                   "give an IP address"};
    }
    // Whether it has a port: with another default it would be another one.
    const auto again = ParseEndpoint(text, 2);
    if (again.ok() && again->port == parsed->port) {
      const std::string own = std::to_string(parsed->port);
      if (!port.empty() && own != port) {
        sheet_.Advise(
            fmt::format("--address has port {}, not {}: this is not the node that the file belongs to, and "
                        "it has another worker number",
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
    LEAF_RETURN_IF_ERROR(sheet_.Set("snowflake.address", address, kPort, "--address"));
    LEAF_ASSIGN_OR_RETURN(const Endpoint own, ParseEndpoint(address, 1));
    // The port is a label; peers ask for the clock where the node listens.
    for (const std::string& listen : sheet_.options().listen) {
      const auto endpoint = ParseEndpoint(listen, 1);
      if (!endpoint.ok() || endpoint->host.starts_with("127.") || endpoint->host == "localhost" ||
          endpoint->host == "::1")
        continue;
      const bool wildcard = endpoint->host == "0.0.0.0" || endpoint->host == "::";
      return sheet_.Set("snowflake.advertise",
                        "http://" + EndpointText({wildcard ? own.host : endpoint->host, endpoint->port}), "",
                        "--listen");
    }
    sheet_.Advise(
        fmt::format("the port of {} only identifies the node: set snowflake.advertise to the URL where its "
                    "peers can reach it, or they cannot compare their clocks with its",
                    address));
    return {};
  }

  Result<void> ImportZookeeper() {
    const Property* const property = sheet_.Find(kZookeeper);
    if (property == nullptr)
      return Missing(sheet_.NameOf(kZookeeper), "snowflake mode takes its worker number from ZooKeeper",
                     "set leaf.snowflake.enable=false if it is not used");
    const std::string& text = property->value;
    const std::size_t slash = std::min(text.find('/'), text.size());
    std::string connect;
    std::string_view hosts = std::string_view(text).substr(0, slash);
    while (true) {
      const std::size_t comma = std::min(hosts.find(','), hosts.size());
      const std::string host(hosts.substr(0, comma));
      if (std::any_of(host.begin(), host.end(), [](unsigned char c) { return c <= ' '; })) {
        return Wrong(
            *property, fmt::format("{} has a blank in {}", Quoted(text), Quoted(host)),
            "Java Leaf reads it as part of the host or the port, and does not reach ZooKeeper: remove it");
      }
      const auto endpoint = ParseEndpoint(host, 2181);
      if (!endpoint.ok()) return Wrong(*property, endpoint.error().message);
      connect += (connect.empty() ? "" : ",") + EndpointText(*endpoint);
      if (comma == hosts.size()) break;
      hosts.remove_prefix(comma + 1);
    }
    const std::string chroot = sheet_.Exact(*property).substr(slash);
    if (chroot.size() > 1) {
      if (chroot.ends_with('/') || chroot.find("//") != std::string::npos)
        return Wrong(*property, fmt::format("{} is not a path", Quoted(chroot)));
      connect += chroot;
    }
    return sheet_.Set("zookeeper.connect", connect, property->key);
  }

  Result<void> ImportLocal() {
    LEAF_RETURN_IF_ERROR(sheet_.Set("snowflake.registry", std::string("static"), kMode));
    const Property* const property = sheet_.Find(kWorkIdMap);
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
    if (!json.is_object()) return Wrong(*property, "it is not a JSON object {\"ip:port\": number, …}");
    if (!twice.empty()) return Wrong(*property, fmt::format("{} is there twice", Quoted(twice)));
    std::map<std::string, std::int64_t> workers;
    std::map<std::int64_t, std::string> addresses;
    Strings candidates;
    for (const auto& [name, number] : json.items()) {
      if (!number.is_number_integer() || number.get<std::int64_t>() < 0)
        return Wrong(*property, fmt::format("the value of {} is not a worker number", Quoted(name)));
      const auto endpoint = ParseEndpoint(name, 1);
      if (!endpoint.ok() || EndpointText(*endpoint) != name)
        return Wrong(*property, fmt::format("{} is not an ip:port", Quoted(name)));
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
    LEAF_RETURN_IF_ERROR(sheet_.Set("snowflake.workers", workers, kWorkIdMap));
    sheet_.Advise(
        "once a node of the fork has written its <tmpdir>/<leaf.name>/leafconf/<port>/workerID.json, it uses "
        "that file instead of the map: compare the two before the node is replaced");
    return SetAddress(address);
  }

  ImportSheet& sheet_;
};

}  // namespace

std::string_view LeafSpellingName(LeafSpelling spelling) {
  constexpr std::array<std::string_view, 4> kNames{"auto", "upstream", "starter", "fork"};
  return kNames[static_cast<std::size_t>(spelling)];
}

std::string_view ImportNoteKindName(ImportNote::Kind kind) {
  constexpr std::array<std::string_view, 3> kNames{"dropped", "changed", "advice"};
  return kNames[static_cast<std::size_t>(kind)];
}

Result<Imported> ImportLeafProperties(std::string_view bytes, const ImportOptions& options) {
  LEAF_ASSIGN_OR_RETURN(auto properties, ParseJavaProperties(bytes));
  ImportSheet sheet(std::move(properties), options);
  LEAF_RETURN_IF_ERROR(Importer(sheet).Run());
  return sheet.Finish();
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
    out += fmt::format("{} = {}\n", name.substr(dot + 1), config::FormatToml(value));
  }
  return out;
}

}  // namespace leaf::java
