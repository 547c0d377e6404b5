// IDs written out for a client: few of them at once, many a piece at a time, as the client takes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/id_range.h"
#include "leaf/base/id_text.h"

namespace leaf::server {

// The lead, the IDs with the separator between any two, the tail. Static text.
struct IdsForm {
  std::string_view lead;
  std::string_view separator;
  std::string_view tail;
};
inline constexpr IdsForm kIdsAsJson{R"({"ids":[")", R"(",")", R"("]})"};
inline constexpr IdsForm kCodesAsJson{R"({"codes":[")", R"(",")", R"("]})"};
inline constexpr IdsForm kIdsAsText{"", "\n", "\n"};
inline constexpr IdsForm kIdAlone{"", "", ""};

// `text`: the form of each ID; null for decimal numbers. Requires: at least one range, and none empty; all
// IDs have that form.
void AppendIds(std::span<const IdRange> ranges, const IdsForm& form, std::string& out,
               const FixedIdText* text = nullptr);

// The same text, of which no part is in memory but while it is being sent. Not thread-safe.
class IdsText {
 public:
  // As of AppendIds.
  IdsText(std::span<const IdRange> ranges, const IdsForm& form,
          std::shared_ptr<const FixedIdText> text = nullptr);

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
  const std::shared_ptr<const FixedIdText> text_;
  std::uint64_t size_ = 0;
  std::uint64_t skipped_ = 0;
  std::size_t range_ = 0;          // in which the rest begins, or which follows the lead
  std::uint64_t range_begin_ = 0;  // the place of its first ID in the text
};

}  // namespace leaf::server
