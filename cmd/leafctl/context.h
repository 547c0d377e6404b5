// The world as a command sees it: streams with their terminal facts, the environment, the clock, the
// configuration. Commands touch none of these in another way.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/mutex.h"
#include "leaf/base/result.h"
#include "leaf/config/loader.h"
#include "leaf/inspect/environment.h"
#include "leaf/sys/system_clock.h"

namespace leaf::cmd {

// An output stream on a file descriptor, buffered; errors are kept until Flush. A file that has no room for
// all of it ends with a whole line.
class Stream {
 public:
  Stream(int fd, bool is_terminal) : fd_(fd), is_terminal_(is_terminal) {}

  bool is_terminal() const { return is_terminal_; }
  // Of the terminal; 0 if there is none, or it does not tell.
  struct Size {
    std::size_t columns = 0;
    std::size_t rows = 0;
  };
  Size TerminalSize() const;
  // Written through once more than kBufferBytes have come together; up to that it is one write.
  void Write(std::string_view text);
  // Errors: kInternal if this or an earlier write failed.
  Result<void> Flush();
  // True once a write has failed: what is produced from then on is lost.
  bool failed() const { return failed_errno_ != 0; }
  // The reader of a pipe has closed it, and has what it wanted.
  bool reader_left() const { return failed_errno_ == EPIPE; }
  // How many whole lines were written so far.
  std::uint64_t lines_written() const { return lines_written_; }
  // For output made in large pieces: what is built here is taken over by the next Write or Flush.
  std::string& buffer() { return buffer_; }
  static constexpr std::size_t kBufferBytes = std::size_t{64} * 1024;

 private:
  void Count(std::string_view written);
  void CutLastLine() const;

  int fd_;
  bool is_terminal_;
  int failed_errno_ = 0;
  std::uint64_t lines_written_ = 0;
  std::size_t last_line_bytes_ = 0;  // written of a line that has no end yet
  std::string buffer_;
};

enum class Color { kAuto, kAlways, kNever };

struct GlobalFlags {
  std::optional<std::string> config_file;
  std::optional<std::string> state_dir;
  std::vector<std::string> more_state_dirs;  // of other nodes, for the commands that look at several
  std::vector<std::string> sets;             // "section.key=value"
  bool json = false;
  bool csv = false;  // for the commands that have it
  bool quiet = false;
  bool verbose = false;
  bool no_input = false;
  Color color = Color::kAuto;
  std::optional<std::chrono::milliseconds> timeout;
};

class CommandContext final : public inspect::Environment {
 public:
  CommandContext();

  GlobalFlags flags;
  // Further configuration from a command's own flags (`serve --listen`).
  std::vector<config::FlagValue> command_values;

  Stream out;
  const sys::SystemClock clock;

  bool stdin_is_terminal() const { return stdin_is_terminal_; }
  // A line from stdin without its newline; nullopt at its end.
  std::optional<std::string> ReadLine() const;
  // The same in large pieces, for input that is read to its end: leaves nothing to another reader of stdin.
  // Errors: kInternal (stdin cannot be read), kTooLarge (the line has more than kLineBytesMax; the next call
  // reads the one behind it).
  Result<std::optional<std::string>> ReadBulkLine();
  static constexpr std::size_t kLineBytesMax = std::size_t{64} * 1024;
  // All that is left of stdin. Errors: kInternal, kTooLarge (it is more than `bytes_max`).
  Result<std::string> ReadBulk(std::size_t bytes_max);

  // "" if it is not set.
  std::string Variable(const std::string& name) const;
  // Whether what Tell writes is read on a terminal.
  bool TellsOnTerminal() const;
  // Whether what Tell writes may have color in it.
  bool TellsInColor() const;

  // One line on stdout: what a command that changes something has done, or would do. Not with --quiet. The
  // command's own thread; --json has a document instead.
  void Report(std::string_view message);
  // Text for people, on stderr, in one piece with no line of another thread in it. Any thread.
  Result<void> Tell(std::string_view text);
  // One line for people, on stderr. Note: unless --quiet. Detail: only with --verbose. Any thread.
  void Note(std::string_view message) override;
  void Detail(std::string_view message) override;

  // Resolved at first use; its warnings are printed then. Errors: kConfig, kInvalidArgument.
  Result<const config::Resolved*> Config() override;
  const Clock& ClockInUse() const override { return clock; }
  std::optional<std::chrono::milliseconds> Timeout() const override { return flags.timeout; }
  // Resolves it anew, from the same flags and variables and the file as it is now. Errors: as Config().
  Result<config::Resolved> LoadConfig() const;

 private:
  // Appends a piece of stdin to input_; false at its end. Errors: kInternal.
  Result<bool> ReadPiece();
  // To the end of the line that is begun. Errors: kInternal.
  Result<void> SkipLine();

  mutable Mutex err_mutex_;
  Stream err_ LEAF_GUARDED_BY(err_mutex_);
  std::map<std::string, std::string> environment_;
  bool stdin_is_terminal_;
  std::string input_;           // read and not given out yet
  std::size_t input_used_ = 0;  // of input_
  std::optional<config::Resolved> resolved_;
};

}  // namespace leaf::cmd
