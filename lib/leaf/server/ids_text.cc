#include "leaf/server/ids_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "leaf/base/check.h"

namespace leaf::server {
namespace {

// The digits of IDs that follow each other: the first is converted, and each other made of the one before it.
class Digits {
 public:
  explicit Digits(std::uint64_t id) {
    std::array<char, kSize> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + kSize, id).ptr;
    begin_ = static_cast<std::size_t>(digits.data() + kSize - end);
    std::copy(digits.data(), end, text_.data() + begin_);
  }

  std::string_view text() const { return {text_.data() + begin_, kSize - begin_}; }

  void Next() {
    std::size_t at = kSize;
    while (at > begin_ && text_[at - 1] == '9') text_[--at] = '0';
    if (at > begin_) {
      ++text_[at - 1];
    } else {
      text_[--begin_] = '1';
    }
  }

 private:
  static constexpr std::size_t kSize = 20;  // of any 64 bits
  std::array<char, kSize> text_{};          // from begin_ on
  std::size_t begin_ = kSize;
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
  Digits digits(range.begin);
  std::uint64_t id = range.begin;
  for (; id < range.end && out.size() < enough; ++id, digits.Next()) {
    out += digits.text();
    out += separator;
  }
  return id;
}

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
