// Signals as events: blocked everywhere, received by the one thread that waits for them.
#pragma once

#include <chrono>
#include <csignal>
#include <initializer_list>

namespace leaf::sys {

// Construct before the first thread is started: threads inherit what is blocked.
class SignalWaiter {
 public:
  SignalWaiter(std::initializer_list<int> signals);
  // Blocks until one of them arrives and returns it.
  int Wait() const;
  // The same for at most `time`; 0 if none arrived.
  int WaitFor(std::chrono::milliseconds time) const;
  // From now on they do what they do by default: the next SIGTERM ends the process at once. SIGHUP, which
  // would do that too, is ignored.
  void RestoreDefaults() const;

 private:
  sigset_t set_;
};

// A write to a closed pipe or socket, or to a file that has reached the limit of its size (ulimit -f), is an
// error to handle, not the end of the process.
void IgnoreWriteSignals();

}  // namespace leaf::sys
