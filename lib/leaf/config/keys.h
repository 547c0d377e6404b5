// The table of configuration keys: the one place that knows every key's name, type, default, range and
// meaning.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/config/config.h"

namespace leaf::config {

enum class Kind { kBool, kInteger, kIntegerOrWord, kString, kDuration, kStringList, kIntegerMap, kTables };

// Tables by name, each with the texts of its values.
using Tables = std::map<std::string, std::map<std::string, std::string>>;
using Value = std::variant<bool, std::int64_t, std::string, std::vector<std::string>,
                           std::map<std::string, std::int64_t>, Tables>;

struct Key {
  std::string name;  // "section.key", or "key" at top level
  Kind kind;
  std::string
      fallback;  // default, as ParseText reads it; "" where the loader derives it from the environment
  std::string meaning;
  // Checks and stores a value of the key's kind, which may be the text of a typed member (Parsed in
  // key_kinds.h). Errors: kInvalidArgument that says what is allowed.
  std::function<Result<void>(Config&, const Value&)> store;
  std::function<Value(const Config&)> load;

  // "LEAFCTL_SECTION_KEY".
  std::string variable() const;
};

// In the order of the documentation.
std::span<const Key> Keys();
// Null if there is none of that name.
const Key* FindKey(std::string_view name);
// The known name nearest to `name`, as a hint ("did you mean ...?"), or "".
std::string NearestKeyHint(std::string_view name);

// Reads the text form of variables and flags: lists are comma-separated, maps are "name=number,…", tables are
// "table.key=value,…".
// Errors: kInvalidArgument.
Result<Value> ParseText(Kind kind, std::string_view text);

// As it would stand in a TOML file.
std::string FormatToml(const Value& value);

}  // namespace leaf::config
