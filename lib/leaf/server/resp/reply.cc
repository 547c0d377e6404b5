#include "leaf/server/resp/reply.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "leaf/base/check.h"
#include "leaf/base/decimal.h"
#include "leaf/server/error_meaning.h"

namespace leaf::server::resp {
namespace {

constexpr std::string_view kEnd = "\r\n";
constexpr std::size_t kDigitsMax = 20;

}  // namespace

void ReplyWriter::Head(char sign, std::uint64_t value) {
  const Decimal decimal(value);
  const std::string_view digits = decimal.text();
  std::array<char, kDigitsMax + 3> text;
  text[0] = sign;
  std::memcpy(&text[1], digits.data(), digits.size());
  std::memcpy(&text[1 + digits.size()], kEnd.data(), kEnd.size());
  out_.append(text.data(), 1 + digits.size() + kEnd.size());
}

void RisingIntegers::Write(std::uint64_t value) {
  std::string text;
  ReplyWriter(Version::kResp2, text).Integer(value);
  LEAF_CHECK(text.size() <= text_.size());
  std::memcpy(text_.data(), text.data(), text.size());
  size_ = text.size();
}

void ReplyWriter::Simple(std::string_view text) {
  out_ += '+';
  out_ += text;
  out_ += kEnd;
}

void ReplyWriter::Error(std::string_view text) {
  out_ += '-';
  for (const char c : text) out_ += c == '\r' || c == '\n' ? ' ' : c;
  out_ += kEnd;
}

void ReplyWriter::Integer(std::uint64_t value) { Head(':', value); }

void ReplyWriter::Bulk(std::string_view text) {
  Head('$', text.size());
  out_ += text;
  out_ += kEnd;
}

void ReplyWriter::BulkId(std::uint64_t id) { Bulk(Decimal(id).text()); }

void ReplyWriter::Null() { out_ += version_ == Version::kResp3 ? "_\r\n" : "$-1\r\n"; }

void ReplyWriter::Bool(bool value) {
  if (version_ == Version::kResp3) {
    out_ += value ? "#t\r\n" : "#f\r\n";
  } else {
    Integer(value ? 1 : 0);
  }
}

void ReplyWriter::Array(std::size_t count) { Head('*', count); }

void ReplyWriter::Map(std::size_t pairs) {
  if (version_ == Version::kResp3) {
    Head('%', pairs);
  } else {
    Head('*', 2 * pairs);
  }
}

std::string_view WordOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kTooLarge:
    case ErrorCode::kInternal:
      return "ERR";
    case ErrorCode::kNotFound:
      return "NOTFOUND";
    case ErrorCode::kFrozen:
      return "FROZEN";
    case ErrorCode::kPaused:
      return "PAUSED";
    case ErrorCode::kLimited:
      return "LIMITED";
    case ErrorCode::kExhausted:
    case ErrorCode::kUnavailable:
    case ErrorCode::kOutcomeUnknown:
    case ErrorCode::kClock:
      return "TRYAGAIN";
    case ErrorCode::kOverflow:
      return "OVERFLOW";
    case ErrorCode::kNotOwner:
      return "NOTOWNER";
    case ErrorCode::kDisabled:
      return "DISABLED";
    case ErrorCode::kConfig:
      return "CONFIG";
    case ErrorCode::kRefused:
      return "REFUSED";
    default:
      return "UNAVAILABLE";
  }
}

std::string ErrorText(const leaf::Error& error) {
  std::string text = fmt::format("{} {}", WordOf(error.code), error.message);
  if (MeaningOf(error.code).retry) text += fmt::format("; retry in {} s", kRetryAfterSeconds);
  if (!error.hint.empty()) text += fmt::format(" ({})", error.hint);
  return text;
}

}  // namespace leaf::server::resp
