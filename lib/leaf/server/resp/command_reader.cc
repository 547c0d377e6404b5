#include "leaf/server/resp/command_reader.h"

#include <algorithm>
#include <optional>

#include "leaf/base/text.h"

namespace leaf::server::resp {
namespace {

// Lines of the protocol itself are this long at most: a sign, 19 digits, and more than a client has any use
// for.
constexpr std::size_t kNumberBytesMax = 32;
// So few digits fit into any number.
constexpr std::size_t kPlainDigitsMax = 9;
// No command here has a use for more, and words of no bytes take up more memory than what was sent for them.
constexpr std::size_t kWordsMax = 1024;
constexpr std::string_view kTooManyWords = "Protocol error: a command has more than 1024 words";
// Beyond Redis' own limit, with its words.
constexpr std::int64_t kRedisWordsMax = std::int64_t{1024} * 1024;
constexpr std::int64_t kWordBytesMax = std::int64_t{512} * 1024 * 1024;
// Room for so many is kept for the next command. Words are shorter than their room: without this, a
// connection at rest would keep many times what its longest command had.
constexpr std::size_t kWordsKept = 64;

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t' && c != '\r' && c != '\n') || byte == 0x7f;
}

std::optional<int> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = LowerCase(c);
  if (lower >= 'a' && lower <= 'f') return lower - 'a' + 10;
  return std::nullopt;
}

// One word in quotes, as redis-cli writes it: `line` begins behind the opening quote, and what was read is
// taken from it. Nothing if the word does not end, or is not followed by a blank.
std::optional<std::string> Unquote(std::string_view& line, char quote) {
  std::string word;
  while (!line.empty()) {
    const char c = line.front();
    line.remove_prefix(1);
    if (c == quote) {
      if (!line.empty() && !IsBlank(line.front())) return std::nullopt;
      return word;
    }
    if (c != '\\' || line.empty()) {
      word += c;
      continue;
    }
    const char escaped = line.front();
    if (quote == '\'') {
      word += escaped == '\'' ? '\'' : '\\';
      if (escaped == '\'') line.remove_prefix(1);
      continue;
    }
    line.remove_prefix(1);
    if (escaped == 'x' && line.size() >= 2) {
      const auto high = HexDigit(line[0]);
      const auto low = HexDigit(line[1]);
      if (high && low) {
        word += static_cast<char>(*high * 16 + *low);
        line.remove_prefix(2);
        continue;
      }
    }
    switch (escaped) {
      case 'n':
        word += '\n';
        break;
      case 'r':
        word += '\r';
        break;
      case 't':
        word += '\t';
        break;
      case 'b':
        word += '\b';
        break;
      case 'a':
        word += '\a';
        break;
      default:
        word += escaped;
    }
  }
  return std::nullopt;
}

}  // namespace

CommandReader::Outcome CommandReader::Read(std::string_view bytes) {
  const bool is_inline = at_ == 0 && missing_ < 0 && bytes.front() != '*';
  const Outcome outcome = is_inline ? ReadInline(bytes) : ReadArray(bytes);
  if (outcome == Outcome::kMore && bytes.size() >= most_)
    return Broken("Protocol error: the command is too long");
  return outcome;
}

void CommandReader::Release() {
  at_ = 0;
  missing_ = -1;
  words_.clear();
  unquoted_.clear();
  if (room() > kWordsKept) [[unlikely]] {
    std::vector<std::string_view>().swap(words_);
    std::vector<std::string>().swap(unquoted_);
  }
}

CommandReader::Outcome CommandReader::Broken(std::string_view why) {
  why_ = why;
  // The connection may last until its client has read the answer.
  std::vector<std::string_view>().swap(words_);
  std::vector<std::string>().swap(unquoted_);
  return Outcome::kBroken;
}

// From behind the sign of the line on; moves at_ behind the line's end.
CommandReader::Number CommandReader::ReadNumber(std::string_view bytes) {
  // Nearly all are a digit.
  if (at_ + 4 <= bytes.size() && bytes[at_ + 2] == '\r' && bytes[at_ + 3] == '\n' && bytes[at_ + 1] >= '0' &&
      bytes[at_ + 1] <= '9') [[likely]] {
    const char digit = bytes[at_ + 1];
    at_ += 4;
    return {.is_whole = true, .is_good = true, .value = digit - '0'};
  }
  std::size_t at = at_ + 1;
  std::int64_t value = 0;
  const std::size_t digits_end = std::min(bytes.size(), at + kPlainDigitsMax);
  for (; at < digits_end && bytes[at] >= '0' && bytes[at] <= '9'; ++at)
    value = value * 10 + (bytes[at] - '0');
  if (at > at_ + 1 && at + 1 < bytes.size() && bytes[at] == '\r' && bytes[at + 1] == '\n') {
    at_ = at + 2;
    return {.is_whole = true, .is_good = true, .value = value};
  }
  const std::string_view rest = bytes.substr(at_ + 1);
  const std::size_t end = rest.find('\r');
  // However its bytes come: a line that is too long is so before its end is there.
  if (std::min(end, rest.size()) > kNumberBytesMax) return {.is_whole = true};
  if (end == std::string_view::npos || end + 1 >= rest.size()) return {};
  const auto parsed = ParseWhole<std::int64_t>(rest.substr(0, end));
  const bool is_good = parsed && rest[end + 1] == '\n';
  at_ += 1 + end + 2;
  return {.is_whole = true, .is_good = is_good, .value = parsed.value_or(0)};
}

CommandReader::Outcome CommandReader::ReadArray(std::string_view bytes) {
  if (missing_ < 0) {
    const Number number = ReadNumber(bytes);
    if (!number.is_whole) return Outcome::kMore;
    if (!number.is_good || number.value < 0 || number.value > kRedisWordsMax)
      return Broken("Protocol error: invalid multibulk length");
    if (static_cast<std::size_t>(number.value) > kWordsMax) return Broken(kTooManyWords);
    if (number.value == 0) return Outcome::kNothing;
    missing_ = number.value;
  }
  // The bytes of a command that comes in pieces may move in between.
  if (read_from_ != bytes.data()) {
    for (std::string_view& word : words_)
      word = bytes.substr(static_cast<std::size_t>(word.data() - read_from_), word.size());
    read_from_ = bytes.data();
  }
  while (missing_ > 0) {
    if (at_ >= bytes.size()) return Outcome::kMore;
    if (bytes[at_] != '$') return Broken("Protocol error: expected '$' before each word of a command");
    const std::size_t begin = at_;
    const Number number = ReadNumber(bytes);
    if (!number.is_whole) return Outcome::kMore;
    if (!number.is_good || number.value < 0 || number.value > kWordBytesMax)
      return Broken("Protocol error: invalid bulk length");
    const auto size = static_cast<std::size_t>(number.value);
    const std::size_t end = at_ + size;
    if (end + 2 > most_) return Broken("Protocol error: the command is too long");
    if (bytes.size() < end + 2) {
      at_ = begin;
      return Outcome::kMore;
    }
    if (bytes[end] != '\r' || bytes[end + 1] != '\n')
      return Broken("Protocol error: a word is longer than it says");
    words_.emplace_back(bytes.data() + at_, size);
    at_ = end + 2;
    --missing_;
  }
  return Outcome::kCommand;
}

CommandReader::Outcome CommandReader::ReadInline(std::string_view bytes) {
  // The first byte of a TLS handshake is a control character.
  if (IsControl(bytes.front()))
    return Broken("Protocol error: this port speaks Redis' protocol, without TLS");
  const std::size_t end = bytes.find('\n');
  if (end == std::string_view::npos) return Outcome::kMore;
  std::string_view line = bytes.substr(0, end);
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (std::any_of(line.begin(), line.end(), IsControl))
    return Broken("Protocol error: a control character in an inline command");
  at_ = end + 1;
  if (!SplitWords(line)) {
    return Broken(words_.size() == kWordsMax ? kTooManyWords
                                             : "Protocol error: unbalanced quotes in request");
  }
  if (words_.empty()) return Outcome::kNothing;
  // A web page can make a browser send such a request here. Nothing of its body may be taken for commands.
  if (words_.back().starts_with("HTTP/") || LowerCase(words_.front()) == "host:")
    return Broken("Protocol error: this port speaks Redis' protocol, not HTTP");
  return Outcome::kCommand;
}

bool CommandReader::SplitWords(std::string_view line) {
  // A list of words that grows must not move those that words_ shows.
  unquoted_.reserve(
      std::min(kWordsMax, static_cast<std::size_t>(std::count(line.begin(), line.end(), '"') +
                                                   std::count(line.begin(), line.end(), '\''))));
  while (true) {
    line = TrimBlanks(line);
    if (line.empty()) return true;
    if (words_.size() == kWordsMax) return false;
    std::size_t end = 0;
    while (end < line.size() && !IsBlank(line[end]) && line[end] != '"' && line[end] != '\'') ++end;
    if (end == line.size() || IsBlank(line[end])) {
      words_.push_back(line.substr(0, end));
      line.remove_prefix(end);
      continue;
    }
    // The word has a quote, and ends with it.
    std::string word(line.substr(0, end));
    const char quote = line[end];
    line.remove_prefix(end + 1);
    const auto quoted = Unquote(line, quote);
    if (!quoted) return false;
    unquoted_.push_back(word + *quoted);
    words_.push_back(unquoted_.back());
  }
}

}  // namespace leaf::server::resp
