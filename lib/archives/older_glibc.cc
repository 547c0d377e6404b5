// What GCC's archives (libstdc++.a, libgcc_eh.a), and others that Debian built, take from a C library that is
// newer than 2.34, so that a binary which is built here runs where glibc 2.34 is (scripts/tarball.sh checks
// it). Linked before those archives, and hidden: nothing but this binary uses it.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#if defined(__x86_64__)

namespace {

struct Search {
  std::uintptr_t address;
  dl_find_object* result;
};

// Called for each loaded object; 1 ends the search.
int Look(dl_phdr_info* object, std::size_t, void* data) {
  auto* const search = static_cast<Search*>(data);
  std::uintptr_t begin = UINTPTR_MAX;
  std::uintptr_t end = 0;
  std::uintptr_t frames = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = object->dlpi_phdr[i];
    const std::uintptr_t start = object->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD) {
      if (start < begin) begin = start;
      if (start + header.p_memsz > end) end = start + header.p_memsz;
    } else if (header.p_type == PT_GNU_EH_FRAME) {
      frames = start;
    }
  }
  if (search->address < begin || search->address >= end) return 0;
  *search->result = {};
  search->result->dlfo_map_start = reinterpret_cast<void*>(begin);
  search->result->dlfo_map_end = reinterpret_cast<void*>(end);
  search->result->dlfo_eh_frame = reinterpret_cast<void*>(frames);
  return 1;
}

}  // namespace

#if __GLIBC_PREREQ(2, 38)
// The functions as 2.34 has them, past the names that the headers of 2.38 give them and the version that fmod
// has there.
extern "C" {
long OlderStrtol(const char* text, char** end, int base) __asm__("strtol");
long long OlderStrtoll(const char* text, char** end, int base) __asm__("strtoll");
unsigned long OlderStrtoul(const char* text, char** end, int base) __asm__("strtoul");
unsigned long long OlderStrtoull(const char* text, char** end, int base) __asm__("strtoull");
int OlderVsscanf(const char* text, const char* format, std::va_list results) __asm__("__isoc99_vsscanf");
double OlderFmod(double number, double divisor);
}
__asm__(".symver OlderFmod, fmod@GLIBC_2.2.5");
#endif

extern "C" {

// glibc 2.35. The unwinder asks for the object that an address is in, and for its table of frames.
__attribute__((visibility("hidden"))) int _dl_find_object(void* address, dl_find_object* result) noexcept {
  Search search{reinterpret_cast<std::uintptr_t>(address), result};
  return dl_iterate_phdr(Look, &search) == 1 && result->dlfo_eh_frame != nullptr ? 0 : -1;
}

// glibc 2.36. What std::random_device reads.
__attribute__((visibility("hidden"))) std::uint32_t arc4random() noexcept {
  std::uint32_t number = 0;
  // Fails only where the kernel is older than this program can run on.
  if (getentropy(&number, sizeof number) != 0) std::abort();
  return number;
}

#if __GLIBC_PREREQ(2, 38)
// glibc 2.38. What the headers make of strtol and its like in C++ and C23: they also read "0b1", which
// this program does not need.
__attribute__((visibility("hidden"))) long __isoc23_strtol(const char* text, char** end, int base) noexcept {
  return OlderStrtol(text, end, base);
}
__attribute__((visibility("hidden"))) long long __isoc23_strtoll(const char* text, char** end,
                                                                 int base) noexcept {
  return OlderStrtoll(text, end, base);
}
__attribute__((visibility("hidden"))) unsigned long __isoc23_strtoul(const char* text, char** end,
                                                                     int base) noexcept {
  return OlderStrtoul(text, end, base);
}
__attribute__((visibility("hidden"))) unsigned long long __isoc23_strtoull(const char* text, char** end,
                                                                           int base) noexcept {
  return OlderStrtoull(text, end, base);
}
__attribute__((visibility("hidden"))) int __isoc23_sscanf(const char* text, const char* format, ...) {
  std::va_list results;
  va_start(results, format);
  const int read = OlderVsscanf(text, format, results);
  va_end(results);
  return read;
}
// glibc 2.38. The older one differs for an infinite number or a divisor of 0, in how it says so. By another
// name here: the compiler has fmod built in, and does not allow to hide it.
__attribute__((visibility("hidden"))) double Fmod(double number, double divisor) noexcept __asm__("fmod");
double Fmod(double number, double divisor) noexcept { return OlderFmod(number, divisor); }
#endif

}  // extern "C"

#endif
