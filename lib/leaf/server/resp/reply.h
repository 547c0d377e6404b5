// Replies in Redis' protocol, and errors in its words.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "leaf/base/error.h"

namespace leaf::server::resp {

// What a client has asked for by HELLO.
enum class Version : std::uint8_t { kResp2 = 2, kResp3 = 3 };

// Appends replies to a text. Not thread-safe.
class ReplyWriter {
 public:
  ReplyWriter(Version version, std::string& out) : version_(version), out_(out) {}

  Version version() const { return version_; }
  std::string& out() { return out_; }

  // Static text of ASCII, without the end of a line.
  void Simple(std::string_view text);
  // Begins with a word in capitals. What could end the line is replaced.
  void Error(std::string_view text);
  void Integer(std::uint64_t value);
  void Bulk(std::string_view text);
  // An ID as text: JavaScript's numbers are exact up to 2^53 only.
  void BulkId(std::uint64_t id);
  void Null();
  void Bool(bool value);
  // Followed by so many replies.
  void Array(std::size_t count);
  // Followed by so many pairs of replies; in RESP2 an array of twice as many.
  void Map(std::size_t pairs);

 private:
  void Head(char sign, std::uint64_t value);

  const Version version_;
  std::string& out_;
};

// Integers that mostly follow each other, as the IDs of one connection do: then only the last digit is
// written anew. Not thread-safe.
class RisingIntegers {
 public:
  // Appends `value` as ReplyWriter::Integer.
  void Append(std::uint64_t value, std::string& out) {
    if (size_ > 0 && value > last_ && value - last_ == 1 && text_[size_ - 3] != '9') [[likely]] {
      ++text_[size_ - 3];
    } else {
      Write(value);
    }
    last_ = value;
    out.append(text_.data(), size_);
  }

 private:
  void Write(std::uint64_t value);

  std::array<char, 24> text_;  // ":", 20 digits at most, "\r\n"
  std::size_t size_ = 0;
  std::uint64_t last_ = 0;
};

// The word that clients switch on: "NOTFOUND", and "ERR" for what the caller did wrong.
std::string_view WordOf(ErrorCode code);

// As one line, with the word, and what to do about it.
std::string ErrorText(const leaf::Error& error);

}  // namespace leaf::server::resp
