// A model checker for code that shares words between threads: it runs the real source through every
// interleaving of a few threads' atomic operations, and through every value that each load may read.
//
// How it works. A test executable is compiled with LEAF_ATOMIC_HEADER naming this file, so that leaf::Atomic
// is the class below. Each operation of it is a step; the threads are coroutines of one thread of the
// machine. Explore() saves the world before each step, and goes on from there once for each thread that can
// take the next one, and for each value that its step may read. A state that was seen already is not gone
// through again.
//
// The memory is that of release and acquire as C++20 has it, seen through views (Kang, Hur, Lahav, Vafeiadis,
// Dreyer: A Promising Semantics for Relaxed-Memory Concurrency, 2017; here without promises). Each location
// keeps the values that were stored, in order. A thread may read any that is not older than what it knows of;
// a load that acquires from a store that releases learns all that the storing thread knew; a
// read-modify-write reads the newest value, and hands on what that one released. So an order that is too weak
// shows, though x86 would hide it. A weak compare-and-swap may fail for no reason, kSpuriousMax times in each
// thread. What the model leaves out: a store that is ordered before one that ran earlier, and loads that run
// before earlier loads or behind later stores.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <source_location>
#include <string>
#include <type_traits>
#include <vector>

namespace leaf::model {

inline constexpr std::size_t kThreadsMax = 3;
inline constexpr std::size_t kLocationsMax = 16;
inline constexpr std::size_t kMessagesMax = 12;  // of a location, that some thread may still read
inline constexpr std::uint32_t kSpuriousMax = 1;

// ---- what the code under test does
// ---------------------------------------------------------------------------

enum class Kind : std::uint8_t { kNone, kLoad, kStore, kModify, kCompareAndSwap, kLock };

// An operation, about to be run.
struct Operation {
  Kind kind = Kind::kNone;
  std::size_t location = 0;
  std::memory_order order{};
  std::memory_order on_failure{};  // of a compare-and-swap
  std::uint64_t expected = 0;      // by a compare-and-swap
  bool weak = false;               // a compare-and-swap that may fail though it finds that
  std::source_location where;
};

// Registers a location that holds `value`.
std::size_t NewLocation(std::uint64_t value);
std::uint64_t Load(const Operation& operation);
void Store(const Operation& operation, std::uint64_t value);
// Stores what `change` makes of the newest value; returns that value.
std::uint64_t Modify(const Operation& operation, std::uint64_t operand,
                     std::uint64_t (*change)(std::uint64_t, std::uint64_t));
bool CompareAndSwap(const Operation& operation, std::uint64_t& expected, std::uint64_t desired);

// What leaf::Atomic is. Orders have no default: the code under test has to name them.
template <typename T>
class Atomic {
  static_assert(std::is_integral_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  using Where = std::source_location;

 public:
  Atomic(T value) : location_(NewLocation(static_cast<std::uint64_t>(value))) {}  // NOLINT(*-explicit-*)
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load(std::memory_order order, Where where = Where::current()) const {
    return static_cast<T>(Load({Kind::kLoad, location_, order, order, 0, false, where}));
  }
  void store(T value, std::memory_order order, Where where = Where::current()) {
    Store({Kind::kStore, location_, order, order, 0, false, where}, static_cast<std::uint64_t>(value));
  }
  T exchange(T value, std::memory_order order, Where where = Where::current()) {
    return Change(value, order, where, [](std::uint64_t, std::uint64_t operand) { return operand; });
  }
  T fetch_add(T value, std::memory_order order, Where where = Where::current()) {
    return Change(value, order, where,
                  [](std::uint64_t old, std::uint64_t operand) { return old + operand; });
  }
  T fetch_or(T value, std::memory_order order, Where where = Where::current()) {
    return Change(value, order, where,
                  [](std::uint64_t old, std::uint64_t operand) { return old | operand; });
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order order, std::memory_order on_failure,
                               Where where = Where::current()) {
    return Swap(expected, desired, order, on_failure, false, where);
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order order, std::memory_order on_failure,
                             Where where = Where::current()) {
    return Swap(expected, desired, order, on_failure, true, where);
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order order,
                             Where where = Where::current()) {
    return Swap(expected, desired, order, FailureOrder(order), true, where);
  }

 private:
  bool Swap(T& expected, T desired, std::memory_order order, std::memory_order on_failure, bool weak,
            Where where) {
    auto seen = static_cast<std::uint64_t>(expected);
    const bool swapped =
        CompareAndSwap({Kind::kCompareAndSwap, location_, order, on_failure, seen, weak, where}, seen,
                       static_cast<std::uint64_t>(desired));
    expected = static_cast<T>(seen);
    return swapped;
  }
  T Change(T value, std::memory_order order, Where where,
           std::uint64_t (*change)(std::uint64_t, std::uint64_t)) {
    return static_cast<T>(Modify({Kind::kModify, location_, order, order, 0, false, where},
                                 static_cast<std::uint64_t>(value), change));
  }
  static std::memory_order FailureOrder(std::memory_order order) {
    return order == std::memory_order_acq_rel   ? std::memory_order_acquire
           : order == std::memory_order_release ? std::memory_order_relaxed
                                                : order;
  }

  const std::size_t location_;
};

// ---- what a test does
// ----------------------------------------------------------------------------------------

// Serialises what the code under test asks its owner to serialise. One for a world.
class WriterLock {
 public:
  WriterLock();
  ~WriterLock();
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;
};

// This run has shown a violation, and ends.
[[noreturn]] void Fail(const char* what);

// What the calling thread does from now on depends on the world alone, and on how often it said so: nothing
// of what it read before is left in its variables. States that differ in that only become one.
void Forget();

// An order of one operation that is taken away.
enum class Part : std::uint8_t { kAcquire, kRelease, kAcquireOnFailure };
struct Weakening {
  std::string file;  // its name without the folder
  std::string function;
  unsigned line = 0;
  unsigned column = 0;
  Part part = Part::kAcquire;

  auto operator<=>(const Weakening&) const = default;
};

struct Report {
  std::uint64_t states = 0;       // that are different
  std::uint64_t steps = 0;        // that were run
  std::uint64_t ends = 0;         // states in which all threads are done
  std::string violation;          // the first one; empty if there is none
  std::string trace;              // the steps that lead to it
  std::vector<Weakening> orders;  // what could be taken away from the operations that were run
};

// A scenario over a world: a class that can be copied as bytes, without any pointer into the heap, made of
// objects under test and of what the test records.
template <typename World>
struct Scenario {
  std::function<void(World&)> prepare;               // before the threads start
  std::vector<std::function<void(World&)>> threads;  // kThreadsMax at most
  std::function<void(World&)> finish;                // after all threads: calls Fail() if something is wrong
};

// Not for tests: what Explore() is made of.
namespace internal {
struct Steps {
  std::size_t world_size = 0;
  std::function<void*(void* storage)> make;
  std::function<void(void* world)> prepare;
  std::vector<std::function<void(void* world)>> threads;
  std::function<void(void* world)> finish;
};
Report Explore(const Steps& steps, const std::vector<Weakening>& without);
}  // namespace internal

// Goes through all of a scenario, up to its first violation. `without`: orders to take away. Each adds runs
// and removes none, so what scenarios do not show without several orders, they do not show without one of
// them.
// Uses one exploration's worth of global state: not thread-safe.
template <typename World>
Report Explore(const Scenario<World>& scenario, const std::vector<Weakening>& without = {}) {
  internal::Steps steps;
  steps.world_size = sizeof(World);
  steps.make = [](void* storage) -> void* { return new (storage) World; };
  steps.prepare = [&](void* world) { scenario.prepare(*static_cast<World*>(world)); };
  for (const auto& thread : scenario.threads)
    steps.threads.push_back([&thread](void* world) { thread(*static_cast<World*>(world)); });
  steps.finish = [&](void* world) { scenario.finish(*static_cast<World*>(world)); };
  return internal::Explore(steps, without);
}

std::string ToString(Part part);
std::string ToString(const Weakening& weakening);

}  // namespace leaf::model

namespace leaf {
template <typename T>
using Atomic = model::Atomic<T>;
}  // namespace leaf
