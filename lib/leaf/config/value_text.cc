// Values of configuration keys as text: read from a flag or a variable, and written as TOML.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "leaf/base/text.h"
#include "leaf/config/keys.h"

namespace leaf::config {
namespace {

using Strings = std::vector<std::string>;
using IntegerMap = std::map<std::string, std::int64_t>;

Error NotOfKind(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message), ""}; }

std::string TomlString(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

Result<Value> ParseText(Kind kind, std::string_view text) {
  switch (kind) {
    case Kind::kBool:
      if (text == "true") return Value{true};
      if (text == "false") return Value{false};
      return NotOfKind(fmt::format("{} is neither true nor false", Quoted(text)));
    case Kind::kInteger:
      if (const auto number = ParseWhole<std::int64_t>(text)) return Value{*number};
      return NotOfKind(fmt::format("{} is not a whole number", Quoted(text)));
    case Kind::kIntegerOrWord:
      if (const auto number = ParseWhole<std::int64_t>(text)) return Value{*number};
      return Value{std::string(text)};
    case Kind::kString:
    case Kind::kDuration:
      return Value{std::string(text)};
    case Kind::kStringList:
    case Kind::kIntegerMap:
    case Kind::kTables:
      break;
  }
  Strings items;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view item = text.substr(0, comma);
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    items.emplace_back(item);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  if (kind == Kind::kStringList) return Value{std::move(items)};
  if (kind == Kind::kTables) {
    Tables tables;
    for (const std::string& item : items) {
      const std::size_t equals = item.rfind('=');
      const std::size_t dot = item.rfind('.', equals);
      if (equals == std::string::npos || dot == std::string::npos || dot > equals)
        return NotOfKind(fmt::format("{} is not table.key=value", Quoted(item)));
      tables[item.substr(0, dot)][item.substr(dot + 1, equals - dot - 1)] = item.substr(equals + 1);
    }
    return Value{std::move(tables)};
  }
  IntegerMap map;
  for (const std::string& item : items) {
    const std::size_t equals = item.rfind('=');
    if (equals == std::string::npos) return NotOfKind(fmt::format("{} is not name=number", Quoted(item)));
    LEAF_ASSIGN_OR_RETURN(const Value number,
                          ParseText(Kind::kInteger, std::string_view(item).substr(equals + 1)));
    map[item.substr(0, equals)] = std::get<std::int64_t>(number);
  }
  return Value{std::move(map)};
}

std::string FormatToml(const Value& value) {
  return std::visit(
      [](const auto& typed) -> std::string {
        using T = std::decay_t<decltype(typed)>;
        if constexpr (std::is_same_v<T, bool>) {
          return typed ? "true" : "false";
        } else if constexpr (std::is_same_v<T, std::int64_t>) {
          return std::to_string(typed);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return TomlString(typed);
        } else if constexpr (std::is_same_v<T, Strings>) {
          Strings items;
          for (const std::string& item : typed) items.push_back(TomlString(item));
          return fmt::format("[{}]", fmt::join(items, ", "));
        } else if constexpr (std::is_same_v<T, Tables>) {
          Strings tables;
          for (const auto& [name, keys] : typed) {
            Strings items;
            for (const auto& [key, text] : keys) {
              const bool plain = text == "true" || text == "false" || ParseWhole<std::int64_t>(text);
              items.push_back(fmt::format("{} = {}", key, plain ? text : TomlString(text)));
            }
            tables.push_back(
                fmt::format("{} = {}", TomlString(name),
                            items.empty() ? "{}" : fmt::format("{{ {} }}", fmt::join(items, ", "))));
          }
          return tables.empty() ? "{}" : fmt::format("{{ {} }}", fmt::join(tables, ", "));
        } else {
          Strings items;
          for (const auto& [name, number] : typed)
            items.push_back(fmt::format("{} = {}", TomlString(name), number));
          return items.empty() ? "{}" : fmt::format("{{ {} }}", fmt::join(items, ", "));
        }
      },
      value);
}

}  // namespace leaf::config
