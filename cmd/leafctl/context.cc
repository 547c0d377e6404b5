#include "context.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "leaf/base/text.h"
#include "leaf/sys/process_name.h"

extern char** environ;

namespace leaf::cmd {

Stream::Size Stream::TerminalSize() const {
  winsize size{};
  if (!is_terminal_ || ioctl(fd_, TIOCGWINSZ, &size) != 0) return {};
  return {size.ws_col, size.ws_row};
}

void Stream::Write(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() <= kBufferBytes) return;
  // What failed is told by the last Flush; until then the command goes on as if it were heard.
  if (const auto written = Flush(); !written.ok()) buffer_.clear();
}

Result<void> Stream::Flush() {
  std::string_view rest = buffer_;
  while (failed_errno_ == 0 && !rest.empty()) {
    const ssize_t written = write(fd_, rest.data(), rest.size());
    if (written >= 0) {
      Count(rest.substr(0, static_cast<std::size_t>(written)));
      rest.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      // Another process that shares a pipe or a terminal has made it non-blocking.
      pollfd room{fd_, POLLOUT, 0};
      poll(&room, 1, -1);
    } else if (errno != EINTR) {
      failed_errno_ = errno;
      CutLastLine();
    }
  }
  buffer_.clear();
  if (failed_errno_ == 0) return {};
  return Error{ErrorCode::kInternal, fmt::format("cannot write the output: {}", std::strerror(failed_errno_)),
               ""};
}

void Stream::Count(std::string_view written) {
  lines_written_ += static_cast<std::uint64_t>(std::count(written.begin(), written.end(), '\n'));
  const std::size_t end = written.rfind('\n');
  last_line_bytes_ =
      end == std::string_view::npos ? last_line_bytes_ + written.size() : written.size() - end - 1;
}

// Half an ID is another ID to a program that reads the file. Only what this stream has put at the end of a
// file can be taken back.
void Stream::CutLastLine() const {
  struct stat status {};
  if (last_line_bytes_ == 0 || fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) return;
  const off_t end = lseek(fd_, 0, SEEK_CUR);
  const off_t line = end - static_cast<off_t>(last_line_bytes_);
  if (line < 0 || end != status.st_size) return;
  if (ftruncate(fd_, line) == 0) lseek(fd_, line, SEEK_SET);
}

CommandContext::CommandContext()
    : out(STDOUT_FILENO, isatty(STDOUT_FILENO) == 1),
      err_(STDERR_FILENO, isatty(STDERR_FILENO) == 1),
      stdin_is_terminal_(isatty(STDIN_FILENO) == 1) {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      environment_[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
}

namespace {

// After a read of stdin that failed: whether it is worth another try, which may take a while.
bool AwaitInput() {
  if (errno == EINTR) return true;
  if (errno != EAGAIN) return false;
  // Another process that shares a pipe or a terminal has made it non-blocking.
  pollfd more{STDIN_FILENO, POLLIN, 0};
  poll(&more, 1, -1);
  return true;
}

}  // namespace

std::optional<std::string> CommandContext::ReadLine() const {
  std::string line;
  char c = 0;
  while (true) {
    const ssize_t got = read(STDIN_FILENO, &c, 1);
    if (got < 0 && AwaitInput()) continue;
    if (got <= 0) return line.empty() ? std::nullopt : std::optional(line);
    if (c == '\n') return line;
    line += c;
  }
}

Result<bool> CommandContext::ReadPiece() {
  constexpr std::size_t kPiece = std::size_t{64} * 1024;
  input_.erase(0, input_used_);
  input_used_ = 0;
  const std::size_t size = input_.size();
  input_.resize(size + kPiece);
  ssize_t got = 0;
  while ((got = read(STDIN_FILENO, input_.data() + size, kPiece)) < 0) {
    if (AwaitInput()) continue;
    // This is not the end: what a command has not read may be what it must not remove.
    return Error{ErrorCode::kInternal, fmt::format("cannot read stdin: {}", std::strerror(errno)), ""};
  }
  input_.resize(size + static_cast<std::size_t>(got));
  return got > 0;
}

Result<std::optional<std::string>> CommandContext::ReadBulkLine() {
  std::size_t searched = input_used_;
  while (true) {
    const std::size_t newline = input_.find('\n', searched);
    const std::size_t end = std::min(newline, input_.size());
    if (end - input_used_ > kLineBytesMax) {
      LEAF_RETURN_IF_ERROR(SkipLine());
      return Error{ErrorCode::kTooLarge, fmt::format("it has more than {} bytes", kLineBytesMax), ""};
    }
    if (newline != std::string::npos) {
      std::string line = input_.substr(input_used_, newline - input_used_);
      input_used_ = newline + 1;
      return std::optional(std::move(line));
    }
    searched = input_.size() - input_used_;
    LEAF_ASSIGN_OR_RETURN(const bool more, ReadPiece());
    if (more) continue;
    if (input_.empty()) return std::optional<std::string>();
    return std::optional(std::exchange(input_, ""));
  }
}

Result<void> CommandContext::SkipLine() {
  while (true) {
    const std::size_t newline = input_.find('\n', input_used_);
    input_used_ = newline == std::string::npos ? input_.size() : newline + 1;
    if (newline != std::string::npos) return {};
    LEAF_ASSIGN_OR_RETURN(const bool more, ReadPiece());
    if (!more) return {};
  }
}

Result<std::string> CommandContext::ReadBulk(std::size_t bytes_max) {
  while (true) {
    LEAF_ASSIGN_OR_RETURN(const bool more, ReadPiece());
    if (!more) return std::exchange(input_, "");
    if (input_.size() > bytes_max)
      return Error{ErrorCode::kTooLarge, fmt::format("stdin has more than {} bytes", bytes_max), ""};
  }
}

std::string CommandContext::Variable(const std::string& name) const {
  const auto found = environment_.find(name);
  return found == environment_.end() ? "" : found->second;
}

bool CommandContext::TellsOnTerminal() const {
  const MutexLock lock(err_mutex_);
  return err_.is_terminal();
}

bool CommandContext::TellsInColor() const {
  if (flags.color != Color::kAuto) return flags.color == Color::kAlways;
  const MutexLock lock(err_mutex_);
  return err_.is_terminal() && Variable("NO_COLOR").empty() && Variable("TERM") != "dumb";
}

void CommandContext::Report(std::string_view message) {
  if (!flags.quiet) out.Write(fmt::format("{}\n", message));
}

Result<void> CommandContext::Tell(std::string_view text) {
  const MutexLock lock(err_mutex_);
  err_.Write(text);
  return err_.Flush();
}

void CommandContext::Note(std::string_view message) {
  if (flags.quiet) return;
  if (const auto written = Tell(fmt::format("{}\n", message)); !written.ok())
    return;  // it cannot be told either
}

void CommandContext::Detail(std::string_view message) {
  if (flags.verbose) Note(message);
}

Result<config::Resolved> CommandContext::LoadConfig() const {
  config::LoadInput input;
  input.file = flags.config_file;
  // A reload reads the file of the start. Were it looked for again, one that is missing for a moment would
  // mean defaults: no tokens, and everyone may ask.
  if (!input.file && resolved_ && !resolved_->file.empty()) input.file = resolved_->file;
  input.environment = environment_;
  input.host = sys::HostName();
  input.is_root = geteuid() == 0;
  for (const std::string& set : flags.sets) {
    const std::size_t equals = set.find('=');
    if (equals == std::string::npos) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("bad --set {}: not section.key=value", Quoted(set)), ""};
    }
    input.flags.push_back({set.substr(0, equals), set.substr(equals + 1), "--set"});
  }
  if (flags.state_dir) input.flags.push_back({"state_dir", *flags.state_dir, "--state-dir"});
  input.flags.insert(input.flags.end(), command_values.begin(), command_values.end());
  return config::Load(input);
}

Result<const config::Resolved*> CommandContext::Config() {
  if (resolved_) return &*resolved_;
  LEAF_ASSIGN_OR_RETURN(resolved_, LoadConfig());
  for (const std::string& warning : resolved_->warnings) Note(fmt::format("leafctl: warning: {}", warning));
  if (!resolved_->file.empty()) Detail(fmt::format("configuration from {}", resolved_->file));
  return &*resolved_;
}

}  // namespace leaf::cmd
