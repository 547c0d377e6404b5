// Java Leaf's two pages for people, /cache and /db: its columns, in its order. What is different is
// deliberate: tags are escaped (Leaf runs what a tag's name holds), rows stand in the order of the tags, and
// a segment that is used up shows zeros instead of what it once held.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/id_range.h"
#include "leaf/base/time.h"
#include "leaf/core/ports.h"
#include "leaf/core/segment_buffer.h"

namespace leaf::java {

// A tag as /cache shows it: two segments, of which one is in use.
struct LeafView {
  struct Segment {
    std::uint64_t value = 0;  // the next ID
    std::uint64_t max = 0;    // exclusive
    std::uint64_t step = 0;   // what was granted with it
  };
  std::string tag;
  bool initialised = false;
  bool next_ready = false;
  std::size_t position = 0;  // the segment in use
  std::array<Segment, 2> segments;
};

// `held`: what the tag has in reserve; `recent`: what was granted to it last.
LeafView LeafViewOf(std::string tag, bool initialised, std::span<const core::SegmentBuffer::Held> held,
                    std::span<const IdRange> recent);

// Text that stands for itself in HTML, also within a quoted attribute.
std::string EscapeHtml(std::string_view text);

// How a number's groups of three are parted where a reader of `accept_language` (the header's value) lives:
// "," in English and wherever nothing else is known, "." in German, a narrow no-break space in French.
std::string_view GroupSeparator(std::string_view accept_language);
std::string GroupDigits(std::int64_t number, std::string_view separator);

// As JDBC writes a Timestamp: "2026-11-20 11:29:38.0", in the process's time zone.
std::string FormatJdbc(WallTime time);

std::string CachePage(std::vector<LeafView> tags, std::string_view accept_language);
std::string DbPage(std::vector<core::TagRow> rows, std::string_view accept_language);

}  // namespace leaf::java
