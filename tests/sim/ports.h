// The ports of lib/leaf/base on simulated time: the clocks of a machine, and the threads of a process.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "leaf/base/clock.h"
#include "leaf/base/executor.h"
#include "leaf/base/logger.h"
#include "leaf/core/clock_guard.h"
#include "sim/world.h"

namespace leaf::sim {

// Where the true wall clock stands when a simulation begins: 2026-11-20, about noon.
inline constexpr std::int64_t kBeginMillis = 1'795'176'000'000;

inline WallTime TrueWall(const World& world) { return WallTimeOf(kBeginMillis + world.now() / kMilli); }

// A computer: its clocks outlive its processes.
class Machine final : public Clock {
 public:
  Machine(World& world, std::string name) : world_(world), name_(std::move(name)) { Boot0(); }

  WallTime Wall() const override { return WallTimeOf(kBeginMillis + (world_.now() + WallError()) / kMilli); }
  MonotonicTime Monotonic() const override {
    return MonotonicTime{std::chrono::nanoseconds{kUptime + world_.now() - booted_ - suspended_}};
  }
  BootTime Boot() const override {
    return BootTime{std::chrono::nanoseconds{kUptime + world_.now() - booted_}};
  }
  void WaitUntil(MonotonicTime time) const override;

  const std::string& name() const { return name_; }
  std::string boot_id() const { return name_ + "-boot-" + std::to_string(boots_); }
  // Of the wall clock over true time.
  Nanos WallError() const {
    return offset_ + static_cast<Nanos>(drift_ * static_cast<double>(world_.now() - drifting_since_));
  }

  void StepWall(Nanos by) { offset_ += by; }
  void SetRight() {
    drift_ = 0;
    offset_ = 0;
  }
  void SetDrift(double rate) {
    offset_ = WallError();
    drift_ = rate;
    drifting_since_ = world_.now();
  }
  // It slept for `time` until now; `wall_stood`: its wall clock did not notice.
  void Slept(Nanos time, bool wall_stood) {
    suspended_ += time;
    if (wall_stood) offset_ -= time;
  }
  void Reboot() {
    ++boots_;
    Boot0();
  }

  // What an operator accepted as right.
  std::optional<core::ClockGuard::Offset> accepted;

 private:
  static constexpr Nanos kUptime = 100 * kSecond;
  void Boot0() {
    booted_ = world_.now();
    suspended_ = 0;
    accepted.reset();
  }

  World& world_;
  const std::string name_;
  Nanos offset_ = 0;
  double drift_ = 0;
  Nanos drifting_since_ = 0;
  Nanos booted_ = 0;
  Nanos suspended_ = 0;
  int boots_ = 0;
};

// A pool of threads of a process.
class Threads final : public Executor {
 public:
  Threads(World& world, Process& process, const Clock& clock, int count)
      : world_(world), process_(process), clock_(clock), idle_(count), count_(count) {}
  // Requires: stopped, or the process is dead and its tasks have ended.
  ~Threads() override = default;

  void Post(Task task) override;
  void PostAt(MonotonicTime time, Task task) override;
  void Stop() override;

 private:
  void Work();
  void WatchTimers();

  World& world_;
  Process& process_;
  const Clock& clock_;
  int idle_;
  const int count_;
  bool stopped_ = false;
  std::deque<Task> ready_;
  std::multimap<MonotonicTime, Task> timers_;
  sim::Task* watcher_ = nullptr;
  MonotonicTime watching_for_{};
};

// Keeps what a process says, if the user wants to read it.
class Journal final : public Logger {
 public:
  Journal(const World& world, const Process& process, bool loud)
      : world_(world), process_(process), loud_(loud) {}
  void Write(LogLevel level, std::string_view message) override;

 private:
  const World& world_;
  const Process& process_;
  const bool loud_;
};

}  // namespace leaf::sim
