#include "leaf/server/ids_text.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/decimal.h"

namespace leaf::server {
namespace {

// IDs that follow each other and have the same number of digits.
struct Batch {
  std::uint64_t end;
  std::uint64_t digits;
};

// Those that `range` begins with.
Batch FirstOf(IdRange range) {
  Batch batch{10, 1};
  for (; range.begin >= batch.end; ++batch.digits) batch.end *= 10;
  batch.end = std::min(batch.end, range.end);
  return batch;
}

// The text of IDs that follow each other and have the same number of digits, with the separator behind each.
class Lines {
 public:
  // Each ID copies so many bytes, also a shorter one: a copy of a fixed size needs no call.
  static constexpr std::size_t kCopied = 32;

  // Requires: a separator of at most kCopied - 20 bytes.
  Lines(std::uint64_t first, std::string_view separator) {
    LEAF_CHECK(separator.size() <= kCopied - kDigitsMax);
    const Decimal decimal(first);
    digits_ = decimal.text().copy(line_.data(), kDigitsMax);
    each_ = digits_ + separator.copy(line_.data() + digits_, separator.size());
  }

  std::size_t each() const { return each_; }

  // Writes the text of `count` IDs. Requires: none of them has another number of digits; space for count *
  // each() + kCopied bytes.
  void Write(std::uint64_t count, char* at) {
    const std::size_t last = digits_ - 1;
    while (true) {
      // Only the last digit changes, and not in the line: to write there what is read again next is slow.
      for (char digit = line_[last]; digit <= '9'; ++digit) {
        if (count-- == 0) return;
        std::memcpy(at, line_.data(), kCopied);
        at[last] = digit;
        at += each_;
      }
      line_[last] = '0';
      std::size_t carry = last;
      while (carry > 0 && line_[carry - 1] == '9') line_[--carry] = '0';
      if (carry > 0) ++line_[carry - 1];
    }
  }

 private:
  static constexpr std::size_t kDigitsMax = 20;  // of any 64 bits
  std::array<char, kCopied> line_{};
  std::size_t digits_ = 0;
  std::size_t each_ = 0;
};

// Appends IDs of `range`, with the separator behind each, until `out` has `enough` bytes. Returns the first
// ID that was not appended. Here and below `text` is null for decimal numbers.
std::uint64_t AppendSome(IdRange range, std::string_view separator, const FixedIdText* text,
                         std::size_t enough, std::string& out) {
  if (text != nullptr) {
    std::uint64_t next = range.begin;
    for (; next < range.end && out.size() < enough; ++next) {
      text->Append(out, next);
      out += separator;
    }
    return next;
  }
  if (range.size() == 1) {
    // In place, as Leaf's answer fits without an allocation.
    if (out.size() < enough) {
      out += Decimal(range.begin).text();
      out += separator;
      ++range.begin;
    }
    return range.begin;
  }
  while (!range.empty() && out.size() < enough) {
    Lines lines(range.begin, separator);
    const std::uint64_t missing = (enough - out.size() - 1) / lines.each() + 1;
    const std::uint64_t count = std::min(FirstOf(range).end - range.begin, missing);
    const std::size_t begin = out.size();
    out.resize(begin + count * lines.each() + Lines::kCopied);
    lines.Write(count, out.data() + begin);
    out.resize(begin + count * lines.each());
    range.begin += count;
  }
  return range.begin;
}

// Of all IDs of `range`, with the separator behind each.
std::uint64_t BytesOf(IdRange range, std::size_t separator, const FixedIdText* text) {
  if (text != nullptr) return range.size() * (text->width() + separator);
  std::uint64_t bytes = 0;
  while (!range.empty()) {
    const Batch batch = FirstOf(range);
    bytes += (batch.end - range.begin) * (batch.digits + separator);
    range.begin = batch.end;
  }
  return bytes;
}

struct Place {
  std::uint64_t id;
  std::uint64_t offset;  // from its first digit on
};

// Where the byte `offset` of the text of `range` is; behind the last separator it is the last ID's.
Place Find(IdRange range, std::size_t separator, const FixedIdText* text, std::uint64_t offset) {
  if (text != nullptr) {
    const std::uint64_t each = text->width() + separator;
    const std::uint64_t before = std::min(offset / each, range.size() - 1);
    return {range.begin + before, offset - before * each};
  }
  while (true) {
    const Batch batch = FirstOf(range);
    const std::uint64_t each = batch.digits + separator;
    const std::uint64_t last = batch.end - 1 - range.begin;
    if (batch.end == range.end || offset < (last + 1) * each) {
      const std::uint64_t before = std::min(offset / each, last);
      return {range.begin + before, offset - before * each};
    }
    offset -= (last + 1) * each;
    range.begin = batch.end;
  }
}

void ReplaceEnd(std::string& out, const IdsForm& form) {
  out.resize(out.size() - form.separator.size());
  out += form.tail;
}

}  // namespace

void AppendIds(std::span<const IdRange> ranges, const IdsForm& form, std::string& out,
               const FixedIdText* text) {
  out += form.lead;
  for (const IdRange& range : ranges)
    AppendSome(range, form.separator, text, std::numeric_limits<std::size_t>::max(), out);
  ReplaceEnd(out, form);
}

IdsText::IdsText(std::span<const IdRange> ranges, const IdsForm& form,
                 std::shared_ptr<const FixedIdText> text)
    : ranges_(ranges.begin(), ranges.end()),
      form_(form),
      text_(std::move(text)),
      range_begin_(form.lead.size()) {
  LEAF_CHECK(!ranges_.empty());
  size_ = form_.lead.size() + form_.tail.size() - form_.separator.size();
  for (const IdRange& range : ranges_) size_ += BytesOf(range, form_.separator.size(), text_.get());
}

void IdsText::Peek(std::size_t most, std::string& out) const {
  const std::size_t begin = out.size();
  const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(most, rest()));
  std::size_t surplus = 0;  // in front of what is wanted
  IdRange range = ranges_[range_];
  if (skipped_ < range_begin_) {
    out += form_.lead.substr(static_cast<std::size_t>(skipped_));
  } else {
    const Place place = Find(range, form_.separator.size(), text_.get(), skipped_ - range_begin_);
    range.begin = place.id;
    surplus = static_cast<std::size_t>(place.offset);
  }
  const std::size_t enough = begin + surplus + wanted;
  for (std::size_t at = range_; out.size() < enough; range = ranges_[at]) {
    const bool whole = AppendSome(range, form_.separator, text_.get(), enough, out) == range.end;
    if (whole && ++at == ranges_.size()) {
      ReplaceEnd(out, form_);
      break;
    }
  }
  out.resize(enough);
  out.erase(begin, surplus);
}

void IdsText::Skip(std::uint64_t bytes) {
  LEAF_CHECK(bytes <= rest());
  skipped_ += bytes;
  while (range_ + 1 < ranges_.size()) {
    const std::uint64_t end = range_begin_ + BytesOf(ranges_[range_], form_.separator.size(), text_.get());
    if (skipped_ < end) return;
    range_begin_ = end;
    ++range_;
  }
}

}  // namespace leaf::server
