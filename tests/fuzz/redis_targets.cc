// What clients of the Redis port send.
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/targets.h"
#include "leaf/base/check.h"
#include "leaf/server/net/protocol.h"
#include "leaf/server/resp/command_reader.h"

namespace leaf::fuzz {
namespace {

using server::resp::CommandReader;

struct ReadCommands {
  std::vector<std::vector<std::string>> commands;
  bool is_broken = false;
  std::size_t left = 0;  // bytes of a command that is not whole
  friend bool operator==(const ReadCommands&, const ReadCommands&) = default;
};

// The commands on a connection whose bytes come `piece` at a time, up to what is none.
ReadCommands Read(std::string_view bytes, std::size_t piece) {
  ReadCommands read;
  CommandReader reader(server::kReadBytesMax);
  std::string buffer;
  while (true) {
    while (!buffer.empty()) {
      const auto outcome = reader.Read(buffer);
      if (outcome == CommandReader::Outcome::kMore) break;
      if (outcome == CommandReader::Outcome::kBroken) {
        LEAF_CHECK(!reader.why().empty());  // a refusal says why
        read.is_broken = true;
        return read;
      }
      LEAF_CHECK(reader.size() > 0 && reader.size() <= buffer.size());  // a command is some of the bytes
      if (outcome == CommandReader::Outcome::kCommand) {
        LEAF_CHECK(!reader.words().empty());  // a command has a name
        read.commands.emplace_back(reader.words().begin(), reader.words().end());
      }
      buffer.erase(0, reader.size());
      reader.Release();
    }
    LEAF_CHECK(buffer.size() <= server::kReadBytesMax);  // no command is longer than the buffer
    if (bytes.empty()) break;
    const std::size_t room = server::kReadBytesMax - buffer.size();
    LEAF_CHECK(room > 0);  // a buffer that is full holds a command, or what is none
    const std::size_t size = std::min({piece, bytes.size(), room});
    buffer += bytes.substr(0, size);
    bytes.remove_prefix(size);
  }
  read.left = buffer.size();
  return read;
}

}  // namespace

void RedisCommands(std::string_view input) {
  const ReadCommands whole = Read(input, server::kReadBytesMax);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{100}})
    LEAF_CHECK(Read(input, piece) == whole);  // commands are the same however their bytes come
  // As clients write them, they are read as they were.
  std::string written;
  for (const auto& command : whole.commands) {
    written += "*" + std::to_string(command.size()) + "\r\n";
    for (const std::string& word : command)
      written += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
  }
  const ReadCommands again = Read(written, server::kReadBytesMax);
  const bool fits = std::all_of(whole.commands.begin(), whole.commands.end(), [](const auto& command) {
    std::size_t bytes = 32;
    for (const std::string& word : command) bytes += word.size() + 32;
    return bytes < server::kReadBytesMax;
  });
  if (fits) LEAF_CHECK(again.commands == whole.commands);  // commands are read as they are written
}

}  // namespace leaf::fuzz
