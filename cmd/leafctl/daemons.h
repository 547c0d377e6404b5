// Which daemons a command would ask.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli.h"
#include "context.h"
#include "leaf/base/endpoint.h"
#include "leaf/base/text.h"
#include "leaf/sys/secret_file.h"

namespace leaf::cmd {

// How long a daemon may take to answer a question, unless --timeout says otherwise.
inline constexpr std::chrono::milliseconds kAskTimeout{5000};

struct Daemons {
  std::vector<std::string> servers;  // in the order to ask
  bool configured = false;           // by --server or client.servers; else the default sockets
};

inline constexpr const char* kServerMeaning =
    "Daemon to ask: http://HOST:PORT or unix:/PATH; several are tried in order";

// --server, which is client.servers for this one call.
inline void AddServerFlag(CLI::App& app, CommandContext& context, const std::string& meaning) {
  app.add_option_function<std::vector<std::string>>(
         "--server",
         [&context](const std::vector<std::string>& servers) {
           std::string list;
           for (const std::string& server : servers) list += (list.empty() ? "" : ",") + server;
           context.command_values.push_back({"client.servers", list, "--server"});
         },
         meaning)
      ->type_name("URL")
      ->check(NotEmpty)
      ->allow_extra_args(false);
}

// What is shown to daemons: the token in client.token_file, "" without one. Errors: kConfig for a file that
// cannot be read, or that other users can.
inline Result<std::string> ClientToken(const config::Resolved& resolved) {
  if (resolved.config.client.token_file.empty()) return std::string();
  LEAF_ASSIGN_OR_RETURN(const std::string text, sys::ReadSecretFile(resolved.config.client.token_file));
  std::string token(TrimBlanks(text));
  // As a header's value, or as a word, it would end early.
  const bool good =
      !token.empty() && std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (!good)
    return Error{
        ErrorCode::kConfig,
        fmt::format("client.token_file {} does not hold one token", resolved.config.client.token_file),
        "leafctl token add prints one"};
  return token;
}

// Of the daemon that a package runs.
inline constexpr std::string_view kDefaultSocket = "unix:/run/leafctl/leafctl.sock";

// client.servers, else /run/leafctl/leafctl.sock and the socket in the state directory.
inline Daemons FindDaemons(const config::Resolved& resolved) {
  if (!resolved.config.client.servers.empty()) return {resolved.config.client.servers, true};
  return {{std::string(kDefaultSocket), "unix:" + resolved.config.state_dir + "/leafctl.sock"}, false};
}

// Where a daemon with this configuration answers; those of FindDaemons first.
inline std::vector<std::string> FindOwnDaemon(const config::Resolved& resolved) {
  Daemons daemons = FindDaemons(resolved);
  if (daemons.configured) return daemons.servers;
  const config::Config::Server& server = resolved.config.server;
  if (const std::string socket = "unix:" + server.socket;
      !server.socket.empty() &&
      std::find(daemons.servers.begin(), daemons.servers.end(), socket) == daemons.servers.end())
    daemons.servers.push_back(socket);
  for (Endpoint endpoint : server.listen) {
    if (endpoint.port == 0) continue;  // it may be any
    if (endpoint.host == "0.0.0.0" || endpoint.host == "::") endpoint.host = "127.0.0.1";
    daemons.servers.push_back("http://" + EndpointText(endpoint));
  }
  return daemons.servers;
}

}  // namespace leaf::cmd
