// A terminal whose whole screen a command uses, and whose keys it reads one by one.
#pragma once

#include <termios.h>

#include <chrono>
#include <string>

namespace leaf::cmd {

// From construction to destruction the terminal shows another screen, without a cursor, and sends each key
// at once, Ctrl-C as a key, too. A signal that ends the process puts the terminal back first. One at a time.
class FullScreen {
 public:
  // On stdout. `has_keys`: stdin is a terminal, too.
  explicit FullScreen(bool has_keys);
  ~FullScreen();
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  // A key, as the terminal sends it (an arrow is three bytes), or "" if none was pressed in `time`.
  std::string ReadKey(std::chrono::milliseconds time);

 private:
  bool has_keys_ = false;
  std::string typed_;  // and not returned yet
};

}  // namespace leaf::cmd
