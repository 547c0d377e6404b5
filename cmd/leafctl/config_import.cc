// leafctl config import
#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "input_file.h"
#include "leaf/base/text.h"
#include "leaf/java/leaf_properties.h"
#include "leaf/sys/durable_file.h"
#include "leaf/sys/file.h"
#include "leaf/sys/file_ops.h"
#include "leaf/zookeeper/connect_string.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

constexpr mode_t kConfigMode = 0644;
constexpr mode_t kSecretMode = 0600;

struct ConfigImportOptions {
  std::string file;
  std::string spelling = "auto";
  std::string to;
  bool force = false;
  java::ImportOptions import;
};

// The parser has let no other name in.
java::LeafSpelling SpellingOf(const std::string& name) {
  constexpr std::array kSpellings{java::LeafSpelling::kUpstream, java::LeafSpelling::kStarter,
                                  java::LeafSpelling::kFork};
  for (const java::LeafSpelling spelling : kSpellings) {
    if (name == java::LeafSpellingName(spelling)) return spelling;
  }
  return java::LeafSpelling::kAuto;
}

Error ExistsAlready(const std::string& path) {
  return {ErrorCode::kAlreadyExists, fmt::format("{} exists already", path),
          "name another file, or pass --force"};
}

Result<void> WriteTo(const std::string& path, std::string_view content, mode_t mode, bool force) {
  sys::FileOps ops;
  auto written =
      sys::WriteNewFile(ops, path, content, mode, force ? sys::Existing::kReplace : sys::Existing::kRefuse);
  if (written.ok() || written.error().code != ErrorCode::kAlreadyExists) return written;
  return ExistsAlready(path);
}

// The folder may have several names.
std::filesystem::path PlaceOf(const std::string& file) {
  if (file.empty()) return {};
  std::error_code ignored;
  const std::filesystem::path path = std::filesystem::absolute(file, ignored).lexically_normal();
  return std::filesystem::weakly_canonical(path.parent_path(), ignored) / path.filename();
}

// A password that root writes is the service's: both can read it then. `state_dir`: "" if it is not known.
void GiveToService(const std::string& password_file, const std::string& state_dir) {
  if (state_dir.empty()) return;
  const sys::FileHandle file(open(password_file.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (file.valid()) sys::GiveToOwnerOf(state_dir, file.get());
}

// Both, or none of them.
Result<void> WriteBoth(const ConfigImportOptions& options, const std::string& state_dir,
                       const std::string& password_file, const std::string& password,
                       const std::string& toml) {
  if (options.to.empty() && password_file.empty()) return {};
  const std::string& to = options.to;
  if (!to.empty() && PlaceOf(to) == PlaceOf(password_file)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("--to and --password-file both name {}", Printable(options.to)), ""};
  }
  // Before the first one is written; one that is made meanwhile is noticed below.
  std::error_code ignored;
  if (!to.empty() && !options.force && std::filesystem::exists(std::filesystem::symlink_status(to, ignored)))
    return ExistsAlready(options.to);
  // The configuration names the other: it comes last.
  const bool had_password = !password_file.empty() &&
                            std::filesystem::exists(std::filesystem::symlink_status(password_file, ignored));
  if (!password_file.empty()) {
    LEAF_RETURN_IF_ERROR(WriteTo(password_file, password + "\n", kSecretMode, options.force));
    GiveToService(password_file, state_dir);
  }
  if (to.empty()) return {};
  auto written = WriteTo(to, toml, kConfigMode, options.force);
  // A password that has replaced an older one stays: that one is gone in any case.
  const bool is_there = std::filesystem::exists(to, ignored);
  if (!written.ok() && !is_there && !password_file.empty() && !had_password)
    std::filesystem::remove(password_file, ignored);
  return written;
}

Json ImportJson(const ConfigImportOptions& options, const java::Imported& imported, const std::string& toml) {
  Json values = Json::object();
  for (const auto& [name, value] : imported.values)
    values[name] = std::visit([](const auto& typed) { return Json(typed); }, value);
  Json notes = Json::array();
  for (const java::ImportNote& note : imported.notes) {
    notes.push_back({{"kind", java::ImportNoteKindName(note.kind)},
                     {"line", note.line == 0 ? Json(nullptr) : Json(note.line)},
                     {"key", note.line == 0 ? Json(nullptr) : Json(note.key)},
                     {"message", note.text}});
  }
  return {{"file", options.file},
          {"spelling", java::LeafSpellingName(imported.spelling)},
          {"values", std::move(values)},
          {"notes", std::move(notes)},
          {"written", options.to.empty() ? Json(nullptr) : Json(options.to)},
          {"toml", toml}};
}

// "" where the configuration that is there already is a bad one.
std::string StateDirOf(CommandContext& context) {
  const auto resolved = context.Config();
  return resolved.ok() ? (*resolved)->config.state_dir : "";
}

Result<void> RunConfigImport(CommandContext& context, const ConfigImportOptions& options) {
  java::ImportOptions import = options.import;
  import.spelling = SpellingOf(options.spelling);
  if (!import.password_file.empty())
    import.password_file = std::filesystem::absolute(import.password_file).lexically_normal().string();
  LEAF_ASSIGN_OR_RETURN(const std::string bytes, ReadInputFile(context, options.file));
  const std::string source = options.file == "-" ? "stdin" : options.file;
  auto imported = java::ImportLeafProperties(bytes, import);
  if (!imported.ok()) {
    Error error = std::move(imported).error();
    return Error{error.code, fmt::format("cannot import {}: {}", Printable(source), error.message),
                 std::move(error.hint)};
  }
  for (const auto& [name, value] : imported->values) {
    if (name == "zookeeper.connect")
      LEAF_RETURN_IF_ERROR(zookeeper::ParseConnectString(std::get<std::string>(value)));
  }
  const std::string toml = java::FormatImported(*imported, source);
  const bool secret = !imported->password.empty() && !import.password_file.empty();
  LEAF_RETURN_IF_ERROR(WriteBoth(options, secret ? StateDirOf(context) : "",
                                 secret ? import.password_file : "", imported->password, toml));

  if (context.flags.json) {
    WriteJson(context, ImportJson(options, *imported, toml));
  } else if (options.to.empty()) {
    context.out.Write(toml);
  }
  for (const java::ImportNote& note : imported->notes)
    context.Note(fmt::format("{}: {}", Printable(source), java::FormatNote(note)));
  // The configuration itself may be what goes to stdout.
  const auto report = [&](const std::string& text) {
    if (context.flags.json) return;
    if (options.to.empty()) {
      context.Note(text);
    } else {
      context.Report(text);
    }
  };
  if (secret) report(fmt::format("wrote the password to {}", import.password_file));
  if (!options.to.empty()) report(fmt::format("wrote {}", options.to));
  return {};
}

}  // namespace

Run AddConfigImport(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<ConfigImportOptions>();
  app.add_option("FILE", options->file, "Java Leaf's leaf.properties; '-' reads stdin")->required();
  app.add_option("--address", options->import.address,
                 "This node's IP, or IP:PORT, in the registry; Java Leaf finds it out by itself")
      ->type_name("IP[:PORT]");
  app.add_option("--listen", options->import.listen, "Address to listen on, for server.listen")
      ->type_name("HOST:PORT")
      ->allow_extra_args(false);
  app.add_option("--spelling", options->spelling, "Which Leaf FILE belongs to; auto detects it from the keys")
      ->check(CLI::IsMember({"auto", "upstream", "starter", "fork"}))
      ->type_name("LEAF")
      ->capture_default_str();
  app.add_option("--to", options->to, "Write the configuration to a new file instead of stdout")
      ->type_name("FILE")
      ->check(NotEmpty);
  app.add_option("--password-file", options->import.password_file,
                 "Write the password to a new file that only its owner can read, and refer to it")
      ->type_name("FILE")
      ->check(NotEmpty);
  app.add_flag("--force", options->force, "Replace existing files");
  app.footer(
      "Settings that cannot be carried over, or that mean something else in leafctl, are listed on stderr "
      "and in comments.\n"
      "Examples:\n"
      "  leafctl config import leaf.properties --address 10.0.0.1 --listen 0.0.0.0:8080 \\\n"
      "      --password-file /etc/leafctl/mysql-password --to /etc/leafctl/leafctl.toml");
  return [options](CommandContext& context) { return RunConfigImport(context, *options); };
}

}  // namespace leaf::cmd
