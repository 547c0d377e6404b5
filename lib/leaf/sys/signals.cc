#include "leaf/sys/signals.h"

#include <pthread.h>

#include <ctime>

namespace leaf::sys {

SignalWaiter::SignalWaiter(std::initializer_list<int> signals) : set_() {
  sigemptyset(&set_);
  for (const int signal : signals) sigaddset(&set_, signal);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
}

int SignalWaiter::Wait() const {
  int signal = 0;
  while (sigwait(&set_, &signal) != 0) {
  }
  return signal;
}

int SignalWaiter::WaitFor(std::chrono::milliseconds time) const {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  timespec timeout{};
  timeout.tv_sec = static_cast<std::time_t>(whole.count());
  timeout.tv_nsec = static_cast<long>(std::chrono::nanoseconds(time - whole).count());
  const int signal = sigtimedwait(&set_, nullptr, &timeout);
  return signal > 0 ? signal : 0;  // interrupted by another signal is as good as nothing
}

void SignalWaiter::RestoreDefaults() const {
  if (sigismember(&set_, SIGHUP) == 1) std::signal(SIGHUP, SIG_IGN);
  pthread_sigmask(SIG_UNBLOCK, &set_, nullptr);
}

void IgnoreWriteSignals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace leaf::sys
