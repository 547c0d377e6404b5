// The file of `leafctl tag export` and `leafctl tag apply`: tags as they should be, in TOML or JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/core/ports.h"

namespace leaf::cmd {

// One tag of the file. What is not given stays as it is, or has the default of `leafctl tag add`.
struct WantedTag {
  std::string tag;
  std::optional<std::uint64_t> max_id;  // at least
  std::optional<std::int64_t> step;
  std::optional<std::string> description;
  std::optional<core::TagOrder> order;
};

// Reads TOML ([[tags]] tables) or, if the first character is '{', JSON ({"tags": [...]}), also as `leafctl
// tag list --json` writes it. `name`: of the file, for messages. Errors: kInvalidArgument that names the
// file, the tag and the field: not TOML or JSON, an unknown field, a value that is out of range, a tag twice.
Result<std::vector<WantedTag>> ReadTagFile(std::string_view content, const std::string& name);

// A row as ReadTagFile takes it. A value that ReadTagFile would refuse, since another program wrote it into
// the table, is left out, and `note` gets a line about it. Nullopt if the name of the tag is such a value.
std::optional<WantedTag> ToWantedTag(const core::TagRow& row,
                                     const std::function<void(const std::string&)>& note);

// As ReadTagFile reads it, in the order of `tags`.
std::string FormatTagFile(const std::vector<WantedTag>& tags);

}  // namespace leaf::cmd
