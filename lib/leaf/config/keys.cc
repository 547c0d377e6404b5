#include "leaf/config/keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <utility>

#include "leaf/base/duration.h"
#include "leaf/base/endpoint.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/config/key_kinds.h"
#include "leaf/config/worker_number.h"
#include "leaf/core/code_records.h"

namespace leaf::config {
namespace {

using kinds::Addresses;
using kinds::Bad;
using kinds::Bool;
using kinds::CheckedString;
using kinds::Choice;
using kinds::Duration;
using kinds::DurationOrAuto;
using kinds::Endpoints;
using kinds::Integer;
using kinds::List;
using kinds::MakeKey;
using kinds::Parsed;
using kinds::String;
using kinds::Strings;
using IntegerMap = std::map<std::string, std::int64_t>;

// HOST:PORT, [v6]:PORT, with a host as ParseEndpoint takes it. Port 0 asks the system for a free one.
Result<Endpoint> ParseHostPort(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string host = text.substr(0, colon == std::string::npos ? 0 : colon);
  // "1.2.3.4:80:90" has no host before its last colon.
  if (!host.empty() && (host.ends_with(']') || host.find(':') == std::string::npos)) {
    auto endpoint = ParseEndpoint(host, 1);
    const auto port = ParseWhole<std::uint16_t>(std::string_view(text).substr(colon + 1));
    if (endpoint.ok() && port) return Endpoint{std::move(endpoint->host), *port};
  }
  return Bad(fmt::format("{} is not HOST:PORT", Quoted(text)));
}

// The same, and ":PORT" is every IPv4 address of this machine.
Result<Endpoint> ParseListen(const std::string& text) {
  return ParseHostPort(text.starts_with(':') ? "0.0.0.0" + text : text);
}

// The same, or unix:/PATH.
Result<ListenAddress> ParseListenAddress(const std::string& text) {
  constexpr std::string_view kUnix = "unix:";
  if (text.starts_with(kUnix) && text.substr(kUnix.size()).starts_with('/'))
    return ListenAddress{.tcp = {}, .unix_path = text.substr(kUnix.size())};
  if (auto endpoint = ParseListen(text); endpoint.ok())
    return ListenAddress{.tcp = *std::move(endpoint), .unix_path = ""};
  return Bad(fmt::format("{} is neither HOST:PORT nor unix:/PATH", Quoted(text)));
}

std::string FormatListenAddress(const ListenAddress& address) {
  return address.unix_path.empty() ? EndpointText(address.tcp) : "unix:" + address.unix_path;
}

// HOST:PORT, where the port may be left out.
Result<Endpoint> ParseMysqlEndpoint(const std::string& text) { return ParseEndpoint(text, kMysqlPort); }

// "", http://HOST:PORT or https://HOST:PORT.
Result<void> CheckAdvertise(const std::string& text) {
  if (text.empty()) return {};
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (text.starts_with(scheme) && ParseHostPort(text.substr(scheme.size())).ok()) return {};
  }
  return Bad(fmt::format("{} is neither http://HOST:PORT nor https://HOST:PORT", Quoted(text)));
}

Result<void> CheckServer(const std::string& text) {
  if (text.starts_with("unix:/") || text.starts_with("redis+unix:/")) return {};
  for (const std::string_view scheme : {"http://", "https://", "redis://", "rediss://"}) {
    if (!text.starts_with(scheme)) continue;
    std::string rest = text.substr(scheme.size());
    if (rest.ends_with('/')) rest.pop_back();
    if (ParseHostPort(rest).ok()) return {};
  }
  return Bad(
      fmt::format("{} is none of http://HOST:PORT, https://HOST:PORT, unix:/PATH, redis://HOST:PORT and "
                  "rediss://HOST:PORT",
                  Quoted(text)));
}

// "LOW-HIGH", both included.
Result<WorkerRange> ParseWorkerRange(const std::string& text) {
  const std::size_t dash = std::min(text.find('-'), text.size());
  const auto low = ParseWhole<std::int64_t>(std::string_view(text).substr(0, dash));
  const auto high = ParseWhole<std::int64_t>(std::string_view(text).substr(std::min(dash + 1, text.size())));
  if (low && high && *low >= 0 && *low <= *high)
    return WorkerRange{static_cast<std::uint64_t>(*low), static_cast<std::uint64_t>(*high) + 1};
  return Bad(fmt::format("{} is not LOW-HIGH such as 0-1023", Quoted(text)));
}

std::string FormatWorkerRange(const WorkerRange& range) {
  return fmt::format("{}-{}", range.begin, range.end - 1);
}

// Stands in files and paths of registries.
Result<void> CheckCluster(const std::string& text) {
  return text.empty() ? Result<void>{} : ValidateNewTag(text);
}

Result<void> CheckAddress(const std::string& text) {
  if (text.empty()) return {};
  LEAF_RETURN_IF_ERROR(ParseHostPort(text));
  return {};
}

// NAME, *.NAME or *. Letters outside of ASCII come as punycode in a Host field.
Result<void> CheckHostName(const std::string& text) {
  if (text == "*") return {};
  const std::string_view name = std::string_view(text).substr(text.starts_with("*.") ? 2 : 0);
  const bool good = !name.empty() && !name.starts_with('.') && !name.ends_with('.') &&
                    std::all_of(name.begin(), name.end(), [](unsigned char c) {
                      return (c < 0x80 && std::isalnum(c) != 0) || c == '-' || c == '_' || c == '.';
                    });
  if (good) return {};
  return Bad(fmt::format("{} is neither a host's name, without a port, nor *.NAME or *", Quoted(text)));
}

Result<void> CheckAnonymous(const std::string& role) {
  if (role == "ids" || role == "read") return {};
  if (role == "admin") return Bad("a caller without a token is never admin");
  return Bad(fmt::format("{} is neither ids nor read", Quoted(role)));
}

Result<void> CheckCodeLength(std::int64_t length) {
  // What each alphabet needs at least is checked once all is known (Loader).
  if (length >= 1 && length <= core::kCodeLengthMax) return {};
  return Bad(fmt::format("{} is not in 1..{}", length, core::kCodeLengthMax));
}

Result<void> CheckCodeGroup(std::int64_t group) {
  if (group >= 0 && group <= core::kCodeLengthMax) return {};
  return Bad(fmt::format("{} is not in 0..{}", group, core::kCodeLengthMax));
}

Strings CodeAlphabets() {
  Strings names;
  for (const core::CodeAlphabet& alphabet : core::kCodeAlphabets) names.emplace_back(alphabet.name);
  return names;
}

Result<void> TakeOwnShape(Config::Codes::Own& own, const std::string& key, const std::string& text) {
  const auto number = [&](auto check) -> Result<std::int64_t> {
    const auto value = ParseWhole<std::int64_t>(text);
    if (!value) return Bad(fmt::format("{} is not a whole number", Quoted(text)));
    LEAF_RETURN_IF_ERROR(check(*value));
    return *value;
  };
  if (key == "length") {
    LEAF_ASSIGN_OR_RETURN(own.length, number(CheckCodeLength));
  } else if (key == "group") {
    LEAF_ASSIGN_OR_RETURN(own.group, number(CheckCodeGroup));
  } else if (key == "check") {
    if (text != "true" && text != "false")
      return Bad(fmt::format("{} is neither true nor false", Quoted(text)));
    own.check = text == "true";
  } else if (key == "alphabet") {
    const Strings names = CodeAlphabets();
    if (std::find(names.begin(), names.end(), text) == names.end())
      return Bad(fmt::format("{} is not one of {}", Quoted(text), fmt::join(names, ", ")));
    own.alphabet = text;
  } else {
    return Bad(fmt::format("unknown key {}, none of length, alphabet, check, group", Quoted(key)));
  }
  return {};
}

Result<void> StoreCodeTags(Config& config, const Value& value) {
  std::map<std::string, Config::Codes::Own> tags;
  for (const auto& [tag, keys] : std::get<Tables>(value)) {
    LEAF_RETURN_IF_ERROR(ValidateTag(tag));
    Config::Codes::Own& own = tags[tag];
    for (const auto& [key, text] : keys) {
      if (auto taken = TakeOwnShape(own, key, text); !taken.ok())
        return Bad(fmt::format("tag {}: {}: {}", Quoted(tag), key, taken.error().message));
    }
  }
  config.codes.tags = std::move(tags);
  return {};
}

Value LoadCodeTags(const Config& config) {
  Tables tables;
  for (const auto& [tag, own] : config.codes.tags) {
    auto& keys = tables[tag];
    if (own.length) keys["length"] = std::to_string(*own.length);
    if (own.alphabet) keys["alphabet"] = *own.alphabet;
    if (own.check) keys["check"] = *own.check ? "true" : "false";
    if (own.group) keys["group"] = std::to_string(*own.group);
  }
  return tables;
}

// What "ordinal" stands for is found out when all else is known (Loader).
Result<void> StoreWorkerId(Config& config, const Value& value) {
  Config::Snowflake& snowflake = config.snowflake;
  if (const auto* const word = std::get_if<std::string>(&value)) {
    if (*word != kOrdinal)
      return Bad(fmt::format("{} is neither a whole number nor \"ordinal\"", Quoted(*word)));
    snowflake.worker_ordinal = true;
    snowflake.worker_id = -1;
    return {};
  }
  constexpr std::int64_t kMax = (std::int64_t{1} << 31) - 1;
  const auto number = std::get<std::int64_t>(value);
  if (number < -1 || number > kMax) return Bad(fmt::format("{} is not in -1..{}", number, kMax));
  snowflake.worker_ordinal = false;
  snowflake.worker_id = number;
  return {};
}

std::vector<Key> MakeKeys() {
  using C = Config;
  constexpr std::int64_t kMany = std::numeric_limits<std::int64_t>::max();
  using std::chrono::milliseconds;
  std::vector<Key> keys;
  const auto add = [&](Key key) { keys.push_back(std::move(key)); };

  add(String(
      "state_dir", "", "directory of this node's marks and lock; one for each daemon",
      [](C & c) -> auto& { return c.state_dir; }));

  add(Endpoints(
      "server.listen", "127.0.0.1:8080",
      "addresses to serve HTTP on; \":PORT\" is every IPv4 address of this machine", ParseListen,
      [](C & c) -> auto& { return c.server.listen; }));
  add(String(
      "server.socket", "", "Unix socket to serve HTTP on; \"\" for none",
      [](C & c) -> auto& { return c.server.socket; }));
  add(String(
      "server.socket_public", "",
      "Unix socket for a proxy, whose callers have no more rights than those over TCP; \"\" for none",
      [](C & c) -> auto& { return c.server.socket_public; }));
  add(Endpoints(
      "server.admin_listen", "",
      "addresses for operators: with them, metrics, dashboard, status and changes are served there and on "
      "server.socket only",
      ParseListen, [](C & c) -> auto& { return c.server.admin_listen; }));
  add(Addresses<ListenAddress>(
      "server.redis_listen", "",
      "addresses to speak Redis' protocol on: HOST:PORT, :PORT, or unix:/PATH; [] for none",
      ParseListenAddress, FormatListenAddress, [](C & c) -> auto& { return c.server.redis_listen; }));
  add(String(
      "server.tls_cert", "",
      "file with the certificate, in PEM: with it every TCP listener speaks TLS, and nothing else",
      [](C & c) -> auto& { return c.server.tls_cert; }));
  add(String(
      "server.tls_key", "", "file with its private key, in PEM, readable by its owner only",
      [](C & c) -> auto& { return c.server.tls_key; }));
  add(String(
      "server.tls_client_ca", "",
      "file with authorities, in PEM: a client over TLS must show a certificate of one of them",
      [](C & c) -> auto& { return c.server.tls_client_ca; }));
  add(List(
      "server.allowed_hosts", "",
      "names in the Host field; listeners on loopback always know localhost, this machine's names and IP "
      "addresses",
      CheckHostName, [](C & c) -> auto& { return c.server.allowed_hosts; }));
  add(Integer(
      "server.threads", "0", 0, 1024, "threads that serve requests; 0 = one per core",
      [](C & c) -> auto& { return c.server.threads; }));
  add(Duration(
      "server.drain_timeout", "10s", milliseconds{0}, "longest wait for requests in flight on SIGTERM",
      [](C & c) -> auto& { return c.server.drain_timeout; }));
  add(Duration(
      "server.request_timeout", "1s", milliseconds{1}, "longest wait of a request whose tag is drained",
      [](C & c) -> auto& { return c.server.request_timeout; }));
  add(Duration(
      "server.leaf_wait", "10ms", milliseconds{0},
      "the same on Leaf's own routes while the tag's last grant failed",
      [](C & c) -> auto& { return c.server.leaf_wait; }));
  add(Integer(
      "server.max_count", "100000", 1, 100'000'000, "most IDs of one request",
      [](C & c) -> auto& { return c.server.max_count; }));
  add(Integer(
      "server.max_connections", "20000", 1, 10'000'000, "most connections at once",
      [](C & c) -> auto& { return c.server.max_connections; }));
  add(Integer(
      "server.max_connections_per_address", "0", 0, 10'000'000,
      "most connections of one address; 0 = no limit",
      [](C & c) -> auto& { return c.server.max_connections_per_address; }));
  add(Duration(
      "server.header_timeout", "10s", milliseconds{1}, "longest time a client may take to send a request",
      [](C & c) -> auto& { return c.server.header_timeout; }));
  add(Duration(
      "server.idle_timeout", "10m", milliseconds{1}, "longest time a connection may be idle",
      [](C & c) -> auto& { return c.server.idle_timeout; }));
  add(Integer(
      "server.max_requests_per_second", "0", 0, kMany, "requests a second over all tags; 0 = no limit",
      [](C & c) -> auto& { return c.server.max_requests_per_second; }));
  add(Integer(
      "server.max_tag_requests_per_second", "0", 0, kMany, "requests a second of one tag; 0 = no limit",
      [](C & c) -> auto& { return c.server.max_tag_requests_per_second; }));

  add(List(
      "client.servers", "", "servers that next and status ask, in order", CheckServer,
      [](C & c) -> auto& { return c.client.servers; }));
  add(String(
      "client.ca", "",
      "file with the authorities, in PEM, that certificates of servers have to be of; default the system's",
      [](C & c) -> auto& { return c.client.ca; }));
  add(String(
      "client.cert", "", "file with the certificate, in PEM, to show servers that ask for one",
      [](C & c) -> auto& { return c.client.cert; }));
  add(String(
      "client.key", "", "file with its private key, in PEM, readable by its owner only",
      [](C & c) -> auto& { return c.client.key; }));
  add(String(
      "client.token_file", "", "file with the token that is sent to servers, readable by its owner only",
      [](C & c) -> auto& { return c.client.token_file; }));

  add(String(
      "auth.tokens_file", "",
      "file of the tokens that callers may have (leafctl token add); \"\": no token is asked for",
      [](C & c) -> auto& { return c.auth.tokens_file; }));
  add(List(
      "auth.anonymous", "ids,read",
      "what a caller without a token may do: ids, read; the default with auth.tokens_file is []",
      CheckAnonymous, [](C & c) -> auto& { return c.auth.anonymous; }));

  add(String(
      "codes.key_file", "",
      "file with the key of codes (leafctl code keygen), readable by its owner only; default "
      "$CREDENTIALS_DIRECTORY/codes-key; \"\": there are no codes",
      [](C & c) -> auto& { return c.codes.key_file; }));
  add(MakeKey<std::int64_t>(
      "codes.length", Kind::kInteger, "12", "characters of a code, without check character and hyphens",
      [](C & c) -> auto& { return c.codes.length; }, CheckCodeLength));
  add(Choice(
      "codes.alphabet", "decimal", CodeAlphabets(), "characters of codes; base32 is Crockford's",
      [](C & c) -> auto& { return c.codes.alphabet; }));
  add(Bool(
      "codes.check", "true", "a check character at the end: Luhn's for decimal, Crockford's for base32",
      [](C & c) -> auto& { return c.codes.check; }));
  add(MakeKey<std::int64_t>(
      "codes.group", Kind::kInteger, "4", "characters between two hyphens; 0 = no hyphens",
      [](C & c) -> auto& { return c.codes.group; }, CheckCodeGroup));
  add(Key{.name = "codes.tags",
          .kind = Kind::kTables,
          .fallback = "",
          .meaning = "the last four for single tags: [codes.tags.\"TAG\"]",
          .store = StoreCodeTags,
          .load = LoadCodeTags});

  add(Bool(
      "segment.enabled", "true", "serve segment mode", [](C & c) -> auto& { return c.segment.enabled; }));
  add(Choice(
      "segment.store", "sqlite", {"sqlite", "mysql"}, "where the table leaf_alloc is",
      [](C & c) -> auto& { return c.segment.store; }));
  add(Duration(
      "segment.refresh_interval", "60s", milliseconds{100}, "how often the table of tags is read",
      [](C & c) -> auto& { return c.segment.refresh_interval; }));
  add(Integer(
      "segment.max_tags", "100000", 1, 100'000'000, "most tags held at once",
      [](C & c) -> auto& { return c.segment.max_tags; }));
  add(Choice(
      "segment.fence", "auto", {"auto", "cluster", "node"},
      "what detects that the database lost grants: all nodes together, or each node for its own",
      [](C & c) -> auto& { return c.segment.fence; }));
  add(Bool(
      "segment.witness_fallback", "false", "continue with the node fence while ZooKeeper is unreachable",
      [](C & c) -> auto& { return c.segment.witness_fallback; }));
  add(DurationOrAuto(
      "segment.claim_watch",
      "how long a node that is new to its cluster waits before its first claim from the witness",
      [](C & c) -> auto& { return c.segment.claim_watch; }));
  add(Choice(
      "segment.step_policy", "leaf", {"leaf", "fixed"}, "Leaf's dynamic step, or the table's step as it is",
      [](C & c) -> auto& { return c.segment.step_policy; }));
  add(Integer(
      "segment.step_max", "1000000", 1, kStepMax,
      "caps doubling and enlarged grants, not a larger step in the table",
      [](C & c) -> auto& { return c.segment.step_max; }));
  add(Duration(
      "segment.reserve_time", "0s", milliseconds{0}, "extra reserve to hold, in time at the observed rate",
      [](C & c) -> auto& { return c.segment.reserve_time; }));

  add(String(
      "sqlite.path", "", "the database file", [](C & c) -> auto& { return c.sqlite.path; }));

  add(Endpoints(
      "mysql.endpoints", "127.0.0.1:3306",
      "HOST:PORT of each server of one replicated cluster; the first that takes writes is used, and kept",
      ParseMysqlEndpoint, [](C & c) -> auto& { return c.mysql.endpoints; }));
  add(String(
      "mysql.database", "leaf", "the database (schema)", [](C & c) -> auto& { return c.mysql.database; }));
  add(String(
      "mysql.user", "leaf", "the user", [](C & c) -> auto& { return c.mysql.user; }));
  add(String(
      "mysql.password_file", "",
      "file with the password, readable by its owner only; default $CREDENTIALS_DIRECTORY/mysql-password",
      [](C & c) -> auto& { return c.mysql.password_file; }));
  add(Duration(
      "mysql.connect_timeout", "2s", milliseconds{1}, "longest time to connect (whole seconds, rounded up)",
      [](C & c) -> auto& { return c.mysql.connect_timeout; }));
  add(Duration(
      "mysql.query_timeout", "2s", milliseconds{1}, "longest time of a statement (whole seconds, rounded up)",
      [](C & c) -> auto& { return c.mysql.query_timeout; }));
  add(Integer(
      "mysql.max_connections", "8", 2, 1000, "most connections of one process at once; two are kept at rest",
      [](C & c) -> auto& { return c.mysql.max_connections; }));
  add(Choice(
      "mysql.tls", "preferred", {"disabled", "preferred", "required", "verify"},
      "encryption of the connection", [](C & c) -> auto& { return c.mysql.tls; }));
  add(String(
      "mysql.tls_ca", "", "file with the certificate authorities for tls = \"verify\"; default the system's",
      [](C & c) -> auto& { return c.mysql.tls_ca; }));

  add(Bool(
      "snowflake.enabled", "true", "serve snowflake mode",
      [](C & c) -> auto& { return c.snowflake.enabled; }));
  add(CheckedString(
      "snowflake.cluster", "",
      "the name all nodes share, leaf.name of Java Leaf; default a private one, local-<uuid>", CheckCluster,
      [](C & c) -> auto& { return c.snowflake.cluster; }));
  add(Choice(
      "snowflake.registry", "static", {"static", "zookeeper", "sql"}, "where worker numbers come from",
      [](C & c) -> auto& { return c.snowflake.registry; }));
  add(Bool(
      "snowflake.recycle", "false", "a lease instead of a number fixed to the address",
      [](C & c) -> auto& { return c.snowflake.recycle; }));
  add(CheckedString(
      "snowflake.address", "",
      "ip:port that identifies this node; default the first listen address that others can reach",
      CheckAddress, [](C & c) -> auto& { return c.snowflake.address; }));
  add(CheckedString(
      "snowflake.advertise", "",
      "URL where peers reach this node; default http://<address>, with server.tls_cert https://<address>",
      CheckAdvertise, [](C & c) -> auto& { return c.snowflake.advertise; }));
  add(Key{.name = "snowflake.worker_id",
          .kind = Kind::kIntegerOrWord,
          .fallback = "-1",
          .meaning =
              "static worker number; -1 for none (drawn at random in a private cluster); \"ordinal\" for the "
              "number at the end of the host name, as leafctl-3 has one",
          .store = StoreWorkerId,
          .load = [](const C& c) -> Value {
            if (c.snowflake.worker_ordinal) return std::string(kOrdinal);
            return c.snowflake.worker_id;
          }});
  add(MakeKey<IntegerMap>(
      "snowflake.workers", Kind::kIntegerMap, "", "static worker numbers by ip:port",
      [](C & c) -> auto& { return c.snowflake.workers; },
      [](const IntegerMap& workers) -> Result<void> {
        for (const auto& [address, number] : workers) LEAF_RETURN_IF_ERROR(ParseHostPort(address));
        return {};
      }));
  add(Parsed(
      "snowflake.worker_range", Kind::kString, "0-1023", "worker numbers that may be claimed",
      ParseWorkerRange, FormatWorkerRange, [](C & c) -> auto& { return c.snowflake.worker_range; }));
  add(Key{.name = "snowflake.epoch_ms",
          .kind = Kind::kInteger,
          .fallback = std::to_string(kLeafEpochMillis),
          .meaning = "time zero of the IDs, Unix milliseconds",
          .store = [](C& c, const Value& value) -> Result<void> {
            LEAF_ASSIGN_OR_RETURN(c.snowflake.layout,
                                  c.snowflake.layout.WithEpoch(std::get<std::int64_t>(value)));
            return {};
          },
          .load = [](const C& c) -> Value { return c.snowflake.layout.epoch_ms(); }});
  add(Key{.name = "snowflake.layout",
          .kind = Kind::kString,
          .fallback = "41-10-12",
          .meaning = "bits of time, worker and sequence",
          .store = [](C& c, const Value& value) -> Result<void> {
            const std::int64_t epoch_ms = c.snowflake.layout.epoch_ms();
            LEAF_ASSIGN_OR_RETURN(c.snowflake.layout,
                                  core::IdLayout::Parse(std::get<std::string>(value), epoch_ms));
            return {};
          },
          .load = [](const C& c) -> Value { return c.snowflake.layout.Bits(); }});
  add(Duration(
      "snowflake.window", "3s", milliseconds{100}, "how far an ID's time may be ahead of the wall clock",
      [](C & c) -> auto& { return c.snowflake.window; }));
  add(Duration(
      "snowflake.start_wait", "10s", milliseconds{0}, "longest wait at start for a clock that is behind",
      [](C & c) -> auto& { return c.snowflake.start_wait; }));
  add(Duration(
      "snowflake.clock_jump_max", "10s", milliseconds{1}, "a forward jump beyond this stops issuing",
      [](C & c) -> auto& { return c.snowflake.clock_jump_max; }));
  add(Duration(
      "snowflake.offline_start_max", "24h", milliseconds{0},
      "how long after its last contact a node may start without its registry",
      [](C & c) -> auto& { return c.snowflake.offline_start_max; }));
  add(DurationOrAuto(
      "snowflake.claim_watch",
      "how long a worker number that is new to this node is watched before its first ID",
      [](C & c) -> auto& { return c.snowflake.claim_watch; }));
  add(Duration(
      "snowflake.lease_time", "30s", milliseconds{1000}, "length of a recycled number's lease",
      [](C & c) -> auto& { return c.snowflake.lease_time; }));
  add(Duration(
      "snowflake.peer_clock_threshold", "5s", milliseconds{1}, "how far peers' clocks may differ",
      [](C & c) -> auto& { return c.snowflake.peer_clock_threshold; }));

  add(String(
      "zookeeper.connect", "127.0.0.1:2181", "h1:p,h2:p[/chroot]",
      [](C & c) -> auto& { return c.zookeeper.connect; }));
  add(Duration(
      "zookeeper.session_timeout", "6s", milliseconds{100}, "session time-out",
      [](C & c) -> auto& { return c.zookeeper.session_timeout; }));
  add(String(
      "zookeeper.auth_file", "", "file with user:password for digest authentication",
      [](C & c) -> auto& { return c.zookeeper.auth_file; }));

  add(Integer(
      "metrics.top_tags", "100", 0, 100'000,
      "tags with metrics of their own: those in trouble or paused, then the fastest; all are in the totals",
      [](C & c) -> auto& { return c.metrics.top_tags; }));

  add(Choice(
      "log.level", "info", {"debug", "info", "warning", "error"}, "least level that is logged",
      [](C & c) -> auto& { return c.log.level; }));
  add(Choice(
      "log.format", "text", {"text", "json"}, "form of a log line",
      [](C & c) -> auto& { return c.log.format; }));
  return keys;
}

}  // namespace

std::string Key::variable() const {
  std::string text = "LEAFCTL_" + name;
  for (char& c : text) c = c == '.' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return text;
}

std::span<const Key> Keys() {
  static const std::vector<Key> keys = MakeKeys();
  return keys;
}

const Key* FindKey(std::string_view name) {
  for (const Key& key : Keys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string NearestKeyHint(std::string_view name) {
  Strings names;
  for (const Key& key : Keys()) {
    names.push_back(key.name);
    if (const std::size_t dot = key.name.find('.'); dot != std::string::npos) {
      if (std::string section = key.name.substr(0, dot);
          std::find(names.begin(), names.end(), section) == names.end()) {
        names.push_back(std::move(section));
      }
    }
  }
  const auto nearest = NearestName(name, names);
  return nearest ? fmt::format("did you mean {}?", *nearest) : "";
}

}  // namespace leaf::config
