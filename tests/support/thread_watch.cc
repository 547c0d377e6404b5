// Fails a test that starts a thread, unless its file is among those that the thread sanitizer sees
// (LEAF_THREADED_TESTS, from CMakeLists.txt). The others have nothing that it could find, and are not built
// for it.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <string>
#include <string_view>

namespace {

std::atomic<int> threads_started{0};

class ThreadWatch final : public ::testing::EmptyTestEventListener {
 public:
  void OnTestStart(const ::testing::TestInfo&) override { before_ = threads_started; }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (threads_started == before_) return;
    const std::string_view file = test.file();
    const std::string name = std::string(file.substr(file.rfind("unit/"))) + ",";
    if (std::string_view(LEAF_THREADED_TESTS ",").find(name) == std::string_view::npos) {
      ADD_FAILURE() << "a test of " << file << " starts a thread, so the thread sanitizer has to see it: "
                    << "move the file to THREADED_TESTS in tests/CMakeLists.txt";
    }
  }

 private:
  int before_ = 0;
};

// Before main, which is gtest's own.
const bool is_watching = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new ThreadWatch);
  return true;
}();

}  // namespace

// Takes the place of the C library's for the whole program, the libraries that it loads included.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                              void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  ++threads_started;
  return create(thread, attributes, start, argument);
}
