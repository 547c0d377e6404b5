#include "leaf/config/loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "leaf/base/foreign_text.h"
#include "leaf/base/text.h"
#include "leaf/config/keys.h"
#include "leaf/config/worker_number.h"
#include "leaf/core/code_records.h"

namespace leaf::config {
namespace {

constexpr std::string_view kDefaultOrigin = "default";
constexpr std::string_view kPrefix = "LEAFCTL_";
constexpr std::string_view kListenDefault = "LEAFCTL_LISTEN_DEFAULT";

// Whether the user left the value unset: it is the default, or the default of the container image.
bool IsDefaultOrigin(std::string_view origin) {
  return origin == kDefaultOrigin || (origin.starts_with('$') && origin.substr(1) == kListenDefault);
}

class Loader {
 public:
  explicit Loader(const LoadInput& input) : input_(input) {}

  Result<Resolved> Run() {
    ApplyDefaults();
    ApplyListenDefault();
    ApplyFile();
    ApplyEnvironment();
    ApplyFlags();
    DerivePaths();
    CheckWhole();
    if (!problems_.empty()) return Failure();
    return std::move(resolved_);
  }

 private:
  void Problem(std::string text, bool in_flag = false) {
    problems_.push_back(std::move(text));
    only_flags_ = only_flags_ && in_flag;
  }

  std::string Variable(const std::string& name) const {
    const auto found = input_.environment.find(name);
    return found == input_.environment.end() ? "" : found->second;
  }

  // Stores `value`; returns what is wrong with it, or "".
  std::string Store(const Key& key, const Result<Value>& value, std::string origin) {
    if (!value.ok()) return fmt::format("{}: {}", key.name, value.error().message);
    if (const auto stored = key.store(resolved_.config, *value); !stored.ok()) {
      return fmt::format("{}: {}", key.name, stored.error().message);
    }
    resolved_.origins[key.name] = std::move(origin);
    return "";
  }

  void ApplyDefaults() {
    for (const Key& key : Keys()) {
      const std::string problem = Store(key, ParseText(key.kind, key.fallback), std::string(kDefaultOrigin));
      LEAF_CHECK(problem.empty());
    }
  }

  // A container is reached through its own addresses only. Its image cannot say so in a file, which users
  // replace with theirs, nor as the value itself, which would go before theirs.
  void ApplyListenDefault() {
    const std::string name(kListenDefault);
    const std::string text = Variable(name);
    if (text.empty()) return;
    const Key& key = *FindKey("server.listen");
    if (const std::string wrong = Store(key, ParseText(key.kind, text), "$" + name); !wrong.empty())
      Problem(fmt::format("${}: {}", name, wrong));
  }

  // The file to read, "" for none.
  std::string ChooseFile() const {
    if (input_.file) return *input_.file;
    if (std::string named = Variable("LEAFCTL_CONFIG"); !named.empty()) return named;
    std::string user_dir = Variable("XDG_CONFIG_HOME");
    if (user_dir.empty() && !Variable("HOME").empty()) user_dir = Variable("HOME") + "/.config";
    for (const std::string& candidate : {user_dir.empty() ? "" : user_dir + "/leafctl/leafctl.toml",
                                         std::string("/etc/leafctl/leafctl.toml")}) {
      if (candidate.empty()) continue;
      // One that exists but cannot be read is chosen too, and reported when it is opened.
      std::ifstream probe(candidate);
      if (probe || errno != ENOENT) {
        if (!probe && errno == ENOTDIR) continue;
        return candidate;
      }
    }
    return "";
  }

  void ApplyFile() {
    const std::string path = input_.file || input_.search_file ? ChooseFile() : "";
    if (path.empty()) return;
    errno = 0;
    std::ifstream stream(path);
    if (!stream.is_open() || std::filesystem::is_directory(path)) {
      if (stream.is_open()) errno = EISDIR;
      Problem(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
      return;
    }
    const std::string content{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    resolved_.file = path;
    if (HasDeepTomlKey(content)) return Problem(fmt::format("{}: a key has more than 1000 parts", path));
    try {
      ApplyTable(toml::parse(content, path), "", path);
    } catch (const toml::parse_error& error) {
      Problem(fmt::format("{}:{}: {}", path, error.source().begin.line, Printable(error.description())));
    }
  }

  void ApplyTable(const toml::table& table, const std::string& section, const std::string& path) {
    for (const auto& [name, node] : table) {
      const std::string full =
          section.empty() ? std::string(name.str()) : fmt::format("{}.{}", section, name.str());
      const std::string place = fmt::format("{}:{}", path, name.source().begin.line);
      if (const Key* const key = FindKey(full)) {
        if (const std::string wrong = Store(*key, FromToml(*key, node), place); !wrong.empty()) {
          Problem(fmt::format("{}: {}", place, wrong));
        }
      } else if (node.is_table() && IsSection(full)) {
        ApplyTable(*node.as_table(), full, path);
      } else {
        const std::string hint = NearestKeyHint(full);
        Problem(fmt::format("{}: unknown {} {}{}{}", place, node.is_table() ? "table" : "key", Quoted(full),
                            hint.empty() ? "" : ", ", hint));
      }
    }
  }

  static bool IsSection(const std::string& name) {
    return std::any_of(Keys().begin(), Keys().end(),
                       [&](const Key& key) { return key.name.starts_with(name + "."); });
  }

  static Result<Value> TablesFromToml(const toml::node& node) {
    const Error wrong{ErrorCode::kInvalidArgument, "expected a table of tables", ""};
    if (!node.is_table()) return wrong;
    Tables tables;
    for (const auto& [name, item] : *node.as_table()) {
      if (!item.is_table()) return wrong;
      auto& keys = tables[std::string(name.str())];
      for (const auto& [key, value] : *item.as_table()) {
        std::string& text = keys[std::string(key.str())];
        if (const auto number = value.value_exact<std::int64_t>()) {
          text = std::to_string(*number);
        } else if (const auto flag = value.value_exact<bool>()) {
          text = *flag ? "true" : "false";
        } else if (const auto word = value.value_exact<std::string>();
                   word && *word != "true" && *word != "false" && !ParseWhole<std::int64_t>(*word)) {
          text = *word;
        } else {
          return Error{ErrorCode::kInvalidArgument,
                       fmt::format("{}.{}: expected a whole number, true, false or a word",
                                   Quoted(name.str()), Printable(key.str())),
                       ""};
        }
      }
    }
    return Value{std::move(tables)};
  }

  static Result<Value> FromToml(const Key& key, const toml::node& node) {
    const auto wrong = [](std::string_view expected) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("expected {}", expected), ""};
    };
    switch (key.kind) {
      case Kind::kBool:
        if (const auto value = node.value_exact<bool>()) return Value{*value};
        return wrong("true or false");
      case Kind::kInteger:
        if (const auto value = node.value_exact<std::int64_t>()) return Value{*value};
        return wrong("a whole number");
      case Kind::kIntegerOrWord:
        if (const auto value = node.value_exact<std::int64_t>()) return Value{*value};
        if (const auto value = node.value_exact<std::string>()) {
          // As with every other key, "3" is no number in a file.
          if (!ParseWhole<std::int64_t>(*value)) return Value{*value};
        }
        return wrong("a whole number or a word");
      case Kind::kString:
        if (const auto value = node.value_exact<std::string>()) return Value{*value};
        return wrong("a string");
      case Kind::kDuration:
        if (const auto value = node.value_exact<std::string>()) return Value{*value};
        return wrong("a duration as a string, such as \"3s\"");
      case Kind::kStringList: {
        if (!node.is_array()) return wrong("a list of strings");
        std::vector<std::string> items;
        for (const toml::node& item : *node.as_array()) {
          const auto text = item.value_exact<std::string>();
          if (!text) return wrong("a list of strings");
          items.push_back(*text);
        }
        return Value{std::move(items)};
      }
      case Kind::kIntegerMap: {
        if (!node.is_table()) return wrong("a table of whole numbers");
        std::map<std::string, std::int64_t> map;
        for (const auto& [name, item] : *node.as_table()) {
          const auto number = item.value_exact<std::int64_t>();
          if (!number) return wrong("a table of whole numbers");
          map[std::string(name.str())] = *number;
        }
        return Value{std::move(map)};
      }
      case Kind::kTables:
        return TablesFromToml(node);
    }
    return wrong("another type");
  }

  void ApplyEnvironment() {
    for (const auto& variable : input_.environment) {
      const std::string& name = variable.first;
      const std::string& text = variable.second;
      if (!name.starts_with(kPrefix) || name == "LEAFCTL_CONFIG" || name == kListenDefault) continue;
      const auto key =
          std::find_if(Keys().begin(), Keys().end(), [&](const Key& k) { return k.variable() == name; });
      if (key == Keys().end()) {
        // Without the prefix, which would make all names look alike.
        std::vector<std::string> known{"CONFIG"};
        for (const Key& k : Keys()) known.push_back(k.variable().substr(kPrefix.size()));
        const auto nearest = NearestName(name.substr(kPrefix.size()), known);
        resolved_.warnings.push_back(
            fmt::format("unknown environment variable {}{}", Quoted(name),
                        nearest ? fmt::format(", did you mean {}{}?", kPrefix, *nearest) : ""));
        continue;
      }
      if (const std::string wrong = Store(*key, ParseText(key->kind, text), "$" + name); !wrong.empty()) {
        Problem(fmt::format("${}: {}", name, wrong));
      }
    }
  }

  void ApplyFlags() {
    for (const FlagValue& flag : input_.flags) {
      const Key* const key = FindKey(flag.key);
      if (key == nullptr) {
        const std::string hint = NearestKeyHint(flag.key);
        Problem(fmt::format("{}: unknown key {}{}{}", flag.origin, Quoted(flag.key), hint.empty() ? "" : ", ",
                            hint),
                true);
        continue;
      }
      if (const std::string wrong = Store(*key, ParseText(key->kind, flag.text), flag.origin);
          !wrong.empty()) {
        Problem(fmt::format("{}: {}", flag.origin, wrong), true);
      }
    }
  }

  bool IsDefault(const std::string& key) const { return resolved_.origins.at(key) == kDefaultOrigin; }

  // Defaults that depend on the user and the environment.
  void DerivePaths() {
    Config& config = resolved_.config;
    if (IsDefault("state_dir")) config.state_dir = DefaultStateDir();
    if (config.state_dir.empty()) {
      Problem(IsDefault("state_dir") ? "state_dir: there is no default without $HOME, name one"
                                     : "state_dir: is empty, name a directory");
      return;
    }
    if (IsDefault("server.socket")) {
      const std::string runtime_dir = FirstOf(Variable("RUNTIME_DIRECTORY"));
      config.server.socket = (runtime_dir.empty() ? config.state_dir : runtime_dir) + "/leafctl.sock";
    }
    if (IsDefault("sqlite.path")) config.sqlite.path = config.state_dir + "/leaf.db";
    if (IsDefault("auth.anonymous") && !config.auth.tokens_file.empty()) config.auth.anonymous.clear();
    if (config.sqlite.path.empty()) Problem("sqlite.path: is empty, name a file");
    if (config.mysql.password_file.empty()) {
      const std::string credentials = Variable("CREDENTIALS_DIRECTORY");
      const std::string credential = credentials + "/mysql-password";
      if (!credentials.empty() && std::ifstream(credential)) config.mysql.password_file = credential;
    }
    if (IsDefault("codes.key_file")) {
      const std::string credentials = Variable("CREDENTIALS_DIRECTORY");
      const std::string credential = credentials + "/codes-key";
      if (!credentials.empty() && std::ifstream(credential)) config.codes.key_file = credential;
    }
  }

  // systemd may name several directories, separated by colons.
  static std::string FirstOf(const std::string& directories) {
    return directories.substr(0, directories.find(':'));
  }

  std::string DefaultStateDir() const {
    if (std::string dir = FirstOf(Variable("STATE_DIRECTORY")); !dir.empty()) return dir;
    if (input_.is_root) return "/var/lib/leafctl";
    if (std::string dir = Variable("XDG_STATE_HOME"); !dir.empty()) return dir + "/leafctl";
    if (const std::string home = Variable("HOME"); !home.empty()) return home + "/.local/state/leafctl";
    return "";
  }

  void CheckWhole() {
    const Config& config = resolved_.config;
    const auto refuse = [&](const std::string& key, std::string_view why) {
      Problem(fmt::format("{}: {}: {}", resolved_.origins.at(key), key, why));
    };
    // A switch that would be silently ignored is worse than an error.
    if (config.snowflake.enabled) CheckSnowflake(refuse);
    if (config.segment.enabled && config.segment.fence == "cluster" && config.segment.store != "mysql" &&
        config.snowflake.cluster.empty()) {
      refuse("segment.fence",
             "the witness is stored under the name of the cluster, and a database that no other node shares "
             "has none: set snowflake.cluster");
    }
    if (config.mysql.endpoints.empty()) refuse("mysql.endpoints", "the list is empty");
    CheckListeners(refuse);
    CheckTls(refuse);
    CheckCodes(refuse);
    if (!config.mysql.tls_ca.empty() && config.mysql.tls != "verify")
      refuse("mysql.tls_ca", "only mysql.tls = \"verify\" uses it");
  }

  // That there are codes enough for FF1, of every tag; and of snowflake IDs, all of which need one.
  template <typename Refuse>
  void CheckCodes(const Refuse& refuse) const {
    const Config::Codes& codes = resolved_.config.codes;
    const auto check = [&](const std::string& key, std::int64_t length, const std::string& name,
                           bool all_ids) {
      for (const core::CodeAlphabet& alphabet : core::kCodeAlphabets) {
        const int least = all_ids ? alphabet.length_all_ids : alphabet.length_min;
        if (alphabet.name != name || length >= least) continue;
        refuse(key, all_ids ? fmt::format("snowflake IDs need {} codes of length {} or more", name, least)
                            : fmt::format("{} codes need length {} or more, not {}", name, least, length));
      }
    };
    check("codes.length", codes.length, codes.alphabet, false);
    for (const auto& [tag, own] : codes.tags) {
      check("codes.tags", own.length.value_or(codes.length), own.alphabet.value_or(codes.alphabet),
            tag == "snowflake");
    }
  }

  // Half of it would be none of it.
  template <typename Refuse>
  void CheckTls(const Refuse& refuse) const {
    const Config& config = resolved_.config;
    const auto check_pair = [&](const std::string& cert_key, const std::string& cert,
                                const std::string& key_key, const std::string& key) {
      if (!cert.empty() && key.empty())
        refuse(cert_key, fmt::format("a certificate needs its private key: set {}", key_key));
      if (cert.empty() && !key.empty())
        refuse(key_key, fmt::format("a private key needs its certificate: set {}", cert_key));
    };
    check_pair("server.tls_cert", config.server.tls_cert, "server.tls_key", config.server.tls_key);
    check_pair("client.cert", config.client.cert, "client.key", config.client.key);
    if (!config.server.tls_client_ca.empty() && config.server.tls_cert.empty()) {
      refuse(
          "server.tls_client_ca",
          "only a listener with TLS asks clients for certificates: set server.tls_cert and server.tls_key");
    }
  }

  // Those that cannot both be opened: the second one would fail at the start.
  template <typename Refuse>
  void CheckListeners(const Refuse& refuse) const {
    struct Opened {
      std::string key;
      ListenAddress address;
      std::string text;
    };
    const Config::Server& server = resolved_.config.server;
    std::vector<Opened> opened;
    for (const Endpoint& tcp : server.listen)
      opened.push_back({"server.listen", {tcp, ""}, EndpointText(tcp)});
    if (!server.socket.empty())
      opened.push_back({"server.socket", {{}, server.socket}, "unix:" + server.socket});
    for (const Endpoint& tcp : server.admin_listen)
      opened.push_back({"server.admin_listen", {tcp, ""}, EndpointText(tcp)});
    if (!server.socket_public.empty())
      opened.push_back({"server.socket_public", {{}, server.socket_public}, "unix:" + server.socket_public});
    for (const ListenAddress& address : server.redis_listen) {
      opened.push_back({"server.redis_listen", address,
                        address.unix_path.empty() ? EndpointText(address.tcp) : "unix:" + address.unix_path});
    }
    for (auto one = opened.begin(); one != opened.end(); ++one) {
      const auto earlier = std::find_if(opened.begin(), one, [&](const Opened& other) {
        return one->address.unix_path.empty() && other.address.unix_path.empty()
                   ? Collide(other.address.tcp, one->address.tcp)
                   : other.address.unix_path == one->address.unix_path;
      });
      if (earlier == one) continue;
      if (one->text != earlier->text) {
        refuse(one->key, fmt::format("{} and {} cannot both be listened on: one has the other in it",
                                     earlier->text, one->text));
      } else if (one->key == earlier->key) {
        refuse(one->key, fmt::format("{} is in the list twice", one->text));
      } else {
        refuse(one->key, fmt::format("{} is also in {}", one->text, earlier->key));
      }
    }
  }

  // What other names stand for is not asked: an address can be told by looking at it.
  static bool Collide(const Endpoint& a, const Endpoint& b) {
    if (a.port != b.port || a.port == 0) return false;  // port 0: any that is free
    if (LowerCase(a.host) == LowerCase(b.host)) return true;
    const auto has = [](const Endpoint& any, const Endpoint& one) {
      const bool is_v6 = one.host.find(':') != std::string::npos;
      const bool is_v4 = !is_v6 && one.host.find_first_not_of("0123456789.") == std::string::npos;
      return (any.host == "0.0.0.0" && is_v4) || (any.host == "::" && is_v6);
    };
    return has(a, b) || has(b, a);
  }

  template <typename Refuse>
  void CheckSnowflake(const Refuse& refuse) {
    Config::Snowflake& snowflake = resolved_.config.snowflake;
    if (snowflake.address.empty()) snowflake.address = ReachableListenAddress();
    if (snowflake.advertise.empty() && !snowflake.address.empty())
      snowflake.advertise =
          (resolved_.config.server.tls_cert.empty() ? "http://" : "https://") + snowflake.address;
    if (snowflake.recycle && snowflake.registry != "zookeeper")
      refuse("snowflake.recycle", "only registry zookeeper has leases");
    if (snowflake.worker_ordinal) TakeOrdinal(refuse);
    if (snowflake.registry != "static") {
      // Whether there is an address is not asked here: this node needs one, but a command that looks at the
      // registry from elsewhere needs none.
      if (snowflake.cluster.empty())
        refuse("snowflake.registry", fmt::format("registry {} needs snowflake.cluster", snowflake.registry));
      return;
    }
    if (!snowflake.workers.empty() && snowflake.address.empty()) {
      refuse("snowflake.workers",
             "no listen address identifies this node (all are loopback or wildcard): set snowflake.address");
    }
    if (!snowflake.cluster.empty() && snowflake.worker_id < 0 && !snowflake.worker_ordinal &&
        snowflake.workers.empty()) {
      refuse("snowflake.cluster",
             "a named cluster needs snowflake.worker_id (or snowflake.workers), a number that no other node "
             "has");
    }
  }

  // Without the number there is no configuration: a node that goes on with another one could repeat IDs.
  template <typename Refuse>
  void TakeOrdinal(const Refuse& refuse) {
    Config::Snowflake& snowflake = resolved_.config.snowflake;
    if (snowflake.registry != "static") {
      refuse("snowflake.worker_id",
             fmt::format(
                 "only registry static takes the number from the host name, and registry {} gives one out",
                 snowflake.registry));
      return;
    }
    const auto number = OrdinalOf(input_.host, snowflake.worker_range.begin,
                                  std::min(snowflake.worker_range.end, snowflake.layout.worker_end()));
    if (!number.ok()) {
      refuse("snowflake.worker_id", number.error().message);
      return;
    }
    snowflake.worker_id = static_cast<std::int64_t>(*number);
    snowflake.worker_host = input_.host;
  }

  // "" if there is none.
  std::string ReachableListenAddress() const {
    for (const Endpoint& address : resolved_.config.server.listen) {
      const bool names_this_node = !IsLoopbackHost(address.host) && !IsWildcardHost(address.host);
      if (names_this_node && address.port != 0) return EndpointText(address);
    }
    return "";
  }

  Error Failure() const {
    const ErrorCode code = only_flags_ ? ErrorCode::kInvalidArgument : ErrorCode::kConfig;
    if (problems_.size() == 1) return {code, fmt::format("bad configuration: {}", problems_.front()), ""};
    return {
        code,
        fmt::format("bad configuration: {} problems:\n  {}", problems_.size(), fmt::join(problems_, "\n  ")),
        ""};
  }

  const LoadInput& input_;
  Resolved resolved_;
  std::vector<std::string> problems_;
  bool only_flags_ = true;
};

}  // namespace

bool Resolved::IsSet(const std::string& name) const {
  return std::any_of(origins.begin(), origins.end(), [&](const auto& entry) {
    const bool meant = name.ends_with('.') ? entry.first.starts_with(name) : entry.first == name;
    return meant && !IsDefaultOrigin(entry.second);
  });
}

bool Resolved::AnythingSet() const {
  return std::any_of(origins.begin(), origins.end(), [](const auto& entry) {
    // Codes and tokens belong to any store.
    return !IsDefaultOrigin(entry.second) && entry.first != "state_dir" && !entry.first.starts_with("log.") &&
           !entry.first.starts_with("codes.") && !entry.first.starts_with("auth.");
  });
}

Result<Resolved> Load(const LoadInput& input) { return Loader(input).Run(); }

}  // namespace leaf::config
