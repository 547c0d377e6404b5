#include "terminal.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <string_view>

#include "leaf/base/check.h"

namespace leaf::cmd {
namespace {

// The other screen, cleared, and no cursor; and back.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[2J";
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";
constexpr int kEnding[] = {SIGHUP, SIGTERM, SIGQUIT, SIGINT};

// For the handler of signals: written before `screen_in_use` is true.
std::atomic<bool> screen_in_use{false};
termios found_keys{};
bool keys_are_changed = false;

void WriteAll(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// Only what a handler of signals may call.
void PutBack() {
  if (!screen_in_use.exchange(false)) return;
  WriteAll(kLeave);
  if (keys_are_changed) tcsetattr(STDIN_FILENO, TCSANOW, &found_keys);
}

void End(int signal) {
  PutBack();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

FullScreen::FullScreen(bool has_keys) {
  LEAF_CHECK(!screen_in_use);
  has_keys_ = has_keys && tcgetattr(STDIN_FILENO, &found_keys) == 0;
  keys_are_changed = has_keys_;
  screen_in_use = true;
  for (const int signal : kEnding) std::signal(signal, End);
  if (has_keys_) {
    termios keys = found_keys;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
    keys.c_cc[VMIN] = 0;
    keys.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &keys);
  }
  WriteAll(kEnter);
}

FullScreen::~FullScreen() {
  PutBack();
  for (const int signal : kEnding) std::signal(signal, SIG_DFL);
}

std::string FullScreen::ReadKey(std::chrono::milliseconds time) {
  if (typed_.empty()) {
    pollfd keys{has_keys_ ? STDIN_FILENO : -1, POLLIN, 0};
    if (poll(&keys, 1, static_cast<int>(time.count())) <= 0) return "";
    char bytes[64];
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    // A terminal that is gone sends no key any more.
    if (count <= 0) {
      has_keys_ = false;
      return "";
    }
    typed_.assign(bytes, static_cast<std::size_t>(count));
  }
  // A sequence ("\x1b[" to its letter or tilde), or one character of UTF-8.
  std::size_t end = 1;
  if (typed_.starts_with("\x1b[")) {
    end = std::min(typed_.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ~", 2), typed_.size() - 1) + 1;
  } else {
    while (end < typed_.size() && (static_cast<unsigned char>(typed_[end]) & 0xc0) == 0x80) ++end;
  }
  std::string key = typed_.substr(0, end);
  typed_.erase(0, end);
  return key;
}

}  // namespace leaf::cmd
