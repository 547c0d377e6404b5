// Which daemons a command would ask.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli.h"
#include "context.h"
#include "leaf/base/endpoint.h"
#include "leaf/client/trust.h"
#include "leaf/embed/client_token.h"
#include "leaf/embed/tls_files.h"

namespace leaf::cmd {

// How long a daemon may take to answer a question, unless --timeout says otherwise.
inline constexpr std::chrono::milliseconds kAskTimeout{5000};

struct Daemons {
  std::vector<std::string> servers;  // in the order to ask
  bool configured = false;           // by --server or client.servers; else the default sockets
};

inline constexpr const char* kServerMeaning =
    "Daemon to ask: http://HOST:PORT, https://HOST:PORT or unix:/PATH; several are tried in order";

// --ca, --cert and --key, which are the keys of [client] for this one call.
inline void AddTrustFlags(CLI::App& app, CommandContext& context) {
  for (const auto& [flag, key, meaning] :
       {std::array{"--ca", "client.ca",
                   "File with the authorities of servers' certificates, for https (client.ca)"},
        {"--cert", "client.cert", "File with the certificate to show them (client.cert)"},
        {"--key", "client.key", "File with its private key (client.key)"}}) {
    app.add_option_function<std::string>(
           flag,
           [&context, flag = flag, key = key](const std::string& file) {
             context.command_values.push_back({key, file, flag});
           },
           meaning)
        ->type_name("FILE")
        ->check(NotEmpty);
  }
}

// For the daemons that a command asks.
inline client::TlsSource TlsOf(const config::Resolved& resolved) {
  return embed::ClientTlsOf(resolved.config.client);
}

// --server, which is client.servers for this one call, with the flags for those that speak TLS.
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
  AddTrustFlags(app, context);
}

// What is shown to daemons. Errors: those of embed::ReadClientToken.
inline Result<std::string> ClientToken(const config::Resolved& resolved) {
  return embed::ReadClientToken(resolved.config.client.token_file);
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
    daemons.servers.push_back((server.tls_cert.empty() ? "http://" : "https://") + EndpointText(endpoint));
  }
  return daemons.servers;
}

}  // namespace leaf::cmd
