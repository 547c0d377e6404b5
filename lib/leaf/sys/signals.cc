#include "leaf/sys/signals.h"

#include <pthread.h>

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

void SignalWaiter::RestoreDefaults() const { pthread_sigmask(SIG_UNBLOCK, &set_, nullptr); }

void IgnoreSigpipe() { std::signal(SIGPIPE, SIG_IGN); }

}  // namespace leaf::sys
