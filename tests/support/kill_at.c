// Preloaded into a program: kills or stops it at a chosen call that writes to a disk or talks to a server, or
// writes down all such calls. kill_at.py builds and sets it up; what is set and what comes out is said there.
//
// What is judged is one call more or less, so a call is counted where it is made, in the calling thread, and
// the process ends in it: nothing is flushed, no other thread is told.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char* g_directory;  // files below it count
static const char* g_ports;      // "name:port name:port": peers that count
static const char* g_trace;      // write every call to this file
static const char* g_when;       // "before" or "after"; with the next three: where to end
static const char* g_function;
static const char* g_target;
static long g_number;
static int g_signal;
static const char* g_report;  // what happened is written to this file just before
static atomic_long g_count;

__attribute__((constructor)) static void Begin(void) {
  g_directory = getenv("KILL_AT_DIRECTORY");
  g_ports = getenv("KILL_AT_PORTS");
  g_trace = getenv("KILL_AT_TRACE");
  g_when = getenv("KILL_AT_WHEN");
  g_function = getenv("KILL_AT_FUNCTION");
  g_target = getenv("KILL_AT_TARGET");
  g_report = getenv("KILL_AT_REPORT");
  const char* number = getenv("KILL_AT_NUMBER");
  g_number = number ? atol(number) : 0;
  const char* signal = getenv("KILL_AT_SIGNAL");
  g_signal = signal ? atoi(signal) : SIGKILL;
}

// By bare system calls: nothing that is watched here is used on the way.
static void WriteLine(const char* path, const char* line) {
  const long fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) _exit(97);
  if (syscall(SYS_write, fd, line, strlen(line)) < 0) _exit(97);
  syscall(SYS_close, fd);
}

// The name of a file by its path below the directory.
static int NameOfPath(const char* path, char* name) {
  const size_t length = g_directory ? strlen(g_directory) : 0;
  if (length == 0 || strncmp(path, g_directory, length) != 0) return 0;
  if (path[length] != '/' && path[length] != '\0') return 0;
  const char* rest = path + length;
  while (*rest == '/') ++rest;
  snprintf(name, PATH_MAX, "%s", *rest ? rest : "directory");
  return 1;
}

// The same of a path from an open folder on.
static int NameAt(int folder, const char* path, char* name) {
  if (folder == AT_FDCWD || path[0] == '/') return NameOfPath(path, name);
  char link[64];
  char whole[PATH_MAX];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", folder);
  const ssize_t length = readlink(link, whole, sizeof(whole) - 1);
  if (length <= 0) return 0;
  snprintf(whole + length, sizeof(whole) - (size_t)length, "/%s", path);
  return NameOfPath(whole, name);
}

// What a descriptor is: a file below the directory, a peer, standard output; 0 for what does not count.
static int NameOf(int fd, char* name) {
  if (fd == STDOUT_FILENO) {
    snprintf(name, PATH_MAX, "stdout");
    return 1;
  }
  struct sockaddr_storage peer;
  socklen_t size = sizeof(peer);
  if (getpeername(fd, (struct sockaddr*)&peer, &size) == 0) {
    if (peer.ss_family != AF_INET || !g_ports) return 0;
    char end[16];
    const int length = snprintf(end, sizeof(end), ":%d", ntohs(((struct sockaddr_in*)&peer)->sin_port));
    for (const char* at = g_ports; *at;) {
      const char* stop = strchrnul(at, ' ');
      if (stop - at > length && strncmp(stop - length, end, (size_t)length) == 0) {
        snprintf(name, PATH_MAX, "%.*s", (int)(stop - at - length), at);
        return 1;
      }
      at = *stop ? stop + 1 : stop;
    }
    return 0;
  }
  char link[64];
  char path[PATH_MAX];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length <= 0) return 0;
  path[length] = '\0';
  return NameOfPath(path, name);
}

static void Reach(const char* when, const char* function, const char* name) {
  char line[PATH_MAX + 128];
  if (g_trace) {
    snprintf(line, sizeof(line), "%s %s %s\n", when, function, name);
    WriteLine(g_trace, line);
  }
  if (!g_when || !g_function || !g_target || strcmp(when, g_when) != 0 || strcmp(function, g_function) != 0 ||
      strcmp(name, g_target) != 0)
    return;
  if (atomic_fetch_add(&g_count, 1) + 1 != g_number) return;
  if (g_report) {
    snprintf(line, sizeof(line), "%s %s %s %ld\n", when, function, name, g_number);
    WriteLine(g_report, line);
  }
  syscall(SYS_kill, getpid(), g_signal);
  // The signal is on its way; a process that is only stopped goes on when it is told to.
  while (g_signal == SIGKILL) pause();
}

// A call that failed has changed nothing: only those that did something have an "after".
#define WATCHED(TYPE, FUNCTION, PARAMETERS, ARGUMENTS, NAMED, FAILED)          \
  TYPE FUNCTION PARAMETERS {                                                   \
    static TYPE(*original) PARAMETERS;                                         \
    if (!original) original = (TYPE(*) PARAMETERS)dlsym(RTLD_NEXT, #FUNCTION); \
    char name[PATH_MAX];                                                       \
    const int saved = errno;                                                   \
    const int counts = NAMED;                                                  \
    if (counts) Reach("before", #FUNCTION, name);                              \
    errno = saved;                                                             \
    const TYPE result = original ARGUMENTS;                                    \
    const int error = errno;                                                   \
    if (counts && !(FAILED)) Reach("after", #FUNCTION, name);                  \
    errno = error;                                                             \
    return result;                                                             \
  }

WATCHED(int, fsync, (int fd), (fd), NameOf(fd, name), result != 0)
WATCHED(int, fdatasync, (int fd), (fd), NameOf(fd, name), result != 0)
WATCHED(int, ftruncate64, (int fd, off64_t size), (fd, size), NameOf(fd, name), result != 0)
WATCHED(int, rename, (const char* from, const char* to), (from, to), NameOfPath(to, name), result != 0)
WATCHED(int, renameat, (int from_folder, const char* from, int to_folder, const char* to),
        (from_folder, from, to_folder, to), NameAt(to_folder, to, name), result != 0)
WATCHED(int, unlink, (const char* path), (path), NameOfPath(path, name), result != 0)
WATCHED(int, unlinkat, (int folder, const char* path, int flags), (folder, path, flags),
        NameAt(folder, path, name), result != 0)
WATCHED(ssize_t, write, (int fd, const void* data, size_t size), (fd, data, size), NameOf(fd, name),
        result < 0)
WATCHED(ssize_t, pwrite, (int fd, const void* data, size_t size, off_t at), (fd, data, size, at),
        NameOf(fd, name), result < 0)
WATCHED(ssize_t, pwrite64, (int fd, const void* data, size_t size, off64_t at), (fd, data, size, at),
        NameOf(fd, name), result < 0)
WATCHED(ssize_t, send, (int fd, const void* data, size_t size, int flags), (fd, data, size, flags),
        NameOf(fd, name), result < 0)
WATCHED(ssize_t, sendmsg, (int fd, const struct msghdr* message, int flags), (fd, message, flags),
        NameOf(fd, name), result < 0)
// Where it reads nothing it does nothing: asking an idle connection is no step.
WATCHED(ssize_t, recv, (int fd, void* data, size_t size, int flags), (fd, data, size, flags),
        NameOf(fd, name), result <= 0)
