// Replies in Redis' protocol, and errors in its words.
#pragma once

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

// The word that clients switch on: "NOTFOUND", and "ERR" for what the caller did wrong.
std::string_view WordOf(ErrorCode code);

// As one line, with the word, and what to do about it.
std::string ErrorText(const leaf::Error& error);

}  // namespace leaf::server::resp
