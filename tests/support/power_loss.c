// Preloaded into a program: writes down, in their order, all calls that change what is below a directory, all that make
// it durable, and what the program tells others meanwhile. power_loss.py makes of this the disks that a loss of power
// could leave behind; the form of the log is said there. On request it kills the program at one of these calls.
//
// Data is written down before it is written, and a flush before it begins and after it is done: what the log calls
// durable is durable by then, as long as no thread flushes a file while another one writes to it. leafctl's files are
// locked meanwhile. Several processes may share a log.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static const char* g_directory;  // files below it count
static const char* g_log;
static long g_kill;  // before which of its calls the process is killed; 0 for none
static atomic_long g_count;

__attribute__((constructor)) static void Begin(void) {
  g_directory = getenv("POWER_LOSS_DIRECTORY");
  g_log = getenv("POWER_LOSS_LOG");
  const char* number = getenv("POWER_LOSS_KILL");
  g_kill = number ? atol(number) : 0;
}

// At the beginning of each call that counts.
static void Step(void) {
  if (atomic_fetch_add(&g_count, 1) + 1 == g_kill) syscall(SYS_kill, getpid(), SIGKILL);
}

static void Fail(const char* why) {
  fprintf(stderr, "power_loss.c: %s\n", why);
  _exit(97);
}

// One record: a line, and `size` bytes. With bare system calls, and in one of them, so that records do not mix.
static void Log(const char* kind, unsigned long file, long long at, const void* data, size_t size, const char* path,
                const char* path2) {
  char line[2 * PATH_MAX + 128];
  const int length = snprintf(line, sizeof(line), "%s %d %lu %lld %zu %s %s\n", kind, (int)syscall(SYS_gettid), file, at, size,
                              path ? path : "-", path2 ? path2 : "-");
  const struct iovec parts[2] = {{line, (size_t)length}, {(void*)data, size}};
  const long fd = syscall(SYS_openat, AT_FDCWD, g_log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) Fail("cannot open the log");
  if (syscall(SYS_writev, fd, parts, 2L) != (long)((size_t)length + size)) Fail("cannot write the log");
  syscall(SYS_close, fd);
}

// Whether it lies below the directory, or is that; `name`: its path from there, "." for itself.
static int NameOfPath(const char* path, char* name) {
  char whole[PATH_MAX];
  if (!g_directory || !g_log || !path) return 0;
  if (path[0] != '/') {
    char here[PATH_MAX];
    if (!getcwd(here, sizeof(here)) || snprintf(whole, sizeof(whole), "%s/%s", here, path) >= (int)sizeof(whole)) return 0;
    path = whole;
  }
  const size_t length = strlen(g_directory);
  if (strncmp(path, g_directory, length) != 0) return 0;
  if (path[length] != '/' && path[length] != '\0') return 0;
  const char* rest = path + length;
  while (*rest == '/') ++rest;
  size_t end = strlen(rest);
  while (end > 0 && rest[end - 1] == '/') --end;
  if (strchr(rest, ' ') || strchr(rest, '\n')) Fail("a name with a blank");
  snprintf(name, PATH_MAX, "%.*s", end ? (int)end : 1, end ? rest : ".");
  return 1;
}

// `path` from an open folder on, as a whole path in `whole`; or `path`, as it is.
static const char* PathAt(int folder, const char* path, char* whole) {
  if (folder == AT_FDCWD || path[0] == '/') return path;
  const int saved = errno;
  char link[64];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", folder);
  const ssize_t length = readlink(link, whole, PATH_MAX - 1);
  errno = saved;
  if (length <= 0) return path;
  if (snprintf(whole + length, PATH_MAX - (size_t)length, "/%s", path) >= PATH_MAX - (int)length) Fail("a long path");
  return whole;
}

static int NameOf(int fd, char* name, struct stat* status) {
  if (!g_directory || !g_log || fstat(fd, status) != 0) return 0;
  if (!S_ISREG(status->st_mode) && !S_ISDIR(status->st_mode)) return 0;
  char link[64];
  char path[PATH_MAX];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length <= 0) return 0;
  path[length] = '\0';
  char* gone = strstr(path, " (deleted)");
  if (gone) *gone = '\0';
  return NameOfPath(path, name);
}

// What others hear: standard output, and answers over a socket.
static int IsHeard(int fd) {
  if (!g_log) return 0;
  if (fd == STDOUT_FILENO) return 1;
  struct stat status;
  return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
}

#define REAL(FUNCTION)                           \
  static __typeof__(FUNCTION)* real = NULL;      \
  if (!real) real = dlsym(RTLD_NEXT, #FUNCTION); \
  if (!real) Fail("no " #FUNCTION)

static void LogData(int fd, const void* data, size_t size, long long at) {
  const int saved = errno;
  char name[PATH_MAX];
  struct stat status;
  if (IsHeard(fd)) {
    Step();
    Log("heard", 0, 0, data, size, NULL, NULL);
  } else if (NameOf(fd, name, &status)) {
    Step();
    if (at < 0) at = fcntl(fd, F_GETFL) & O_APPEND ? status.st_size : lseek(fd, 0, SEEK_CUR);
    Log("write", status.st_ino, at, data, size, name, NULL);
  }
  errno = saved;
}

ssize_t write(int fd, const void* data, size_t size) {
  REAL(write);
  LogData(fd, data, size, -1);
  return real(fd, data, size);
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t at) {
  REAL(pwrite);
  LogData(fd, data, size, at);
  return real(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void* data, size_t size, off64_t at) {
  REAL(pwrite64);
  LogData(fd, data, size, at);
  return real(fd, data, size, at);
}

static void LogVector(int fd, const struct iovec* parts, size_t count) {
  size_t size = 0;
  for (size_t i = 0; i < count; ++i) size += parts[i].iov_len;
  char* data = malloc(size ? size : 1);
  if (!data) Fail("no memory");
  size = 0;
  for (size_t i = 0; i < count; ++i) {
    memcpy(data + size, parts[i].iov_base, parts[i].iov_len);
    size += parts[i].iov_len;
  }
  LogData(fd, data, size, -1);
  free(data);
}

ssize_t writev(int fd, const struct iovec* parts, int count) {
  REAL(writev);
  LogVector(fd, parts, (size_t)count);
  return real(fd, parts, count);
}

ssize_t send(int fd, const void* data, size_t size, int flags) {
  REAL(send);
  LogData(fd, data, size, 0);
  return real(fd, data, size, flags);
}

ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  REAL(sendmsg);
  LogVector(fd, message->msg_iov, message->msg_iovlen);
  return real(fd, message, flags);
}

static void Truncated(int fd, off64_t size) {
  char name[PATH_MAX];
  struct stat status;
  if (!NameOf(fd, name, &status)) return;
  Step();
  Log("truncate", status.st_ino, size, NULL, 0, name, NULL);
}

int ftruncate(int fd, off_t size) {
  REAL(ftruncate);
  Truncated(fd, size);
  return real(fd, size);
}

int ftruncate64(int fd, off64_t size) {
  REAL(ftruncate64);
  Truncated(fd, size);
  return real(fd, size);
}

#define FLUSH(FUNCTION)                                                        \
  int FUNCTION(int fd) {                                                       \
    REAL(FUNCTION);                                                            \
    char name[PATH_MAX];                                                       \
    struct stat status;                                                        \
    const int counts = NameOf(fd, name, &status);                              \
    if (counts) {                                                              \
      Step();                                                                  \
      Log("flush", status.st_ino, 0, NULL, 0, name, NULL);                     \
    }                                                                          \
    const int result = real(fd);                                               \
    const int saved = errno;                                                   \
    if (counts && result == 0) Log("flushed", status.st_ino, 0, NULL, 0, name, NULL); \
    errno = saved;                                                             \
    return result;                                                             \
  }

FLUSH(fsync)
FLUSH(fdatasync)

// Whether the path is there; where it counts and is not, an open that may make it is a step.
static int IsThere(const char* path, int flags) {
  const int saved = errno;
  struct stat status;
  char name[PATH_MAX];
  const int found = stat(path, &status) == 0;
  if (((flags & O_CREAT) && !found) || (flags & O_TRUNC)) {
    if (NameOfPath(path, name)) Step();
  }
  errno = saved;
  return found;
}

// A file that an open makes. Two processes that make one file at once both log it.
static void Opened(const char* path, int flags, int was_there, int fd) {
  const int saved = errno;
  char name[PATH_MAX];
  struct stat status;
  if (fd >= 0 && NameOfPath(path, name) && fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
    if (!was_there) {
      Log("make", status.st_ino, 0, NULL, 0, name, NULL);
    } else if (flags & O_TRUNC) {
      Log("truncate", status.st_ino, 0, NULL, 0, name, NULL);
    }
  }
  errno = saved;
}

#define OPEN(FUNCTION)                                        \
  int FUNCTION(const char* path, int flags, ...) {            \
    REAL(FUNCTION);                                           \
    va_list more;                                             \
    va_start(more, flags);                                    \
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(more, mode_t) : 0; \
    va_end(more);                                             \
    const int was_there = IsThere(path, flags);                      \
    const int fd = real(path, flags, mode);                   \
    Opened(path, flags, was_there, fd);                       \
    return fd;                                                \
  }

OPEN(open)
OPEN(open64)

int openat(int folder, const char* path, int flags, ...) {
  REAL(openat);
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(more, mode_t) : 0;
  va_end(more);
  char whole[PATH_MAX];
  const char* const all = PathAt(folder, path, whole);
  const int was_there = IsThere(all, flags);
  const int fd = real(folder, path, flags, mode);
  Opened(all, flags, was_there, fd);
  return fd;
}

// A change of names; `to` is null for calls with one path.
static void Named(const char* kind, const char* from, const char* to, int result) {
  const int saved = errno;
  char first[PATH_MAX];
  char second[PATH_MAX];
  const int from_counts = NameOfPath(from, first);
  const int to_counts = to ? NameOfPath(to, second) : 0;
  if (to && from_counts != to_counts) Fail("a file that comes from elsewhere, or goes there");
  if (from_counts && result == 0) Log(kind, 0, 0, NULL, 0, first, to ? second : NULL);
  errno = saved;
}

static void StepAt(const char* path) {
  char name[PATH_MAX];
  const int saved = errno;
  if (NameOfPath(path, name)) Step();
  errno = saved;
}

#define ONE_NAME(FUNCTION, PARAMETERS, ARGUMENTS)   \
  int FUNCTION PARAMETERS {                         \
    REAL(FUNCTION);                                 \
    StepAt(path);                                   \
    const int result = real ARGUMENTS;              \
    Named(#FUNCTION, path, NULL, result);           \
    return result;                                  \
  }

#define TWO_NAMES(FUNCTION)                         \
  int FUNCTION(const char* from, const char* to) {  \
    REAL(FUNCTION);                                 \
    StepAt(from);                                   \
    const int result = real(from, to);              \
    Named(#FUNCTION, from, to, result);             \
    return result;                                  \
  }

#define TWO_NAMES_AT(KIND, FUNCTION, PARAMETERS, ARGUMENTS)           \
  int FUNCTION PARAMETERS {                                           \
    REAL(FUNCTION);                                                   \
    char first[PATH_MAX];                                             \
    char second[PATH_MAX];                                            \
    const char* const old_path = PathAt(from_folder, from, first);    \
    const char* const new_path = PathAt(to_folder, to, second);       \
    StepAt(old_path);                                                 \
    const int result = real ARGUMENTS;                                \
    Named(KIND, old_path, new_path, result);                          \
    return result;                                                    \
  }

TWO_NAMES(rename)
TWO_NAMES(link)
TWO_NAMES_AT("rename", renameat, (int from_folder, const char* from, int to_folder, const char* to),
             (from_folder, from, to_folder, to))
TWO_NAMES_AT("link", linkat, (int from_folder, const char* from, int to_folder, const char* to, int flags),
             (from_folder, from, to_folder, to, flags))
ONE_NAME(unlink, (const char* path), (path))
ONE_NAME(rmdir, (const char* path), (path))

int unlinkat(int folder, const char* path, int flags) {
  REAL(unlinkat);
  char whole[PATH_MAX];
  const char* const all = PathAt(folder, path, whole);
  StepAt(all);
  const int result = real(folder, path, flags);
  Named(flags & AT_REMOVEDIR ? "rmdir" : "unlink", all, NULL, result);
  return result;
}

ONE_NAME(mkdir, (const char* path, mode_t mode), (path, mode))

// Writes to mapped files are not in the log. Only -shm files may be mapped for writing: SQLite makes them anew.
static void Mapped(int protection, int flags, int fd) {
  char name[PATH_MAX];
  struct stat status;
  if ((flags & MAP_SHARED) && (protection & PROT_WRITE) && fd >= 0 && NameOf(fd, name, &status)) {
    const size_t length = strlen(name);
    if (length < 4 || strcmp(name + length - 4, "-shm") != 0) Fail("a file is mapped for writing");
  }
}

void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
  REAL(mmap);
  Mapped(protection, flags, fd);
  return real(at, size, protection, flags, fd, offset);
}

void* mmap64(void* at, size_t size, int protection, int flags, int fd, off64_t offset) {
  REAL(mmap64);
  Mapped(protection, flags, fd);
  return real(at, size, protection, flags, fd, offset);
}
