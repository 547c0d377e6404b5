#include "tag_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>

#include "leaf/base/foreign_text.h"
#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/config/keys.h"
#include "tag_changes.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

// Further fields of `leafctl tag list --json`, which say nothing about how a tag should be.
constexpr std::array<std::string_view, 6> kIgnored{
    "update_time", "update_time_ms",           "days_to_exhaustion",
    "codes_end",   "codes_days_to_exhaustion", "strict_since"};

Error BadFile(const std::string& name, const std::string& what) {
  return {ErrorCode::kInvalidArgument, fmt::format("bad file {}: {}", Printable(name), what), ""};
}

// Tags, one of them, a field, and what is no field.
constexpr int kDepthMax = 4;

// TOML in JSON's form, so that the fields are read once. Dates and floats are no fields of a tag, and what is
// nested deeper than a field is cut.
Json FromToml(const toml::node& node, int depth = 0) {
  if (depth > kDepthMax) return nullptr;
  if (const auto* const table = node.as_table()) {
    Json json = Json::object();
    for (const auto& [name, item] : *table) json[std::string(name.str())] = FromToml(item, depth + 1);
    return json;
  }
  if (const auto* const array = node.as_array()) {
    Json json = Json::array();
    for (const toml::node& item : *array) json.push_back(FromToml(item, depth + 1));
    return json;
  }
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto number = node.value_exact<std::int64_t>()) return *number;
  return node.value_exact<double>().value_or(0.5);
}

Result<Json> Parse(std::string_view content, const std::string& name) {
  // What some editors put before UTF-8.
  if (content.starts_with("\xef\xbb\xbf")) content.remove_prefix(3);
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && content[first] == '{') {
    if (IsDeepJson(content)) return BadFile(name, "its values nest deeper than 100 levels");
    try {
      return Json::parse(content);
    } catch (const Json::parse_error& error) {
      return BadFile(name, fmt::format("not JSON: there is a mistake at byte {}", error.byte));
    }
  }
  const std::size_t second =
      first == std::string_view::npos ? first : content.find_first_not_of(" \t\r\n", first + 1);
  if (second != std::string_view::npos && content[first] == '[' && content[second] == '{')
    return BadFile(name, "JSON has to be {\"tags\": [...]}");
  if (HasDeepTomlKey(content)) return BadFile(name, "a key has more than 1000 parts");
  try {
    return FromToml(toml::parse(content, name));
  } catch (const toml::parse_error& error) {
    return BadFile(name, fmt::format("not TOML: line {}: {}", error.source().begin.line,
                                     Printable(error.description())));
  }
}

// A whole number, as one or as its digits: JSON's numbers end at 2^53 in many programs.
Result<std::uint64_t> WholeOf(const Json& value, const std::string& field, std::uint64_t min,
                              std::uint64_t max) {
  if (!value.is_string() && !value.is_number())
    return Error{ErrorCode::kInvalidArgument, fmt::format("{} is not a whole number", field), ""};
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  return ParseUnsigned(field, text, min, max);
}

Result<WantedTag> ReadTag(const Json& item) {
  const auto bad = [](const std::string& what) { return Error{ErrorCode::kInvalidArgument, what, ""}; };
  if (!item.is_object()) return bad("a tag is not a table");
  WantedTag wanted;
  if (!item.contains("tag") || !item["tag"].is_string()) return bad("a tag has no field 'tag' with its name");
  wanted.tag = item["tag"].get<std::string>();
  LEAF_RETURN_IF_ERROR(ValidateTag(wanted.tag));
  const auto within = [&](Error error) {
    error.message = fmt::format("tag {}: {}", Quoted(wanted.tag), error.message);
    return error;
  };
  for (const auto& [field, value] : item.items()) {
    if (field == "tag" || std::find(kIgnored.begin(), kIgnored.end(), field) != kIgnored.end()) continue;
    if (value.is_null()) continue;  // as if it were not there
    if (field == "max_id") {
      auto number = WholeOf(value, field, 0, kMaxIdLimit);
      if (!number.ok()) return within(std::move(number).error());
      wanted.max_id = *number;
    } else if (field == "step") {
      auto number = WholeOf(value, field, 1, static_cast<std::uint64_t>(kStepMax));
      if (!number.ok()) return within(std::move(number).error());
      wanted.step = static_cast<std::int64_t>(*number);
    } else if (field == "description") {
      if (!value.is_string()) return within(bad("description is not a string"));
      wanted.description = value.get<std::string>();
      if (auto valid = ValidateDescription(*wanted.description, field); !valid.ok())
        return within(std::move(valid).error());
    } else if (field == "order") {
      wanted.order = core::TagOrderOf(value.is_string() ? value.get<std::string>() : "");
      if (!wanted.order) return within(bad("order is neither trend nor strict"));
    } else {
      return within(bad(fmt::format("unknown field {}; known are tag, max_id, step, description and order",
                                    Quoted(field))));
    }
  }
  return wanted;
}

}  // namespace

Result<std::vector<WantedTag>> ReadTagFile(std::string_view content, const std::string& name) {
  LEAF_ASSIGN_OR_RETURN(const Json json, Parse(content, name));
  for (const auto& [field, value] : json.items()) {
    if (field != "tags") return BadFile(name, fmt::format("unknown field {}; known is tags", Quoted(field)));
  }
  // An empty file is more often a slip than a wish for no tags.
  if (!json.contains("tags") || !json["tags"].is_array()) return BadFile(name, "it has no list of tags");
  std::vector<WantedTag> tags;
  std::vector<std::string> names;
  for (const Json& item : json["tags"]) {
    auto tag = ReadTag(item);
    if (!tag.ok()) return BadFile(name, tag.error().message);
    names.push_back(tag->tag);
    tags.push_back(*std::move(tag));
  }
  if (auto once = ValidateTags(names); !once.ok()) return BadFile(name, once.error().message);
  return tags;
}

std::optional<WantedTag> ToWantedTag(const core::TagRow& row,
                                     const std::function<void(const std::string&)>& note) {
  if (const auto valid = ValidateTag(row.tag); !valid.ok()) {
    note(fmt::format("note: left out: {}", valid.error().message));
    return std::nullopt;
  }
  if (const auto valid = ValidateNewTag(row.tag); !valid.ok())
    note(fmt::format("note: apply cannot add this tag to another table: {}", valid.error().message));
  const auto left_out = [&](const std::string& what) {
    note(fmt::format("note: left out: of tag {} {}", Quoted(row.tag), what));
  };
  WantedTag wanted;
  wanted.tag = row.tag;
  if (row.max_id >= 0 && static_cast<std::uint64_t>(row.max_id) <= kMaxIdLimit) {
    wanted.max_id = static_cast<std::uint64_t>(row.max_id);
  } else {
    left_out(fmt::format("max_id {}, which is no ID", row.max_id));
  }
  if (row.step >= 1 && row.step <= kStepMax) {
    wanted.step = row.step;
  } else {
    left_out(fmt::format("step {}, which is none", row.step));
  }
  if (row.strict) wanted.order = row.order();
  if (!row.description) return wanted;
  if (const auto valid = ValidateDescription(*row.description, "description"); valid.ok()) {
    wanted.description = row.description;
  } else {
    left_out(fmt::format("the description: {}", valid.error().message));
  }
  return wanted;
}

std::string FormatTagFile(const std::vector<WantedTag>& tags) {
  std::string text =
      "# Tags as leafctl tag export found them. leafctl tag apply -f FILE adds what is missing and changes\n"
      "# what differs; max_id only moves up.\n";
  // Without a tag the file still says that it has none.
  if (tags.empty()) return text + "tags = []\n";
  for (const WantedTag& tag : tags) {
    text += fmt::format("\n[[tags]]\ntag = {}\n", config::FormatToml(tag.tag));
    if (tag.max_id) text += fmt::format("max_id = {}\n", *tag.max_id);
    if (tag.step) text += fmt::format("step = {}\n", *tag.step);
    if (tag.order)
      text += fmt::format("order = {}\n", config::FormatToml(std::string(core::TagOrderName(*tag.order))));
    if (tag.description) text += fmt::format("description = {}\n", config::FormatToml(*tag.description));
  }
  return text;
}

}  // namespace leaf::cmd
