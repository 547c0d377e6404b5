// Simulated time, and everything that happens in it: tasks (fibers) that sleep, wait and wake each other, and
// the processes they belong to, which can be killed and stopped. One system thread; what happens depends on
// the seed alone.
//
// A task runs until it blocks; no time passes meanwhile. It blocks where the real program would wait (a call
// to the outside, a wait, a lock that is taken), and, if asked for, at the failpoints inside of lib/leaf.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/random.h"
#include "sim/costs.h"
#include "sim/fiber.h"

namespace leaf::sim {

using Nanos = std::int64_t;

constexpr Nanos kMicro = 1000;
constexpr Nanos kMilli = 1000 * kMicro;
constexpr Nanos kSecond = 1000 * kMilli;
template <typename Rep, typename Period>
constexpr Nanos NanosOf(std::chrono::duration<Rep, Period> duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

class World;
struct Process;

// Thrown out of a call to the outside when the process has been killed in it. No code of lib/leaf catches it.
struct ProcessKilled {};

struct Task {
  Fiber fiber;
  Process* process = nullptr;  // null for what is outside of all processes
  std::uint64_t wake = 0;      // the one wake-up that counts
};

// A process: all its tasks end when it is killed; none runs while it is stopped.
struct Process {
  Process(std::string its_name, std::uint64_t its_number) : name(std::move(its_name)), number(its_number) {}

  const std::string name;
  const std::uint64_t number;  // no two of a run have the same
  bool dead = false;
  bool stopped = false;
  std::vector<Task*> tasks;    // that have not ended
  std::vector<Task*> stalled;  // that would run if it were not stopped
};

// Uniform numbers and the usual choices made from them. Deterministic.
class Dice final : public Random {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next() override;
  // True with probability `p`.
  bool Chance(double p) { return Real() < p; }
  double Real() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // In [low, high].
  std::int64_t Between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(Below(static_cast<std::uint64_t>(high - low) + 1));
  }
  // Exponential with this mean, at most ten times that.
  Nanos Around(Nanos mean);

 private:
  std::uint64_t state_;
};

class World {
 public:
  explicit World(std::uint64_t seed);
  // Requires: every task has ended.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Nanos now() const { return now_; }
  Dice& dice() { return dice_; }

  // `body` runs as a task of `process` (null: of none) after `delay`.
  void Spawn(Process* process, std::function<void()> body, Nanos delay = 0);
  // The rest is called from inside of tasks.
  Task* current() const { return current_; }
  // Lets time pass. Ends early if the process is killed.
  void Sleep(Nanos time);
  // Until Wake() or the end of the process.
  void Park();
  void Wake(Task* task);
  // A step of a call to the outside, made by `process`, that takes `time`. Throws ProcessKilled if that is
  // dead by then; returns at once, without time passing, where nothing may be thrown (destructors).
  void Block(const Process& process, Nanos time);

  // Ends every task of `process` where it blocks; they need to run once more for that.
  void Kill(Process& process);
  void Stop(Process& process) { process.stopped = true; }
  void Continue(Process& process);

  // How likely a task is held up at a failpoint.
  void set_preemption(double probability) { preemption_ = probability; }
  void Preempt();
  // Takes a lock that other tasks may hold; called for every std::mutex of the program.
  int Lock(void* mutex);
  // The same for every std::condition_variable: lets `mutex` go until it is notified, or `timeout` is over
  // (false). Like the real one it may end for no reason, and does when the process is killed.
  bool WaitFor(void* condition, void* mutex, std::optional<Nanos> timeout);
  void Notify(void* condition, bool all);

  // Runs until `done` says so, which is asked after each step, or nothing is left to do.
  void Run(const std::function<bool()>& done);

  // What happened goes into a hash, which two runs with one seed share.
  void Trace(std::uint64_t value) { trace_ = (trace_ ^ value) * 0x9E3779B97F4A7C15U + (trace_ >> 29); }
  void Trace(std::string_view text);
  std::uint64_t trace() const { return trace_; }
  std::uint64_t steps() const { return steps_; }
  Costs& costs() { return costs_; }

  // Of this system thread; null while no world runs.
  static World* running();

 private:
  struct Event {
    Nanos at = 0;
    std::uint64_t tie = 0;  // random: what is due at one time runs in any order
    std::uint64_t wake = 0;
    Task* task = nullptr;
    bool operator<(const Event& other) const { return at != other.at ? at > other.at : tie > other.tie; }
  };
  void Schedule(Task* task, Nanos at);
  void Finish(Task* task);

  Nanos now_ = 0;
  Dice dice_;
  double preemption_ = 0;
  std::uint64_t trace_ = 0xCBF29CE484222325U;
  std::uint64_t steps_ = 0;
  Costs costs_;
  std::uint64_t last_wake_ = 0;
  std::priority_queue<Event> events_;
  Task* current_ = nullptr;
  std::map<void*, std::vector<Task*>> waiting_;  // by condition, in the order in which they came
  std::deque<std::unique_ptr<Task>> tasks_;
  std::vector<Task*> free_;
};

}  // namespace leaf::sim
