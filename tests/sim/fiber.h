// A stack of its own that runs until it gives up control: what a thread is to the system, a fiber is to the
// simulator. On one system thread, so that nothing but the simulator decides what runs next.
#pragma once

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstddef>
#include <functional>

namespace leaf::sim {

class Fiber {
 public:
  Fiber();
  // Requires: idle().
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next Resume() runs `body`. Requires: idle(). A body must not throw.
  void Arm(std::function<void()> body);
  bool idle() const { return !body_; }

  // Runs it until it suspends itself or its body ends. Not from inside a fiber.
  void Resume();
  // From inside: control goes back to where Resume() was called.
  void Suspend();

 private:
  void Loop();
  void SwitchIn();
  void SwitchOut();
  // Told to the address sanitizer, which follows the stack: before and after each switch.
  void LeaveOutside();
  void EnterInside();
  void LeaveInside(bool for_good);
  void EnterOutside();

  static constexpr std::size_t kStackSize = std::size_t{512} * 1024;

  boost::context::protected_fixedsize_stack allocator_{kStackSize};
  boost::context::stack_context stack_ = allocator_.allocate();
  boost::context::fiber inside_;   // while it does not run
  boost::context::fiber outside_;  // while it runs
  std::function<void()> body_;
  bool ending_ = false;
  // What the address sanitizer knows the two by.
  void* asan_inside_ = nullptr;
  void* asan_outside_ = nullptr;
  const void* asan_outside_stack_ = nullptr;
  std::size_t asan_outside_size_ = 0;
};

}  // namespace leaf::sim
