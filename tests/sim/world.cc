#include "sim/world.h"

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/failpoint.h"

namespace leaf::sim {
namespace {

World* the_world = nullptr;

}  // namespace

std::uint64_t Dice::Next() {
  // splitmix64 (Steele, Lea, Flood 2014)
  std::uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

Nanos Dice::Around(Nanos mean) {
  const double factor = std::min(10.0, -std::log(1.0 - Real()));
  return static_cast<Nanos>(static_cast<double>(mean) * factor);
}

World::World(std::uint64_t seed) : dice_(seed) {
  failpoint_hit.store([](const char*) {
    if (the_world != nullptr) the_world->Preempt();
  });
}

World::~World() { failpoint_hit.store(nullptr); }

World* World::running() { return the_world; }

void World::Trace(std::string_view text) {
  for (const char c : text) Trace(static_cast<unsigned char>(c));
}

void World::Schedule(Task* task, Nanos at) {
  task->wake = ++last_wake_;
  events_.push({at, dice_.Next(), task->wake, task});
}

void World::Spawn(Process* process, std::function<void()> body, Nanos delay) {
  if (process != nullptr && process->dead) return;
  Task* task = nullptr;
  if (free_.empty()) {
    task = tasks_.emplace_back(std::make_unique<Task>()).get();
  } else {
    task = free_.back();
    free_.pop_back();
  }
  task->process = process;
  if (process != nullptr) process->tasks.push_back(task);
  task->fiber.Arm([process, body = std::move(body)]() mutable {
    try {
      if (process == nullptr || !process->dead) body();
    } catch (const ProcessKilled&) {  // where it was
    }
    body = nullptr;
  });
  Schedule(task, now_ + delay);
}

void World::Finish(Task* task) {
  if (task->process != nullptr) std::erase(task->process->tasks, task);
  task->wake = 0;
  free_.push_back(task);
}

void World::Sleep(Nanos time) {
  Task* const task = current_;
  LEAF_CHECK(task != nullptr);
  if (task->process != nullptr && task->process->dead && time > 0) time = kMicro;
  Schedule(task, now_ + std::max<Nanos>(time, 0));
  task->fiber.Suspend();
}

void World::Park() {
  Task* const task = current_;
  LEAF_CHECK(task != nullptr);
  if (task->process != nullptr && task->process->dead) return Sleep(kMicro);
  task->wake = 0;
  task->fiber.Suspend();
}

void World::Wake(Task* task) {
  if (!task->fiber.idle()) Schedule(task, now_);
}

void World::Block(const Process& process, Nanos time) {
  const bool may_throw =
      current_ != nullptr && current_->process == &process && std::uncaught_exceptions() == 0;
  if (!may_throw) return;
  if (!process.dead) Sleep(time);
  if (process.dead) throw ProcessKilled{};
}

void World::Kill(Process& process) {
  process.dead = true;
  process.stopped = false;
  process.stalled.clear();
  for (Task* const task : process.tasks) {
    if (task != current_) Schedule(task, now_);
  }
}

void World::Continue(Process& process) {
  process.stopped = false;
  for (Task* const task : std::exchange(process.stalled, {})) Schedule(task, now_);
}

void World::Preempt() {
  if (preemption_ == 0 || current_ == nullptr || current_->process == nullptr || current_->process->dead)
    return;
  if (!dice_.Chance(preemption_)) return;
  // Mostly a moment, now and then as long as a thread can be kept waiting.
  Sleep(dice_.Chance(0.03) ? dice_.Around(300 * kMilli) : dice_.Between(0, 50 * kMicro));
}

int World::Lock(void* mutex) {
  auto* const lock = static_cast<pthread_mutex_t*>(mutex);
  Nanos wait = 10 * kMicro;
  while (true) {
    if (const int result = pthread_mutex_trylock(lock); result != EBUSY) return result;
    LEAF_CHECK(current_ != nullptr);  // a deadlock: who holds it cannot run
    Sleep(wait);
    wait = std::min(2 * wait, kMilli);
  }
}

void World::Run(const std::function<bool()>& done) {
  LEAF_CHECK(the_world == nullptr);
  the_world = this;
  while (!events_.empty() && !done()) {
    const Event event = events_.top();
    events_.pop();
    Task* const task = event.task;
    if (task->wake != event.wake) continue;
    now_ = std::max(now_, event.at);
    if (task->process != nullptr && task->process->stopped) {
      task->process->stalled.push_back(task);
      continue;
    }
    Trace(static_cast<std::uint64_t>(now_));
    if (task->process != nullptr) Trace(task->process->number);
    ++steps_;
    current_ = task;
    task->fiber.Resume();
    current_ = nullptr;
    if (task->fiber.idle()) Finish(task);
  }
  the_world = nullptr;
}

}  // namespace leaf::sim

// std::mutex::lock comes here. A task that finds a lock taken must let its holder run, which the system's
// function would never do on this one thread.
extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  if (leaf::sim::World* const world = leaf::sim::World::running(); world != nullptr)
    return world->Lock(mutex);
  return pthread_mutex_trylock(mutex);
}
