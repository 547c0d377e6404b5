// leafctl config show
#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>

#include "commands.h"
#include "leaf/config/keys.h"
#include "leaf/config/worker_number.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

// The value that stands for another: which one is said beside it.
constexpr std::string_view kWorkerKey = "snowflake.worker_id";

struct ConfigShowOptions {
  bool origin = false;
};

Json ValueJson(const config::Value& value) {
  return std::visit([](const auto& typed) { return Json(typed); }, value);
}

Result<void> RunConfigShow(CommandContext& context, const ConfigShowOptions& options) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  const std::string ordinal = config::OrdinalText(resolved->config);
  if (context.flags.json) {
    Json values = Json::object();
    for (const config::Key& key : config::Keys()) {
      Json item{{"value", ValueJson(key.load(resolved->config))}};
      if (options.origin) item["origin"] = resolved->origins.at(key.name);
      if (key.name == kWorkerKey && !ordinal.empty()) {
        item["worker"] = resolved->config.snowflake.worker_id;
        item["worker_source"] = config::WorkerSourceOf(resolved->config);
      }
      values[key.name] = std::move(item);
    }
    WriteJson(context, {{"file", resolved->file}, {"values", std::move(values)}});
    return {};
  }
  std::string section;
  for (const config::Key& key : config::Keys()) {
    const std::size_t dot = key.name.find('.');
    const std::string own_section = dot == std::string::npos ? "" : key.name.substr(0, dot);
    if (own_section != section) context.out.Write(fmt::format("\n[{}]\n", own_section));
    section = own_section;
    const std::string line =
        fmt::format("{} = {}", dot == std::string::npos ? key.name : key.name.substr(dot + 1),
                    config::FormatToml(key.load(resolved->config)));
    std::string comment = options.origin ? resolved->origins.at(key.name) : "";
    if (key.name == kWorkerKey && !ordinal.empty()) comment += (comment.empty() ? "" : ": ") + ordinal;
    context.out.Write(comment.empty() ? line + "\n" : fmt::format("{:<48} # {}\n", line, comment));
  }
  return {};
}

}  // namespace

Run AddConfigShow(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<ConfigShowOptions>();
  app.add_flag("--origin", options->origin, "Also show where each value comes from");
  app.footer(
      "Precedence: flag, then environment variable, then file, then default.\n"
      "Examples:\n"
      "  leafctl config show --origin");
  return [options](CommandContext& context) { return RunConfigShow(context, *options); };
}

}  // namespace leaf::cmd
