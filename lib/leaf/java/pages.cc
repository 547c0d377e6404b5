#include "leaf/java/pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "leaf/base/text.h"

namespace leaf::java {
namespace {

std::string_view WithoutSpaces(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// The language of the header that is wanted most, lower case, without its region; "" if there is none.
std::string FirstLanguage(std::string_view header) {
  std::string best;
  double best_quality = 0;
  while (!header.empty()) {
    const std::size_t comma = std::min(header.find(','), header.size());
    std::string_view item = header.substr(0, comma);
    header.remove_prefix(std::min(comma + 1, header.size()));
    double quality = 1;
    if (const std::size_t semicolon = item.find(';'); semicolon != std::string_view::npos) {
      const std::string_view parameter = WithoutSpaces(item.substr(semicolon + 1));
      item = item.substr(0, semicolon);
      quality = 0;
      if (parameter.starts_with("q="))
        std::from_chars(parameter.data() + 2, parameter.data() + parameter.size(), quality);
    }
    if (quality <= best_quality) continue;
    best_quality = quality;
    item = WithoutSpaces(item);
    best = LowerCase(item.substr(0, item.find('-')));
  }
  return best;
}

std::string Page(std::initializer_list<std::string_view> columns, const std::string& rows) {
  std::string head;
  for (const std::string_view column : columns) head += fmt::format("<th>{}</th>", column);
  return fmt::format(
      "<!DOCTYPE html PUBLIC \"-//W3C//DTD HTML 4.01//EN\" \"http://www.w3.org/TR/html4/strict.dtd\">\n"
      "<html>\n<head>\n<meta http-equiv=\"Content-Type\" content=\"text/html; charset=UTF-8\">\n"
      "<title>Leaf</title>\n</head>\n<body>\n<table "
      "border=\"1\">\n<thead>\n<tr>{}</tr>\n</thead>\n<tbody>\n{}</tbody>\n</table>\n</body>\n</html>\n",
      head, rows);
}

void AppendRow(std::string& rows, std::span<const std::string> cells) {
  rows += "<tr>";
  for (const std::string& cell : cells) fmt::format_to(std::back_inserter(rows), "<td>{}</td>", cell);
  rows += "</tr>\n";
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  constexpr std::string_view kMarkup = "&<>\"'";
  constexpr std::array<std::string_view, 5> kEntities{"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const std::size_t place = kMarkup.find(c);
    out += place == std::string_view::npos ? std::string_view(&c, 1) : kEntities[place];
  }
  return out;
}

std::string_view GroupSeparator(std::string_view accept_language) {
  const std::string language = FirstLanguage(accept_language);
  if (language == "de") return ".";
  if (language == "fr") return "\u202F";
  return ",";
}

std::string GroupDigits(std::int64_t number, std::string_view separator) {
  const std::string digits = std::to_string(number);
  const std::size_t sign = number < 0 ? 1 : 0;
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) out += separator;
    out += digits[i];
  }
  return out;
}

std::string FormatJdbc(WallTime time) {
  std::string text = FormatLocal(time);  // with three digits behind the point
  while (text.ends_with('0') && !text.ends_with(".0")) text.pop_back();
  return text;
}

LeafView LeafViewOf(std::string tag, bool initialised, std::span<const core::SegmentBuffer::Held> held,
                    std::span<const IdRange> recent) {
  LeafView view{std::move(tag), initialised, held.size() > 1, 0, {}};
  // Leaf's two segments take turns, and so do the places of ours.
  view.position = held.empty() ? 0 : static_cast<std::size_t>(held.front().number % 2);
  for (std::size_t i = 0; i < std::min<std::size_t>(held.size(), 2); ++i) {
    std::uint64_t step = held[i].size;
    // What the grant's first IDs were given to at once is part of it.
    for (const IdRange& grant : recent) {
      if (grant.end == held[i].end) step = grant.size();
    }
    view.segments[(view.position + i) % 2] = {held[i].next, held[i].end, step};
  }
  return view;
}

std::string CachePage(std::vector<LeafView> tags, std::string_view accept_language) {
  std::sort(tags.begin(), tags.end(), [](const auto& a, const auto& b) { return a.tag < b.tag; });
  const std::string_view separator = GroupSeparator(accept_language);
  const auto number = [&](std::uint64_t value) {
    return GroupDigits(static_cast<std::int64_t>(value), separator);
  };
  std::string rows;
  for (const LeafView& tag : tags) {
    const auto& [first, second] = tag.segments;
    AppendRow(rows,
              std::array<std::string, 10>{EscapeHtml(tag.tag), tag.initialised ? "true" : "false",
                                          tag.next_ready ? "true" : "false", std::to_string(tag.position),
                                          number(first.value), number(first.max), number(first.step),
                                          number(second.value), number(second.max), number(second.step)});
  }
  return Page({"name", "init", "next", "pos", "value0", "max0", "step0", "value1", "max1", "step1"}, rows);
}

std::string DbPage(std::vector<core::TagRow> table, std::string_view accept_language) {
  std::sort(table.begin(), table.end(), [](const auto& a, const auto& b) { return a.tag < b.tag; });
  const std::string_view separator = GroupSeparator(accept_language);
  std::string rows;
  for (const core::TagRow& row : table) {
    AppendRow(rows,
              std::array<std::string, 4>{EscapeHtml(row.tag), GroupDigits(row.max_id, separator),
                                         GroupDigits(row.step, separator), FormatJdbc(row.update_time)});
  }
  return Page({"tag", "max", "step", "update"}, rows);
}

}  // namespace leaf::java
