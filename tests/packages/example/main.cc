// Issues IDs of both kinds from a state directory, and codes with a key of leafctl code keygen:
// example STATE_DIR [KEY_FILE]
#include <cstdint>
#include <iostream>
#include <string>

#include "leaf/leaf.h"

namespace {

int Fail(const leaf::Error& error) {
  std::cerr << "example: " << leaf::ErrorCodeName(error.code) << ": " << error.message << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::cerr << "usage: example STATE_DIR [KEY_FILE]\n";
    return 2;
  }
  leaf::GeneratorOptions options;
  options.state_dir = argv[1];
  // Both modes, on one machine. Of a cluster, the store is leaf::MySql{.endpoints = {"db1.example.org"}}, and
  // the number comes from ZooKeeper: leaf::ZookeeperNumber{.cluster = "shop", .address = own_ip_and_port}.
  options.store = leaf::Sqlite{};
  options.snowflake = leaf::PrivateNumber{};
  if (argc == 3) options.settings = {{"codes.key_file", argv[2]}, {"codes.length", "14"}};
  options.log = [](leaf::Severity severity, std::string_view message) {
    if (severity >= leaf::Severity::kWarning) std::cerr << "example: " << message << "\n";
  };
  auto generators = leaf::Generators::Open(options);
  if (!generators.ok()) return Fail(generators.error());

  leaf::SegmentGenerator& segment = generators->segment();
  if (auto added = segment.AddTag("order", 1000);
      !added.ok() && added.error().code != leaf::ErrorCode::kAlreadyExists)
    return Fail(added.error());

  // Ten at once, waiting for the database up to ten seconds.
  const auto ids = segment.Next("order", 10, std::chrono::seconds(10));
  if (!ids.ok()) return Fail(ids.error());
  std::cout << "{\"segment\":[";
  const char* separator = "";
  for (const leaf::IdRange& range : *ids) {
    for (std::uint64_t id = range.begin; id < range.end; ++id, separator = ",")
      std::cout << separator << '"' << id << '"';
  }

  const auto id = generators->snowflake().Next(std::chrono::seconds(10));
  if (!id.ok()) return Fail(id.error());
  const auto parts = leaf::DecodeSnowflake(*id);
  if (!parts.ok()) return Fail(parts.error());
  std::cout << "],\"snowflake\":\"" << *id << "\",\"time_ms\":" << parts->time_ms
            << ",\"worker\":" << parts->worker;
  if (argc == 3) {
    // What customers see, instead of an ID.
    const auto code = generators->codes().Next("order", std::chrono::seconds(10));
    if (!code.ok()) return Fail(code.error());
    const auto revealed = generators->codes().Reveal("order", *code);
    if (!revealed.ok()) return Fail(revealed.error());
    std::cout << ",\"code\":\"" << *code << "\",\"of\":\"" << *revealed << '"';
  }
  std::cout << "}\n";
  // Not needed, but then the next start need not wait for the clock.
  generators->Close();
  return 0;
}
