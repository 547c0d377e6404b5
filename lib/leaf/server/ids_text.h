// IDs written out for a client: few of them at once, many a piece at a time, as the client takes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/id_range.h"

namespace leaf::server {

// The lead, the IDs with the separator between any two, the tail. Static text.
struct IdsForm {
  std::string_view lead;
  std::string_view separator;
  std::string_view tail;
};
inline constexpr IdsForm kIdsAsJson{R"({"ids":[")", R"(",")", R"("]})"};
inline constexpr IdsForm kIdsAsText{"", "\n", "\n"};
inline constexpr IdsForm kIdAlone{"", "", ""};

// Requires: at least one range, and none empty.
void AppendIds(std::span<const IdRange> ranges, const IdsForm& form, std::string& out);

// The same text, of which no part is in memory but while it is being sent. Not thread-safe.
class IdsText {
 public:
  // Requires: at least one range, and none empty.
  IdsText(std::span<const IdRange> ranges, const IdsForm& form);

  // Of the whole text.
  std::uint64_t size() const { return size_; }
  // Of what follows the skipped part.
  std::uint64_t rest() const { return size_ - skipped_; }
  // Appends the next `most` bytes, or all that are left. Costs what it appends.
  void Peek(std::size_t most, std::string& out) const;
  // The next `bytes` are done with. Requires: bytes <= rest().
  void Skip(std::uint64_t bytes);
  // Memory.
  std::size_t held_bytes() const { return sizeof *this + ranges_.capacity() * sizeof(IdRange); }

 private:
  const std::vector<IdRange> ranges_;
  const IdsForm form_;
  std::uint64_t size_ = 0;
  std::uint64_t skipped_ = 0;
  std::size_t range_ = 0;          // in which the rest begins, or which follows the lead
  std::uint64_t range_begin_ = 0;  // the place of its first ID in the text
};

}  // namespace leaf::server
