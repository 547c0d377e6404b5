// Java Leaf's two pages for people, /cache and /db: its columns, in its order. What is different is
// deliberate: tags are escaped (Leaf runs what a tag's name holds), rows stand in the order of the tags, and
// a segment that is used up shows zeros instead of what it once held.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "leaf/core/ports.h"
#include "leaf/service/tag_generator.h"

namespace leaf::server {

inline constexpr std::string_view kHtml = "text/html;charset=UTF-8";
// A page that is text only.
inline constexpr std::string_view kNothingActive =
    "Content-Security-Policy: default-src 'none'; base-uri 'none'; form-action 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n";

// Text that stands for itself in HTML, also within a quoted attribute.
std::string EscapeHtml(std::string_view text);

// How a number's groups of three are parted where a reader of `accept_language` (the header's value) lives:
// "," in English and wherever nothing else is known, "." in German, a narrow no-break space in French.
std::string_view GroupSeparator(std::string_view accept_language);
std::string GroupDigits(std::int64_t number, std::string_view separator);

// As JDBC writes a Timestamp: "2026-11-20 11:29:38.0", in the process's time zone.
std::string FormatJdbc(WallTime time);

std::string CachePage(std::vector<service::LeafView> tags, std::string_view accept_language);
std::string DbPage(std::vector<core::TagRow> rows, std::string_view accept_language);

}  // namespace leaf::server
