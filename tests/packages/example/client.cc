// Asks daemons for an ID of a tag: client GROUPS TAG [CA [CERT KEY]]. The nearest group first, with a
// semicolon before the next one, and commas between the servers of a group:
// "http://192.0.2.1:8080,http://192.0.2.2:8080;http://198.51.100.1:8080". The files are for https.
#include <iostream>
#include <sstream>
#include <string>
#include <utility>

#include "leaf/leaf.h"

int main(int argc, char** argv) {
  if (argc < 3 || argc == 5 || argc > 6) {
    std::cerr << "usage: client GROUPS TAG [CA [CERT KEY]]\n";
    return 2;
  }
  leaf::ClientOptions options;
  std::istringstream groups(argv[1]);
  for (std::string group; std::getline(groups, group, ';');) {
    auto& servers = options.groups.emplace_back();
    std::istringstream list(group);
    for (std::string server; std::getline(list, server, ',');) servers.push_back(server);
  }
  if (argc > 3) options.ca = argv[3];
  if (argc > 5) {
    options.cert = argv[4];
    options.key = argv[5];
  }
  auto client = leaf::Client::Open(std::move(options));
  if (!client.ok()) {
    std::cerr << "client: " << client.error().message << "\n";
    return 2;
  }
  const auto ids = client->Next(argv[2], 1);
  if (!ids.ok()) {
    std::cerr << "client: " << leaf::ErrorCodeName(ids.error().code) << ": " << ids.error().message << "\n";
    return 1;
  }
  std::cout << ids->front().begin << "\n";
  return 0;
}
