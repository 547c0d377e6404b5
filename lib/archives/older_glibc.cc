// What GCC's archives (libstdc++.a, libgcc_eh.a) take from a C library that is newer than 2.34, so that a
// binary which is built here runs where glibc 2.34 is (scripts/tarball.sh checks it). Linked before those
// archives, and hidden: nothing but this binary uses it.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

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

}  // extern "C"

#endif
