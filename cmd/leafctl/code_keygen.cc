// leafctl code keygen
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <memory>
#include <string>

#include "commands.h"
#include "leaf/codes/code_key.h"
#include "leaf/sys/durable_file.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

Result<void> RunCodeKeygen(CommandContext& context, const std::string& file) {
  codes::CodeKey key{};
  if (getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size()))
    return Error{ErrorCode::kInternal, "the system has no random numbers", ""};
  const std::string text = codes::CodeKeyText(key) + "\n";
  const std::string fingerprint = codes::FingerprintOf(key);
  if (file.empty()) {
    if (context.flags.json) {
      WriteJson(context, {{"key", codes::CodeKeyText(key)}, {"fingerprint", fingerprint}});
    } else {
      context.out.Write(text);
    }
    return {};
  }
  sys::FileOps ops;
  auto written = sys::WriteNewFile(ops, file, text, S_IRUSR | S_IWUSR, sys::Existing::kRefuse);
  if (!written.ok()) {
    Error error = std::move(written).error();
    if (error.code == ErrorCode::kAlreadyExists)
      error.hint = "codes that were made with a key need it for ever: name another file";
    return error;
  }
  if (context.flags.json) {
    WriteJson(context, {{"file", file}, {"fingerprint", fingerprint}});
  } else {
    context.Report(
        fmt::format("made {}, a key with fingerprint {}; keep a copy: without it no code can be read", file,
                    fingerprint));
  }
  return {};
}

}  // namespace

Run AddCodeKeygen(CLI::App& app, CommandContext&) {
  const auto file = std::make_shared<std::string>();
  app.add_option("FILE", *file, "File to make, for its owner only; without it the key goes to stdout")
      ->check(NotEmpty);
  app.footer(
      "Each node of a cluster has the same key. A tag keeps the key of its first code.\n"
      "Examples:\n"
      "  leafctl code keygen /etc/leafctl/codes.key\n"
      "  (umask 077; leafctl code keygen >codes.key)");
  return [file](CommandContext& context) { return RunCodeKeygen(context, *file); };
}

}  // namespace leaf::cmd
