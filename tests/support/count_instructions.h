// Counts what a piece of code does, where a time would depend on how busy the machine is.
#pragma once

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <optional>

namespace leaf::testing {

// The instructions that `work` takes in a copy of this process, which is led through them one by one, and a
// few around them, as many each time. It has to have run before: the first time things are loaded. Nothing
// where the system lets no process trace another one. Sanitizers do work of their own.
template <typename Work>
std::optional<std::uint64_t> CountInstructions(const Work& work) {
  const pid_t child = fork();
  if (child < 0) return std::nullopt;
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
    raise(SIGSTOP);
    work();
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  const auto wait = [&](int stopped_by) {
    while (waitpid(child, &status, 0) < 0) {
    }
    return WIFSTOPPED(status) && WSTOPSIG(status) == stopped_by;
  };
  if (!wait(SIGSTOP)) return std::nullopt;
  std::uint64_t count = 0;
  do {
    if (ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0) break;
    ++count;
  } while (wait(SIGTRAP));
  const bool is_whole = WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP;
  kill(child, SIGKILL);
  while (waitpid(child, &status, 0) >= 0) {
  }
  if (!is_whole) return std::nullopt;
  return count;
}

}  // namespace leaf::testing
