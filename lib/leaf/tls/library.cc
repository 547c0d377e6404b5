#include "leaf/tls/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>

#include "leaf/base/check.h"
#include "leaf/base/mutex.h"
#include "leaf/tls/openssl.h"

namespace leaf::tls {
namespace {

constexpr const char* kLibrary = "libssl.so.3";  // brings libcrypto along

Mutex loading;
OpenSsl functions LEAF_GUARDED_BY(loading);    // and written no more once `loaded` is set
std::atomic<const OpenSsl*> loaded = nullptr;  // null until all of it is there

template <typename Function>
bool Find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

Result<void> LoadLibrary() {
  if (loaded.load(std::memory_order_acquire) != nullptr) return {};
  const MutexLock lock(loading);
  if (loaded.load(std::memory_order_relaxed) != nullptr) return {};
  const auto failed = [&] {
    const char* const why = dlerror();
    return Error{
        ErrorCode::kConfig,
        fmt::format("TLS needs OpenSSL 3, which cannot be loaded: {}", why == nullptr ? kLibrary : why),
        "install the package libssl3 (Debian 13: libssl3t64)"};
  };
  // Stays for as long as the process does.
  void* const handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return failed();
#define LEAF_FIND(name) \
  if (!Find(handle, #name, functions.name)) return failed();
  LEAF_OPENSSL_FUNCTIONS(LEAF_FIND)
#undef LEAF_FIND
  // Threads may still use it while the process ends.
  if (functions.OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr) != 1)
    return Error{ErrorCode::kConfig, "OpenSSL cannot be initialised", "is its file openssl.cnf right?"};
  loaded.store(&functions, std::memory_order_release);
  return {};
}

const OpenSsl& Ssl() {
  const OpenSsl* const library = loaded.load(std::memory_order_acquire);
  LEAF_CHECK(library != nullptr);
  return *library;
}

std::string OldestReason() {
  const char* const reason = Ssl().ERR_reason_error_string(Ssl().ERR_peek_error());
  return reason == nullptr ? "" : reason;
}

}  // namespace leaf::tls
