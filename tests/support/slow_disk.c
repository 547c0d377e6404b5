// A disk that is slow to flush, for a whole run of tests: preloaded, it holds up each fsync and fdatasync for 10 to 70
// ms, and 6 of 100 for 0.4 to 1.3 s (scripts/soak.sh weather).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

// Differs from call to call and from process to process; nothing depends on which it is.
static uint64_t Dice(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  uint64_t x = (uint64_t)now.tv_nsec * 2654435761U ^ (uint64_t)getpid() << 32;
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdU;
  return x ^ x >> 33;
}

static void Wait(void) {
  const uint64_t dice = Dice();
  const long ms = dice % 100 < 6 ? 400 + (long)(dice / 100 % 900) : 10 + (long)(dice / 100 % 60);
  const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&pause, NULL);
}

static int Call(const char* name, int fd) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  if (real == NULL) abort();
  Wait();
  return real(fd);
}

int fsync(int fd) { return Call("fsync", fd); }
int fdatasync(int fd) { return Call("fdatasync", fd); }
