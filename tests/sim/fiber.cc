#include "sim/fiber.h"

#include <cxxabi.h>

#include <memory>
#include <utility>

#include "leaf/base/check.h"
#include "support/sanitizer.h"

#if defined(LEAF_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
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
#if defined(LEAF_ADDRESS_SANITIZER)
  // What an earlier stack at this address has left behind.
  __asan_unpoison_memory_region(static_cast<char*>(stack_.sp) - stack_.size, stack_.size);
#endif
  inside_ =
      boost::context::fiber(std::allocator_arg, boost::context::preallocated(stack_.sp, stack_.size, stack_),
                            allocator_, [this](boost::context::fiber&& outside) {
                              outside_ = std::move(outside);
                              EnterInside();
                              Loop();
                              LeaveInside(/*for_good=*/true);
                              return std::move(outside_);
                            });
}

Fiber::~Fiber() {
  LEAF_CHECK(idle());
  ending_ = true;
  SwitchIn();
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
#if defined(LEAF_ADDRESS_SANITIZER)
  __sanitizer_start_switch_fiber(&asan_outside_, static_cast<char*>(stack_.sp) - stack_.size, stack_.size);
#endif
}

void Fiber::EnterInside() {
#if defined(LEAF_ADDRESS_SANITIZER)
  __sanitizer_finish_switch_fiber(asan_inside_, &asan_outside_stack_, &asan_outside_size_);
#endif
}

void Fiber::LeaveInside([[maybe_unused]] bool for_good) {
#if defined(LEAF_ADDRESS_SANITIZER)
  __sanitizer_start_switch_fiber(for_good ? nullptr : &asan_inside_, asan_outside_stack_, asan_outside_size_);
#endif
}

void Fiber::EnterOutside() {
#if defined(LEAF_ADDRESS_SANITIZER)
  __sanitizer_finish_switch_fiber(asan_outside_, nullptr, nullptr);
#endif
}

}  // namespace leaf::sim
