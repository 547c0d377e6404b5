#include "sim/world.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>
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
    LEAF_CHECK(current_ != nullptr);  // a deadlock: the task that holds it cannot run
    Sleep(wait);
    wait = std::min(2 * wait, kMilli);
  }
}

bool World::WaitFor(void* condition, void* mutex, std::optional<Nanos> timeout) {
  Task* const task = current_;
  LEAF_CHECK(task != nullptr);
  const Nanos deadline = timeout ? now_ + std::max<Nanos>(*timeout, 0) : 0;
  waiting_[condition].push_back(task);
  pthread_mutex_unlock(static_cast<pthread_mutex_t*>(mutex));
  if (timeout) {
    Sleep(*timeout);
  } else {
    Park();
  }
  // It may be there no more: the task that notifies takes it out.
  if (const auto found = waiting_.find(condition); found != waiting_.end()) {
    std::erase(found->second, task);
    if (found->second.empty()) waiting_.erase(found);
  }
  Lock(mutex);
  return !timeout || now_ < deadline;
}

void World::Notify(void* condition, bool all) {
  const auto found = waiting_.find(condition);
  if (found == waiting_.end()) return;
  std::vector<Task*> woken;
  if (all) {
    woken.swap(found->second);
  } else {
    woken.push_back(found->second.front());
    found->second.erase(found->second.begin());
  }
  if (found->second.empty()) waiting_.erase(found);
  for (Task* const task : woken) Wake(task);
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

namespace {

using leaf::sim::Nanos;
using leaf::sim::World;

constexpr Nanos kNanosPerSecond = leaf::sim::kSecond;

Nanos NanosOf(const timespec& time) { return time.tv_sec * kNanosPerSecond + time.tv_nsec; }

// What a deadline of a wait is compared with, as long as a task runs: simulated time.
int WaitUntil(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* deadline) {
  World* const world = World::running();
  if (world == nullptr) return EINVAL;
  timespec now{};
  clock_gettime(clock, &now);
  return world->WaitFor(condition, mutex, NanosOf(*deadline) - NanosOf(now)) ? 0 : ETIMEDOUT;
}

}  // namespace

// std::mutex::lock comes here. A task that finds a lock taken must let its holder run, which the system's
// function would never do on this one thread.
extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  if (World* const world = World::running(); world != nullptr) return world->Lock(mutex);
  return pthread_mutex_trylock(mutex);
}

// std::condition_variable's. Outside of a world there is no other thread that could wait or notify.
extern "C" int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  if (World* const world = World::running(); world != nullptr) world->WaitFor(condition, mutex, std::nullopt);
  return 0;
}
extern "C" int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                      const timespec* deadline) {
  return WaitUntil(condition, mutex, CLOCK_REALTIME, deadline);
}
extern "C" int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                      const timespec* deadline) {
  return WaitUntil(condition, mutex, clock, deadline);
}
extern "C" int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  if (World* const world = World::running(); world != nullptr) world->Notify(condition, /*all=*/false);
  return 0;
}
extern "C" int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  if (World* const world = World::running(); world != nullptr) world->Notify(condition, /*all=*/true);
  return 0;
}

// From which std::condition_variable::wait_for counts. Two runs must not differ by what this machine's clock
// said.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  if (World* const world = World::running(); world != nullptr && world->current() != nullptr) {
    time->tv_sec = world->now() / kNanosPerSecond;
    time->tv_nsec = world->now() % kNanosPerSecond;
    return 0;
  }
  return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
}
