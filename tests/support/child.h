// What a test does in a child of its process.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace leaf::testing {

// Runs `body` in a child, whose exit code it returns. Returns that, or -1 for a child that ended otherwise.
template <typename Body>
int InChild(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

// A child that has what this process has open, and does nothing, until destroyed.
class IdleChild {
 public:
  IdleChild() : pid_(fork()) {
    // Not for longer than its parent.
    if (pid_ == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (pid_ == 0) pause();
  }
  ~IdleChild() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  IdleChild(const IdleChild&) = delete;
  IdleChild& operator=(const IdleChild&) = delete;

  bool is_there() const { return pid_ > 0; }

 private:
  const pid_t pid_;
};

}  // namespace leaf::testing
