// leafctl config init: a first configuration, with what was asked for and why it is there.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "commands.h"
#include "help_text.h"
#include "leaf/base/text.h"
#include "leaf/config/keys.h"
#include "leaf/config/loader.h"
#include "leaf/sys/durable_file.h"
#include "leaf/sys/file_ops.h"
#include "leaf/zookeeper/connect_string.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

constexpr mode_t kInitMode = 0644;
constexpr std::size_t kCommentWidth = 98;

struct ConfigInitOptions {
  std::string mysql;
  std::string zookeeper;
  std::string cluster;
  std::string address;
  std::vector<std::string> listen;
  std::string password_file;
  std::string to;
  bool force = false;
};

// [USER@]HOST[:PORT][,HOST…][/DATABASE]
Result<void> AddMysql(const std::string& text, std::vector<config::FlagValue>& values) {
  const auto add = [&](const char* key, std::string_view value) {
    values.push_back({key, std::string(value), "--mysql"});
  };
  const auto bad = [&](std::string_view why, std::string hint) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("bad --mysql: {}", why), std::move(hint)};
  };
  std::string_view rest = text;
  if (text.find("://") != std::string::npos)
    return bad("it is not a URL", "[USER@]HOST[:PORT][,HOST...][/DATABASE], without mysql://");
  add("segment.store", "mysql");
  if (const std::size_t at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view user = rest.substr(0, at);
    // Its text is not repeated: it may be a password.
    if (user.find(':') != std::string_view::npos || user.find('@') != std::string_view::npos)
      return bad("the user has a ':' or '@' in it", "a password goes into a file: --password-file FILE");
    if (user.empty()) return bad("there is no user before '@'", "");
    add("mysql.user", user);
    rest.remove_prefix(at + 1);
  }
  if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
    const std::string_view database = rest.substr(slash + 1);
    if (database.empty() || database.find('/') != std::string_view::npos)
      return bad(fmt::format("{} is not a database", Quoted(database)), "");
    add("mysql.database", database);
    rest = rest.substr(0, slash);
  }
  if (rest.empty()) return bad("it names no server", "");
  add("mysql.endpoints", rest);
  return {};
}

Result<std::vector<config::FlagValue>> FlagValuesOf(CommandContext& context,
                                                    const ConfigInitOptions& options) {
  std::vector<config::FlagValue> values;
  if (!options.listen.empty())
    values.push_back({"server.listen", fmt::format("{}", fmt::join(options.listen, ",")), "--listen"});
  if (!options.mysql.empty()) LEAF_RETURN_IF_ERROR(AddMysql(options.mysql, values));
  if (!options.password_file.empty())
    values.push_back({"mysql.password_file", options.password_file, "--password-file"});
  if (!options.zookeeper.empty()) {
    LEAF_RETURN_IF_ERROR(zookeeper::ParseConnectString(options.zookeeper));
    values.push_back({"zookeeper.connect", options.zookeeper, "--zookeeper"});
    values.push_back({"snowflake.registry", "zookeeper", "--zookeeper"});
    if (options.cluster.empty()) {
      return Error{ErrorCode::kInvalidArgument, "--zookeeper needs --cluster",
                   "give the name that all nodes of the cluster share, Java Leaf's leaf.name"};
    }
  }
  if (!options.cluster.empty()) values.push_back({"snowflake.cluster", options.cluster, "--cluster"});
  if (!options.address.empty()) values.push_back({"snowflake.address", options.address, "--address"});
  for (const std::string& set : context.flags.sets) {
    const std::size_t equals = set.find('=');
    if (equals == std::string::npos) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("bad --set {}: not SECTION.KEY=VALUE", Quoted(set)), ""};
    }
    const std::string key = set.substr(0, equals);
    const auto said = std::find_if(values.begin(), values.end(), [&](const config::FlagValue& value) {
      return value.key == key && value.origin != "--set";
    });
    // The file has one value, and the call does not say which of the two is meant.
    if (said != values.end()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{} is given twice: by {} and by --set", key, said->origin),
                   "leave one of them out"};
    }
    values.push_back({key, set.substr(equals + 1), "--set"});
  }
  return values;
}

std::string Comment(std::string_view text) {
  std::string out;
  const std::string wrapped = WrapText(text, kCommentWidth);
  for (std::size_t begin = 0; begin < wrapped.size();) {
    const std::size_t end = wrapped.find('\n', begin);
    out += fmt::format("# {}\n", wrapped.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

std::string InitText(const config::Resolved& resolved, bool password_is_open) {
  std::string text = Comment(
      "leafctl's configuration, begun by leafctl config init. Keys that are not here have their default: "
      "leafctl.toml(5) lists them, leafctl config show --origin shows what is in force.");
  std::string section;
  for (const config::Key& key : config::Keys()) {
    if (!resolved.IsSet(key.name)) continue;
    const std::size_t dot = key.name.find('.');
    const std::string own = dot == std::string::npos ? "" : key.name.substr(0, dot);
    text += own == section ? "\n" : fmt::format("\n[{}]\n", own);
    section = own;
    text += Comment(key.meaning);
    text += fmt::format("{} = {}\n", dot == std::string::npos ? key.name : key.name.substr(dot + 1),
                        config::FormatToml(key.load(resolved.config)));
    if (password_is_open && key.name == "mysql.user") {
      text += '\n' +
              Comment(
                  "The password is in a file that only its owner can read, or is the service "
                  "manager's credential mysql-password.") +
              "# password_file = \"/etc/leafctl/mysql-password\"\n";
    }
  }
  return text;
}

Result<void> RunConfigInit(CommandContext& context, const ConfigInitOptions& options) {
  LEAF_ASSIGN_OR_RETURN(std::vector<config::FlagValue> values, FlagValuesOf(context, options));
  // So that the line on the password has its place.
  if (!options.mysql.empty() && options.mysql.find('@') == std::string::npos)
    values.insert(values.begin(), {"mysql.user", config::FindKey("mysql.user")->fallback, "--mysql"});
  // Neither this machine's file nor its variables: the file has to be right where it goes.
  LEAF_ASSIGN_OR_RETURN(const config::Resolved resolved, config::Load({.file = std::nullopt,
                                                                       .flags = std::move(values),
                                                                       .environment = {},
                                                                       .is_root = true,
                                                                       .search_file = false}));
  if (resolved.config.snowflake.enabled && resolved.config.snowflake.registry != "static" &&
      resolved.config.snowflake.address.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("the registry {} needs this node's address", resolved.config.snowflake.registry),
                 "give --address IP:PORT, or --listen with an address that other nodes reach"};
  }
  const std::string text = InitText(resolved, options.password_file.empty() && !options.mysql.empty());
  if (!options.to.empty()) {
    sys::FileOps ops;
    auto written = sys::WriteNewFile(ops, options.to, text, kInitMode,
                                     options.force ? sys::Existing::kReplace : sys::Existing::kRefuse);
    if (!written.ok()) {
      Error error = std::move(written).error();
      if (error.code == ErrorCode::kAlreadyExists) error.hint = "name another file, or pass --force";
      return error;
    }
  }
  if (context.flags.json) {
    WriteJson(context, {{"written", options.to.empty() ? Json(nullptr) : Json(options.to)}, {"toml", text}});
  } else if (options.to.empty()) {
    context.out.Write(text);
  } else {
    context.Report(fmt::format("wrote {}", options.to));
  }
  return {};
}

}  // namespace

Run AddConfigInit(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<ConfigInitOptions>();
  app.add_option("--mysql", options->mysql,
                 "Segments from MySQL: [USER@]HOST[:PORT][,HOST...][/DATABASE]; never with a password")
      ->type_name("SERVERS")
      ->check(NotEmpty);
  app.add_option("--password-file", options->password_file, "File with MySQL's password")
      ->type_name("FILE")
      ->check(NotEmpty);
  app.add_option("--zookeeper", options->zookeeper,
                 "Worker numbers, and the cluster fence, from ZooKeeper: HOST:PORT[,HOST:PORT...][/CHROOT]")
      ->type_name("SERVERS")
      ->check(NotEmpty);
  app.add_option("--cluster", options->cluster, "The cluster's name, Java Leaf's leaf.name")
      ->type_name("NAME")
      ->check(NotEmpty);
  app.add_option("--address", options->address, "This node's address in the registry")
      ->type_name("IP:PORT")
      ->check(NotEmpty);
  app.add_option("--listen", options->listen, "Address to listen on; :PORT means every IPv4 address")
      ->type_name("HOST:PORT")
      ->check(NotEmpty)
      ->allow_extra_args(false);
  app.add_option("--to", options->to, "Write the configuration to a new file instead of stdout")
      ->type_name("FILE")
      ->check(NotEmpty);
  app.add_flag("--force", options->force, "Replace an existing file");
  app.footer(
      "Writes only what was asked for, each key with its meaning. Every other key can be asked for with "
      "--set.\n"
      "Examples:\n"
      "  leafctl config init --mysql leaf@db1,db2/leaf --to /etc/leafctl/leafctl.toml\n"
      "  leafctl config init --mysql db1 --zookeeper zk1:2181,zk2:2181 --cluster pay \\\n"
      "      --address 10.0.0.1:8080 --listen :8080");
  return [options](CommandContext& context) { return RunConfigInit(context, *options); };
}

}  // namespace leaf::cmd
