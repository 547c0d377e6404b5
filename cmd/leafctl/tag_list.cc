// leafctl tag list
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "help_text.h"
#include "leaf/base/id_text.h"
#include "leaf/base/text.h"
#include "tag_book.h"
#include "tag_output.h"
#include "text_width.h"

namespace leaf::cmd {
namespace {

struct TagListOptions {
  std::optional<std::string> pattern;
  std::string sort = "tag";
  bool reverse = false;
  std::optional<std::string> limit;
  std::vector<std::string> columns;
  TagPlace place;
};

// One column of the table: how it is asked for, what stands above it, and what it shows.
struct Column {
  std::string_view name;
  std::string_view heading;
  std::size_t width;  // at least
  bool right;
  std::string (*text)(const ListedTag&);
  std::string (*csv)(const ListedTag&);
  // Ascending. Ties stay in the order of the tags.
  bool (*less)(const ListedTag&, const ListedTag&);
  // Nothing to show of most: without --columns it is there if a tag that is listed has it. Null: always.
  bool (*has)(const ListedTag&) = nullptr;
};

std::string DescriptionOf(const ListedTag& tag) { return tag.row.description.value_or(""); }
// Neither may disturb a terminal, or the lines of the table.
std::string ShownTag(const ListedTag& tag) { return Printable(tag.row.tag); }
std::string ShownDescription(const ListedTag& tag) { return Printable(DescriptionOf(tag)); }
// What nothing is known of comes last.
double DaysOf(const ListedTag& tag) {
  return tag.days_left.value_or(std::numeric_limits<double>::infinity());
}

std::optional<double> CodeDaysOf(const ListedTag& tag) {
  return tag.codes_left ? tag.codes_left->days : std::nullopt;
}

std::string OrderOf(const ListedTag& tag) { return std::string(core::TagOrderName(tag.row.order())); }

constexpr std::array<Column, 8> kColumns{{
    {"tag", "TAG", 3, false, ShownTag, [](const ListedTag& tag) { return tag.row.tag; },
     [](const ListedTag& a, const ListedTag& b) { return a.row.tag < b.row.tag; }},
    {"max_id", "MAX_ID", 19, true, [](const ListedTag& tag) { return std::to_string(tag.row.max_id); },
     [](const ListedTag& tag) { return std::to_string(tag.row.max_id); },
     [](const ListedTag& a, const ListedTag& b) { return a.row.max_id < b.row.max_id; }},
    {"step", "STEP", 10, true, [](const ListedTag& tag) { return std::to_string(tag.row.step); },
     [](const ListedTag& tag) { return std::to_string(tag.row.step); },
     [](const ListedTag& a, const ListedTag& b) { return a.row.step < b.row.step; }},
    {"updated", "UPDATED", 24, false, [](const ListedTag& tag) { return FormatRfc3339(tag.row.update_time); },
     [](const ListedTag& tag) { return FormatRfc3339(tag.row.update_time); },
     [](const ListedTag& a, const ListedTag& b) { return a.row.update_time < b.row.update_time; }},
    {"days_left", "DAYS LEFT", 9, true, [](const ListedTag& tag) { return DaysLeftText(tag.days_left); },
     [](const ListedTag& tag) { return tag.days_left ? fmt::format("{:.1f}", *tag.days_left) : ""; },
     [](const ListedTag& a, const ListedTag& b) { return DaysOf(a) < DaysOf(b); }},
    {"code_days_left", "CODE DAYS", 9, true,
     [](const ListedTag& tag) { return DaysLeftText(CodeDaysOf(tag)); },
     [](const ListedTag& tag) { return CodeDaysOf(tag) ? fmt::format("{:.1f}", *CodeDaysOf(tag)) : ""; },
     [](const ListedTag& a, const ListedTag& b) {
       constexpr double kUnknown = std::numeric_limits<double>::infinity();
       return CodeDaysOf(a).value_or(kUnknown) < CodeDaysOf(b).value_or(kUnknown);
     },
     [](const ListedTag& tag) { return tag.codes_left.has_value(); }},
    {"order", "ORDER", 6, false, OrderOf, OrderOf,
     [](const ListedTag& a, const ListedTag& b) { return a.row.order() < b.row.order(); }},
    {"description", "DESCRIPTION", 0, false, ShownDescription, DescriptionOf,
     [](const ListedTag& a, const ListedTag& b) { return DescriptionOf(a) < DescriptionOf(b); }},
}};

// Errors: kInvalidArgument that names the column and all there are.
Result<const Column*> FindColumn(std::string_view flag, const std::string& name) {
  std::vector<std::string> names;
  for (const Column& column : kColumns) {
    if (column.name == name) return &column;
    names.emplace_back(column.name);
  }
  const auto nearest = NearestName(name, names);
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("bad {} {}: not {}", flag, Quoted(name), Alternatives(names)),
               nearest ? fmt::format("did you mean {}?", *nearest) : ""};
}

Result<std::vector<const Column*>> ChosenColumns(const TagListOptions& options) {
  std::vector<const Column*> chosen;
  for (const std::string& name : options.columns) {
    LEAF_ASSIGN_OR_RETURN(const Column* const column, FindColumn("--columns", name));
    chosen.push_back(column);
  }
  return chosen;
}

std::vector<const Column*> UsualColumns(const std::vector<ListedTag>& tags) {
  std::vector<const Column*> usual;
  for (const Column& column : kColumns) {
    if (column.has == nullptr || std::any_of(tags.begin(), tags.end(), column.has)) usual.push_back(&column);
  }
  return usual;
}

void SortBy(const Column& column, bool reverse, std::vector<ListedTag>& tags) {
  std::stable_sort(tags.begin(), tags.end(), kColumns.front().less);
  std::stable_sort(tags.begin(), tags.end(), column.less);
  if (reverse) std::reverse(tags.begin(), tags.end());
}

Result<std::vector<ListedTag>> ReadTags(CommandContext& context, const TagListOptions& options) {
  LEAF_ASSIGN_OR_RETURN(const Column* const sort, FindColumn("--sort", options.sort));
  LEAF_ASSIGN_OR_RETURN(const auto book,
                        OpenTagBook(context, options.place, Store::Access::kLook, "tag list"));
  LEAF_ASSIGN_OR_RETURN(std::vector<ListedTag> tags, book->ListWithDays());
  if (options.pattern) {
    std::erase_if(tags, [&](const ListedTag& tag) { return !MatchesPattern(*options.pattern, tag.row.tag); });
  }
  SortBy(*sort, options.reverse, tags);
  return tags;
}

void WriteTable(CommandContext& context, const std::vector<const Column*>& columns,
                const std::vector<ListedTag>& tags) {
  // Numbers and times fit their columns; names and descriptions are as long as they are.
  std::vector<std::size_t> widths;
  for (const Column* column : columns) {
    std::size_t width = std::max(column->width, column->heading.size());
    if (column->name == "tag" || (column->name == "description" && column != columns.back())) {
      for (const ListedTag& tag : tags) width = std::max(width, DisplayColumns(column->text(tag)));
    }
    widths.push_back(width);
  }
  const auto write = [&](const auto& cell) {
    std::string line;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (i > 0) line += "  ";
      const std::string text = cell(*columns[i]);
      line += columns[i]->right || DisplayColumns(text) > widths[i] ? RightIn(text, widths[i])
                                                                    : FittedTo(text, widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    context.out.Write(line + "\n");
  };
  write([](const Column& column) { return std::string(column.heading); });
  for (const ListedTag& tag : tags) write([&](const Column& column) { return column.text(tag); });
}

// RFC 4180: quotes where they are needed, and a quote in them twice.
std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += c;
    quoted += c;
  }
  return quoted + '"';
}

void WriteCsv(CommandContext& context, const std::vector<const Column*>& columns,
              const std::vector<ListedTag>& tags) {
  const auto write = [&](const auto& cell) {
    std::string line;
    for (const Column* column : columns) {
      if (column != columns.front()) line += ',';
      line += CsvField(cell(*column));
    }
    context.out.Write(line + "\n");
  };
  write([](const Column& column) { return std::string(column.name); });
  for (const ListedTag& tag : tags) write([&](const Column& column) { return column.csv(tag); });
}

Result<void> RunTagList(CommandContext& context, const TagListOptions& options) {
  std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
  if (options.limit) {
    LEAF_ASSIGN_OR_RETURN(limit, ParseUnsigned("--limit", *options.limit, 1, 1'000'000'000));
  }
  if (context.flags.json && !options.columns.empty()) {
    return Error{ErrorCode::kInvalidArgument, "--columns and --json exclude each other",
                 "the JSON document has every field"};
  }
  LEAF_ASSIGN_OR_RETURN(std::vector<const Column*> columns, ChosenColumns(options));
  LEAF_ASSIGN_OR_RETURN(std::vector<ListedTag> tags, ReadTags(context, options));
  const std::size_t count = tags.size();
  tags.resize(std::min<std::uint64_t>(count, limit));
  if (columns.empty()) columns = UsualColumns(tags);
  if (context.flags.json) {
    Json list = Json::array();
    for (const ListedTag& listed : tags) {
      list.push_back(ListedJson(listed));
    }
    WriteJson(context, {{"tags", std::move(list)}});
  } else if (context.flags.csv) {
    WriteCsv(context, columns, tags);
  } else {
    WriteTable(context, columns, tags);
  }
  if (tags.size() < count) context.Note(fmt::format("note: {} of {} tags", tags.size(), count));
  return {};
}

}  // namespace

Result<void> SortTags(std::string_view flag, const std::string& column, bool reverse,
                      std::vector<ListedTag>& tags) {
  LEAF_ASSIGN_OR_RETURN(const Column* const found, FindColumn(flag, column));
  SortBy(*found, reverse, tags);
  return {};
}

Run AddTagList(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<TagListOptions>();
  app.add_option("PATTERN", options->pattern, "Only tags like this, with the shell's * and ? and [...]");
  app.add_option("--sort", options->sort, "Column to sort by")->type_name("COLUMN")->capture_default_str();
  app.add_flag("--reverse", options->reverse, "Largest or last first");
  app.add_option("--limit", options->limit, "Print at most N tags")->type_name("N");
  app.add_option("--columns", options->columns, "Columns to print, with commas between them")
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false);
  AddTagServerFlag(app, options->place);
  app.footer(
      "MAX_ID is where the next grant begins. DAYS LEFT: until the numbers end at 2^63, at the rate at which "
      "MAX_ID moved since this node was first granted the tag, or over the last one to two weeks.\n"
      "Columns: tag, max_id, step, updated, days_left, code_days_left (until IDs have no code; shown if a "
      "tag "
      "has codes), order, description.\n"
      "Examples:\n"
      "  leafctl tag list\n"
      "  leafctl tag list 'order*' --sort max_id --reverse --limit 10\n"
      "  leafctl tag list --columns tag,max_id -o csv");
  return [options](CommandContext& context) { return RunTagList(context, *options); };
}

}  // namespace leaf::cmd
