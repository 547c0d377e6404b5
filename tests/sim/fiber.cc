#include "sim/fiber.h"

#include <cxxabi.h>

#include <memory>
#include <utility>

#include "leaf/base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace leaf::sim {
namespace {

// The C++ runtime's account of exceptions in flight, which is the system thread's and not the stack's.
struct Exceptions {
  void* caught = nullptr;
  unsigned uncaught = 0;
};

}  // namespace

Fiber::Fiber() {
  inside_ =
      boost::context::fiber(std::allocator_arg, boost::context::preallocated(stack_.sp, stack_.size, stack_),
                            allocator_, [this](boost::context::fiber&& outside) {
                              outside_ = std::move(outside);
                              EnterInside();
                              Loop();
                              LeaveInside(/*for_good=*/true);
                              return std::move(outside_);
                            });
#if defined(__SANITIZE_THREAD__)
  tsan_inside_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  LEAF_CHECK(idle());
  ending_ = true;
  SwitchIn();
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(tsan_inside_);
#endif
}

void Fiber::Arm(std::function<void()> body) {
  LEAF_CHECK(idle() && body);
  body_ = std::move(body);
}

void Fiber::Loop() {
  while (!ending_) {
    body_();
    body_ = nullptr;
    SwitchOut();
  }
}

void Fiber::Resume() {
  LEAF_CHECK(!idle());
  SwitchIn();
}

void Fiber::Suspend() {
  // What this stack has thrown and not caught yet must not be seen by the others.
  auto* const globals = reinterpret_cast<Exceptions*>(abi::__cxa_get_globals());
  const Exceptions own = std::exchange(*globals, {});
  SwitchOut();
  *globals = own;
}

void Fiber::SwitchIn() {
  LeaveOutside();
  inside_ = std::move(inside_).resume();
  EnterOutside();
}

void Fiber::SwitchOut() {
  LeaveInside(/*for_good=*/false);
  outside_ = std::move(outside_).resume();
  EnterInside();
}

void Fiber::LeaveOutside() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&asan_outside_, static_cast<char*>(stack_.sp) - stack_.size, stack_.size);
#endif
#if defined(__SANITIZE_THREAD__)
  tsan_outside_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_inside_, 0);
#endif
}

void Fiber::EnterInside() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(asan_inside_, &asan_outside_stack_, &asan_outside_size_);
#endif
}

void Fiber::LeaveInside([[maybe_unused]] bool for_good) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &asan_inside_, asan_outside_stack_, asan_outside_size_);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(tsan_outside_, 0);
#endif
}

void Fiber::EnterOutside() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(asan_outside_, nullptr, nullptr);
#endif
}

}  // namespace leaf::sim
