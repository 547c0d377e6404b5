// The configuration, from a file and from variables and flags.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fuzz/expect.h"
#include "fuzz/targets.h"
#include "leaf/base/endpoint.h"
#include "leaf/config/keys.h"
#include "leaf/config/loader.h"
#include "leaf/config/reload.h"
#include "leaf/core/id_layout.h"
#include "leaf/java/leaf_properties.h"
#include "leaf/java/properties.h"

namespace leaf::fuzz {
namespace {

using config::Config;
using config::Key;
using config::Resolved;
using config::Value;

// A file without a disk.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("leafctl.toml", MFD_CLOEXEC)) { LEAF_CHECK(fd_ >= 0); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { close(fd_); }

  void Write(std::string_view content) const {
    LEAF_CHECK(ftruncate(fd_, 0) == 0);
    LEAF_CHECK(pwrite(fd_, content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()));
  }
  std::string path() const { return fmt::format("/proc/self/fd/{}", fd_); }

 private:
  const int fd_;
};

bool IsText(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return CountCodePoints(*text).has_value();
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& text : *texts) {
      if (!CountCodePoints(text)) return false;
    }
  }
  if (const auto* map = std::get_if<std::map<std::string, std::int64_t>>(&value)) {
    for (const auto& entry : *map) {
      if (!CountCodePoints(entry.first)) return false;
    }
  }
  return true;
}

Result<Resolved> LoadFile(const MemoryFile& file) {
  return config::Load({.file = file.path(), .flags = {}, .environment = {{"HOME", "/home/x"}}});
}

// What was accepted is in its documented range, and reads the same once it is written as a file.
void ExpectSound(const Config& config) {
  static const MemoryFile file;
  Config copy;
  std::string toml;
  bool is_text = true;
  for (const Key& key : config::Keys()) {
    const Value value = key.load(config);
    LEAF_CHECK(key.store(copy, value).ok());
    is_text = is_text && IsText(value);
    toml += fmt::format("{} = {}\n", key.name, config::FormatToml(value));
  }
  const core::IdLayout& layout = config.snowflake.layout;
  LEAF_CHECK(core::IdLayout::Parse(layout.Bits(), layout.epoch_ms()).ok());
  for (const Endpoint& endpoint : config.mysql.endpoints)
    LEAF_CHECK(ParseEndpoint(EndpointText(endpoint), 1).ok() && endpoint.port != 0);
  LEAF_CHECK(!config.mysql.endpoints.empty() && !config.state_dir.empty());
  for (const Endpoint& address : config.server.listen) ExpectOneLine(EndpointText(address));
  ExpectOneLine(config.snowflake.address);
  ExpectOneLine(config.snowflake.advertise);
  // A path of this system can be what no TOML file can say.
  if (!is_text) return;
  file.Write(toml);
  const auto again = LoadFile(file);
  LEAF_CHECK(again.ok());
  for (const Key& key : config::Keys()) LEAF_CHECK(key.load(again->config) == key.load(config));

  const config::Reload reload = config::PlanReload(
      config::Load({.file = "/dev/null", .flags = {}, .environment = {{"HOME", "/home/x"}}})->config, config);
  for (const Key& key : config::Keys()) {
    if (config::IsReloadable(key.name)) LEAF_CHECK(key.load(reload.config) == key.load(config));
  }
}

std::vector<std::string> Problems(const Error& error) {
  constexpr std::string_view kBegin = "bad configuration: ";
  std::string_view rest = error.message;
  LEAF_CHECK(rest.starts_with(kBegin));
  rest.remove_prefix(kBegin.size());
  std::vector<std::string> problems;
  if (rest.find("\n  ") != std::string_view::npos) TakeLine(rest);
  while (!rest.empty()) {
    std::string_view line = TakeLine(rest);
    ExpectOneLine(line);
    while (line.starts_with(' ')) line.remove_prefix(1);
    problems.emplace_back(line);
  }
  LEAF_CHECK(!problems.empty());
  return problems;
}

}  // namespace

void ConfigFile(std::string_view input) {
  static const MemoryFile file;
  file.Write(input);
  const std::string path = file.path();
  const auto resolved = LoadFile(file);
  if (!resolved.ok()) {
    LEAF_CHECK(resolved.error().code == ErrorCode::kConfig);
    // Each says where it is, unless it is about a key that is not set.
    for (const std::string& problem : Problems(resolved.error()))
      LEAF_CHECK(problem.starts_with(path + ":") || problem.starts_with("default: ") ||
                 problem.starts_with("state_dir: "));
    return;
  }
  for (const auto& [key, origin] : resolved->origins)
    LEAF_CHECK(origin == "default" || origin.starts_with(path + ":"));
  ExpectSound(resolved->config);
}

void ConfigValues(std::string_view input) {
  config::LoadInput load{.file = "/dev/null", .flags = {}, .environment = {{"HOME", "/home/x"}}};
  while (!input.empty()) {
    const std::string line(TakeLine(input));
    const std::size_t equals = line.find('=');
    // No system has a variable with a zero in it.
    if (equals == std::string::npos || line.find('\0') != std::string::npos) continue;
    std::string name = line.substr(0, equals);
    std::string value = line.substr(equals + 1);
    // These name further files.
    if (name == "LEAFCTL_CONFIG" || name == "CREDENTIALS_DIRECTORY") continue;
    if (name.starts_with("LEAFCTL_") || name == "STATE_DIRECTORY" || name == "RUNTIME_DIRECTORY") {
      load.environment[std::move(name)] = std::move(value);
    } else {
      load.flags.push_back({std::move(name), std::move(value), "--set"});
    }
  }
  const auto resolved = config::Load(load);
  if (!resolved.ok()) {
    LEAF_CHECK(resolved.error().code == ErrorCode::kConfig ||
               (!load.flags.empty() && resolved.error().code == ErrorCode::kInvalidArgument));
    for (const std::string& problem : Problems(resolved.error()))
      LEAF_CHECK(problem.starts_with("$LEAFCTL_") || problem.starts_with("--set: ") ||
                 problem.starts_with("default: ") || problem.starts_with("state_dir: "));
    return;
  }
  for (const std::string& warning : resolved->warnings) ExpectOneLine(warning);
  ExpectSound(resolved->config);
}

// A byte that chooses the spelling and the options, then leaf.properties.
void LeafProperties(std::string_view input) {
  constexpr java::LeafSpelling kSpellings[] = {java::LeafSpelling::kAuto, java::LeafSpelling::kUpstream,
                                               java::LeafSpelling::kStarter, java::LeafSpelling::kFork};
  if (input.empty()) return;
  const auto choice = static_cast<unsigned char>(input.front());
  input.remove_prefix(1);
  if (const auto properties = java::ParseJavaProperties(input); properties.ok()) {
    for (const java::Property& property : *properties) {
      LEAF_CHECK(CountCodePoints(property.key) && CountCodePoints(property.value) && property.line > 0);
    }
  } else {
    LEAF_CHECK(properties.error().code == ErrorCode::kConfig);
    ExpectOneLine(properties.error().message);
  }
  java::ImportOptions options;
  options.spelling = kSpellings[choice % 4];
  if ((choice & 4) != 0) options.address = "127.0.0.1";
  if ((choice & 8) != 0) options.listen = {"0.0.0.0:8080"};
  if ((choice & 16) != 0) options.password_file = "/secret";
  const auto imported = java::ImportLeafProperties(input, options);
  if (!imported.ok()) {
    LEAF_CHECK(imported.error().code == ErrorCode::kConfig ||
               imported.error().code == ErrorCode::kInvalidArgument);
    ExpectOneLine(imported.error().message);
    return;
  }
  for (const java::ImportNote& note : imported->notes) ExpectOneLine(java::FormatNote(note));
  // What comes out is a configuration that says just that.
  static const MemoryFile file;
  file.Write(java::FormatImported(*imported, "fuzz"));
  const auto resolved = LoadFile(file);
  LEAF_CHECK(resolved.ok());
  for (const auto& [name, value] : imported->values)
    LEAF_CHECK(config::FindKey(name)->load(resolved->config) == value);
}

}  // namespace leaf::fuzz
