// One target as a program of libFuzzer's. LEAF_FUZZ_TARGET: its name in the table.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "fuzz/targets.h"

namespace {

const leaf::fuzz::Target& Chosen() {
  for (const leaf::fuzz::Target& target : leaf::fuzz::Targets()) {
    if (target.name == LEAF_FUZZ_TARGET) return target;
  }
  std::fprintf(stderr, "no target called %s\n", LEAF_FUZZ_TARGET);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const leaf::fuzz::Target& target = Chosen();
  target.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
