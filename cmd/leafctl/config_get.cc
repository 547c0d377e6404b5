// leafctl config get
#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "commands.h"
#include "leaf/base/text.h"
#include "leaf/config/keys.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

// As config::ParseText reads it: what is printed can be a variable's or a flag's value.
std::string PlainText(const config::Value& value) {
  return std::visit(
      [](const auto& typed) -> std::string {
        using T = std::decay_t<decltype(typed)>;
        if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          return fmt::format("{}", fmt::join(typed, ","));
        } else if constexpr (std::is_same_v<T, std::map<std::string, std::int64_t>>) {
          std::string text;
          for (const auto& [name, number] : typed)
            text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, number);
          return text;
        } else if constexpr (std::is_same_v<T, config::Tables>) {
          std::string text;
          for (const auto& [name, keys] : typed) {
            for (const auto& [key, value_text] : keys)
              text += fmt::format("{}{}.{}={}", text.empty() ? "" : ",", name, key, value_text);
          }
          return text;
        } else {
          return fmt::format("{}", typed);
        }
      },
      value);
}

// "" for what is no table.
std::string KeysOfTable(std::string_view name) {
  if (name.ends_with('.')) name.remove_suffix(1);
  std::string keys;
  for (const config::Key& key : config::Keys()) {
    if (key.name.size() > name.size() && key.name.starts_with(name) && key.name[name.size()] == '.')
      keys += (keys.empty() ? "" : ", ") + key.name;
  }
  return keys;
}

Result<void> RunConfigGet(CommandContext& context, const std::string& name) {
  const config::Key* const key = config::FindKey(name);
  if (key == nullptr) {
    if (const std::string keys = KeysOfTable(name); !keys.empty()) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("{} is a table, not a key", Quoted(name)),
                   "its keys: " + keys};
    }
    const std::string hint = config::NearestKeyHint(name);
    return Error{ErrorCode::kInvalidArgument, fmt::format("unknown key {}", Quoted(name)),
                 hint.empty() ? "leafctl config show lists the keys" : hint};
  }
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  const config::Value value = key->load(resolved->config);
  if (context.flags.json) {
    WriteJson(context, {{"key", key->name},
                        {"value", std::visit([](const auto& typed) { return Json(typed); }, value)},
                        {"origin", resolved->origins.at(key->name)}});
  } else {
    context.out.Write(PlainText(value) + "\n");
  }
  return {};
}

}  // namespace

Run AddConfigGet(CLI::App& app, CommandContext&) {
  const auto name = std::make_shared<std::string>();
  app.add_option("KEY", *name, "The key, such as server.listen")->required();
  app.footer(
      "Prints only the value in force: from a flag, an environment variable, the file or the default. Lists "
      "have "
      "commas between their items.\n"
      "Examples:\n"
      "  leafctl config get server.socket\n"
      "  leafctl config get mysql.endpoints --json");
  return [name](CommandContext& context) { return RunConfigGet(context, *name); };
}

}  // namespace leaf::cmd
