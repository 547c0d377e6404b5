// The bytes of a connection that speaks Redis' protocol, taken apart into commands; without the connection.
// The form is that of https://redis.io/docs/latest/develop/reference/protocol-spec/: an array of bulk
// strings, or a line of words ("inline"). The same in RESP2 and RESP3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace leaf::server::resp {

// Not thread-safe. One connection's, for one command after the other.
class CommandReader {
 public:
  enum class Outcome : std::uint8_t {
    kMore,     // the command is not whole yet
    kCommand,  // words() are there: one or more
    kNothing,  // what is done with held no command: an empty line or array
    kBroken,   // what has come is no command, nor will it be one: see why()
  };

  // `most`: no command is longer, in bytes.
  explicit CommandReader(std::size_t most) : most_(most) {}

  // Reads on. `bytes` begins with all that is not done with yet: what was given before, and what has come.
  Outcome Read(std::string_view bytes);

  // Of the command: its name and its arguments. Views of what was read, up to Release.
  std::span<const std::string_view> words() const { return words_; }
  // Whether the next bytes that are read begin a command.
  bool is_between_commands() const { return at_ == 0 && missing_ < 0; }
  // So many bytes are done with: the caller drops them, and calls Release.
  std::size_t size() const { return at_; }
  void Release();
  // Words that it has memory for.
  std::size_t room() const { return words_.capacity() + unquoted_.capacity(); }

  // In the words of Redis where it has some. Static text.
  std::string_view why() const { return why_; }

 private:
  Outcome ReadArray(std::string_view bytes);
  Outcome ReadInline(std::string_view bytes);
  bool SplitWords(std::string_view line);
  Outcome Broken(std::string_view why);

  // A number of Redis' protocol that ends a line: "*3\r\n".
  struct Number {
    bool is_whole = false;  // the line is there
    bool is_good = false;
    std::int64_t value = 0;
  };
  Number ReadNumber(std::string_view bytes);

  const std::size_t most_;
  std::size_t at_ = 0;         // all before it was read
  std::int64_t missing_ = -1;  // words of the array; -1 before its head
  std::vector<std::string_view> words_;
  const char* read_from_ = nullptr;    // where the bytes were that words_ are views of
  std::vector<std::string> unquoted_;  // words of a line that had quotes
  std::string_view why_;
};

}  // namespace leaf::server::resp
