// The hardened longjmp() takes a jump to another stack for an attack.
#undef _FORTIFY_SOURCE

#include "memory_model.h"

#include <fmt/format.h>
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <boost/unordered/unordered_flat_set.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "leaf/base/check.h"

namespace leaf {

// In place of the library's own, which ends the process.
void internal::CheckFailed(const char* condition, const char* file, int line) {
  static std::string what;  // a violation is the last thing that an exploration sees
  what = fmt::format("broken invariant: {} ({}:{})", condition, file, line);
  model::Fail(what.c_str());
}

namespace model {
namespace {

// Whose operations are no steps: preparing and finishing. Each has all memory for itself.
constexpr std::size_t kOutside = kThreadsMax;
constexpr std::size_t kStackBytes = std::size_t{64} * 1024;
// Below the frame in which a thread waits: what the switch itself puts there, and the red zone.
constexpr std::size_t kFrameSlack = 1024;
constexpr std::uint32_t kStepsMax = 1000;
// Where the lock stands in tables of locations.
constexpr std::size_t kLock = kLocationsMax;

using Index = std::uint8_t;
// Of each location, the oldest message that may still be read.
using View = std::array<Index, kLocationsMax>;

struct Message {
  std::uint64_t value;
  View released;  // what a load that acquires it learns
};
struct Location {
  std::uint64_t count;
  std::array<Message, kMessagesMax> messages;  // oldest first; the newest is the last
};
// Of an operation in its thread: how often that had called Forget(), and which operation since then it is. A
// later one has a greater position, on every path.
using Position = std::uint32_t;
constexpr unsigned kPositionBits = 16;

struct Thread {
  View known;
  std::uint64_t history;  // of all that it has read
  Position position;      // of `pending`
  Operation pending;
  std::uint32_t steps;
  std::uint32_t spurious;  // failures of a compare-and-swap, for no reason
  bool done;
};

// All that a step can change, besides the world and the stacks. Copied as bytes.
struct Memory {
  std::size_t locations;
  std::array<Location, kLocationsMax> location;
  std::array<Thread, kThreadsMax> threads;
  View lock_released;
  bool locked;
};

// One step that can be taken: by a thread, which reads the variant-th of the values it may read, the newest
// first.
struct Choice {
  std::size_t thread;
  std::size_t variant;
};

// Of this file's own invariants: LEAF_CHECK is for those of the code under test here.
void Require(bool condition, std::source_location where = std::source_location::current()) {
  if (condition) return;
  std::fprintf(stderr, "%s:%u: the model checker is wrong, or its bounds are too small\n", where.file_name(),
               where.line());
  std::abort();
}

std::uint64_t Mix(std::uint64_t a, std::uint64_t b) {
  // The 128-bit product of two words, folded (Wang Yi's wyhash).
  const auto product = static_cast<unsigned __int128>(a ^ 0x9E3779B97F4A7C15U) * (b ^ 0xD1B54A32D192ED03U);
  return static_cast<std::uint64_t>(product >> 64) ^ static_cast<std::uint64_t>(product);
}

std::uint64_t MixBytes(std::uint64_t hash, const void* bytes, std::size_t size) {
  const char* at = static_cast<const char*>(bytes);
  std::uint64_t word = 0;
  for (; size >= sizeof word; at += sizeof word, size -= sizeof word) {
    std::memcpy(&word, at, sizeof word);
    hash = Mix(hash, word);
  }
  if (size == 0) return hash;
  word = 0;
  std::memcpy(&word, at, size);
  return Mix(hash, word);
}

void Join(View& view, const View& other) {
  for (std::size_t i = 0; i < view.size(); ++i) view[i] = std::max(view[i], other[i]);
}

bool Acquires(std::memory_order order) {
  return order == std::memory_order_acquire || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}
bool Releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

std::string_view FileName(const std::source_location& where) {
  const std::string_view path = where.file_name();
  return path.substr(path.rfind('/') + 1);
}

// Without its class and what it takes.
std::string_view FunctionName(const std::source_location& where) {
  std::string_view name = where.function_name();
  name = name.substr(0, name.find('('));
  return name.substr(name.find_last_of(": ") + 1);
}

class Exploration {
 public:
  Exploration(const internal::Steps& steps, const std::vector<Weakening>& without);
  ~Exploration() { current = nullptr; }
  Exploration(const Exploration&) = delete;
  Exploration& operator=(const Exploration&) = delete;

  Report Run();

  // ---- called by the code under test
  std::size_t NewLocation(std::uint64_t value);
  std::uint64_t Load(const Operation& operation);
  void Store(const Operation& operation, std::uint64_t value);
  std::uint64_t Modify(const Operation& operation, std::uint64_t operand,
                       std::uint64_t (*change)(std::uint64_t, std::uint64_t));
  bool CompareAndSwap(const Operation& operation, std::uint64_t& expected, std::uint64_t desired);
  void Lock();
  void Unlock();
  [[noreturn]] void Fail(const char* what);
  void Forget();

  static Exploration* current;

 private:
  // Where a coroutine, or the scheduler, goes on. swapcontext() would do, but for two system calls each time.
  struct Coroutine {
    ucontext_t context;  // to start it
    jmp_buf jump;        // to go on
    std::unique_ptr<char[]> stack;
    char* frame = nullptr;  // while it waits: nothing below matters
  };
  struct Snapshot {
    Memory memory;
    std::vector<char> world;
    std::array<std::pair<jmp_buf, std::vector<char>>, kThreadsMax> threads;
    std::array<char*, kThreadsMax> frames;
  };
  // A state on the way to the one that is looked at.
  struct Visit {
    Snapshot snapshot;
    std::vector<Choice> choices;
    std::size_t next = 0;
    Operation taken;  // by the choice that was made last
  };

  // Up to the end, to a violation, or to an operation that a thread was not known to reach.
  Report RunOnce();

  static void Enter(unsigned coroutine);
  // Each runs a coroutine up to its next operation, or its end.
  [[gnu::noinline]] void Start(std::size_t coroutine);
  [[gnu::noinline]] void Resume(std::size_t coroutine);
  // On a thread's own stack: the next operation is up. Returns which variant it is to take.
  std::size_t Await(const Operation& operation);
  [[gnu::noinline]] void Leave();

  void Take(const Choice& choice);
  std::vector<Choice> Choices() const;
  std::size_t Variants(const Thread& thread) const;
  // What a variant of a compare-and-swap does. It reads `message`; a spurious one fails though the value is
  // the expected one.
  struct Swap {
    std::size_t message;
    bool spurious;
  };
  // The newest message first, which alone may be swapped; then older ones that differ from what is expected;
  // then those that do not, of a weak one that fails for no reason. Nothing if there are no so many variants.
  std::optional<Swap> SwapOf(const Thread& thread, std::size_t variant) const;
  // Whether no other thread can meet the thread's next operation any more: then there is nothing to be
  // learned from running others before it (a persistent set of one thread, as partial-order reduction has it;
  // Godefroid 1996).
  bool IsAlone(std::size_t thread) const;
  void NoteReach(const Operation& operation);
  bool AllDone() const;
  // Drops messages that no thread may read any more, so that states which differ in them are one.
  void Compact();
  std::uint64_t Hash() const;
  void Save(Snapshot& snapshot) const;
  void Restore(const Snapshot& snapshot);

  Thread& self() { return memory_.threads[running_]; }
  bool outside() const { return running_ == kOutside; }
  void Note(const Operation& operation);
  bool IsWeakened(const Operation& operation, Part part) const;
  bool Acquires(const Operation& operation) const;
  bool AcquiresOnFailure(const Operation& operation) const;
  bool Releases(const Operation& operation) const;
  void Append(const Operation& operation, std::uint64_t value, const View& handed_on);
  std::uint64_t Read(std::size_t location, std::size_t message, bool acquires);
  std::uint64_t& Newest(std::size_t location);
  std::string Trace() const;

  const internal::Steps& steps_;
  const std::vector<Weakening>& without_;
  std::unique_ptr<char[]> storage_;
  void* world_ = nullptr;
  Memory memory_{};
  jmp_buf scheduler_{};
  std::array<Coroutine, kThreadsMax + 1> coroutines_;
  std::function<void(void*)> outside_;  // what kOutside runs
  std::size_t running_ = kOutside;
  std::size_t variant_ = 0;
  std::optional<std::string> violation_;
  // How far threads reach: of each thread and location, the last operation on it that was seen. What is found
  // by trusting it is gone through again whenever it turns out to be too little.
  using Reach = std::array<std::array<Position, kLocationsMax + 1>, kThreadsMax>;
  Reach last_write_{};
  Reach last_access_{};
  bool reach_grew_ = false;
  boost::unordered_flat_set<std::uint64_t> noted_;  // places in the source whose orders are in orders_
  std::set<Weakening> orders_;
  std::vector<std::unique_ptr<Visit>> visits_;
  std::size_t depth_ = 0;  // how many of them are on the way; the others are room
};

Exploration* Exploration::current = nullptr;

Exploration::Exploration(const internal::Steps& steps, const std::vector<Weakening>& without)
    : steps_(steps), without_(without) {
  Require(current == nullptr && steps.threads.size() <= kThreadsMax);
  current = this;
  constexpr std::size_t kAlignment = 64;
  std::size_t room = steps.world_size + kAlignment;
  storage_ = std::make_unique<char[]>(room);
  void* aligned = storage_.get();
  world_ = std::align(kAlignment, steps.world_size, aligned, room);
  for (Coroutine& coroutine : coroutines_) coroutine.stack = std::make_unique<char[]>(kStackBytes);
}

Report Exploration::Run() {
  Report report;
  do {
    reach_grew_ = false;
    report = RunOnce();
  } while (reach_grew_ && !violation_);
  if (violation_) {
    report.violation = *violation_;
    report.trace = Trace();
  }
  report.orders.assign(orders_.begin(), orders_.end());
  return report;
}

Report Exploration::RunOnce() {
  Report report;
  std::memset(static_cast<void*>(&memory_), 0, sizeof memory_);
  std::memset(world_, 0, steps_.world_size);
  depth_ = 0;
  outside_ = [this](void* storage) {
    steps_.make(storage);
    steps_.prepare(world_);
  };
  Start(kOutside);
  for (std::size_t i = 0; i < steps_.threads.size() && !violation_; ++i) Start(i);
  for (std::size_t i = steps_.threads.size(); i < kThreadsMax; ++i) memory_.threads[i].done = true;

  boost::unordered_flat_set<std::uint64_t> seen;
  const auto arrive = [&] {
    Compact();
    if (!seen.insert(Hash()).second) return;
    ++report.states;
    if (AllDone()) {
      ++report.ends;
      outside_ = steps_.finish;
      return Start(kOutside);
    }
    auto choices = Choices();
    if (choices.empty()) violation_ = "every thread waits";
    if (depth_ == visits_.size()) visits_.push_back(std::make_unique<Visit>());
    Visit& visit = *visits_[depth_++];
    Save(visit.snapshot);
    visit.choices = std::move(choices);
    visit.next = 0;
  };
  if (!violation_) arrive();
  while (depth_ > 0 && !violation_ && !reach_grew_) {
    Visit& visit = *visits_[depth_ - 1];
    if (visit.next == visit.choices.size()) {
      --depth_;
      continue;
    }
    Restore(visit.snapshot);
    const Choice choice = visit.choices[visit.next++];
    visit.taken = memory_.threads[choice.thread].pending;
    ++report.steps;
    Take(choice);
    if (!violation_) arrive();
  }
  return report;
}

// ---- coroutines
// ----------------------------------------------------------------------------------------------

void Exploration::Enter(unsigned coroutine) {
  Exploration& self = *current;
  if (coroutine == kOutside) {
    self.outside_(self.world_);
  } else {
    self.steps_.threads[coroutine](self.world_);
    self.self().done = true;
  }
  self.Leave();
}

void Exploration::Start(std::size_t coroutine) {
  Coroutine& started = coroutines_[coroutine];
  Require(getcontext(&started.context) == 0);
  started.context.uc_stack.ss_sp = started.stack.get();
  started.context.uc_stack.ss_size = kStackBytes;
  started.context.uc_link = nullptr;
  // makecontext knows functions that take ints only.
  makecontext(&started.context, reinterpret_cast<void (*)()>(&Exploration::Enter), 1,
              static_cast<unsigned>(coroutine));
  running_ = coroutine;
  if (_setjmp(scheduler_) == 0) setcontext(&started.context);
  running_ = kOutside;
}

void Exploration::Resume(std::size_t coroutine) {
  running_ = coroutine;
  if (_setjmp(scheduler_) == 0) _longjmp(coroutines_[coroutine].jump, 1);
  running_ = kOutside;
}

void Exploration::Leave() {
  Coroutine& coroutine = coroutines_[running_];
  coroutine.frame = static_cast<char*>(__builtin_frame_address(0));
  if (_setjmp(coroutine.jump) == 0) _longjmp(scheduler_, 1);
}

std::size_t Exploration::Await(const Operation& operation) {
  Note(operation);
  Thread& thread = self();
  thread.pending = operation;
  ++thread.position;
  NoteReach(operation);
  if (++thread.steps > kStepsMax) Fail("a thread goes on for ever");
  Leave();
  return variant_;
}

void Exploration::Take(const Choice& choice) {
  variant_ = choice.variant;
  Resume(choice.thread);
}

void Exploration::Fail(const char* what) {
  violation_ = what;
  Leave();
  std::abort();  // nothing comes back here
}

void Exploration::Save(Snapshot& snapshot) const {
  snapshot.memory = memory_;
  const char* const world = static_cast<const char*>(world_);
  snapshot.world.assign(world, world + steps_.world_size);
  for (std::size_t i = 0; i < steps_.threads.size(); ++i) {
    if (memory_.threads[i].done) continue;
    const char* const top = coroutines_[i].stack.get() + kStackBytes;
    const char* const low = coroutines_[i].frame - kFrameSlack;
    Require(low >= coroutines_[i].stack.get());
    std::memcpy(&snapshot.threads[i].first, &coroutines_[i].jump, sizeof(jmp_buf));
    snapshot.threads[i].second.assign(low, top);
    snapshot.frames[i] = coroutines_[i].frame;
  }
}

void Exploration::Restore(const Snapshot& snapshot) {
  memory_ = snapshot.memory;
  std::memcpy(world_, snapshot.world.data(), snapshot.world.size());
  for (std::size_t i = 0; i < steps_.threads.size(); ++i) {
    if (memory_.threads[i].done) continue;
    const std::vector<char>& stack = snapshot.threads[i].second;
    std::memcpy(&coroutines_[i].jump, &snapshot.threads[i].first, sizeof(jmp_buf));
    std::memcpy(coroutines_[i].stack.get() + kStackBytes - stack.size(), stack.data(), stack.size());
    coroutines_[i].frame = snapshot.frames[i];
  }
}

// ---- states
// --------------------------------------------------------------------------------------------------

bool Exploration::AllDone() const {
  return std::ranges::all_of(memory_.threads, [](const Thread& thread) { return thread.done; });
}

std::vector<Choice> Exploration::Choices() const {
  std::vector<Choice> choices;
  const auto add = [&](std::size_t thread) {
    const std::size_t variants = Variants(memory_.threads[thread]);
    for (std::size_t variant = 0; variant < variants; ++variant) choices.push_back({thread, variant});
  };
  for (std::size_t i = 0; i < kThreadsMax; ++i) {
    if (memory_.threads[i].done || !IsAlone(i)) continue;
    add(i);
    return choices;
  }
  for (std::size_t i = 0; i < kThreadsMax; ++i)
    if (!memory_.threads[i].done) add(i);
  return choices;
}

bool Exploration::IsAlone(std::size_t thread) const {
  const Operation& operation = memory_.threads[thread].pending;
  if (Variants(memory_.threads[thread]) == 0) return false;
  const Reach& others = operation.kind == Kind::kLoad ? last_write_ : last_access_;
  for (std::size_t i = 0; i < kThreadsMax; ++i) {
    if (i == thread || memory_.threads[i].done) continue;
    if (others[i][operation.location] >= memory_.threads[i].position) return false;
  }
  return true;
}

void Exploration::NoteReach(const Operation& operation) {
  const Position position = self().position;
  const auto note = [&](Reach& reach) {
    Position& last = reach[running_][operation.location];
    if (last >= position) return;
    last = position;
    reach_grew_ = true;
  };
  note(last_access_);
  if (operation.kind != Kind::kLoad) note(last_write_);
}

std::size_t Exploration::Variants(const Thread& thread) const {
  const Operation& operation = thread.pending;
  if (operation.kind == Kind::kLock) return memory_.locked ? 0 : 1;
  if (operation.kind == Kind::kStore || operation.kind == Kind::kModify) return 1;
  const Location& location = memory_.location[operation.location];
  const std::size_t first = thread.known[operation.location];
  if (operation.kind == Kind::kLoad) return location.count - first;
  std::size_t variants = 0;
  while (SwapOf(thread, variants)) ++variants;
  return variants;
}

std::optional<Exploration::Swap> Exploration::SwapOf(const Thread& thread, std::size_t variant) const {
  const Operation& operation = thread.pending;
  const Location& location = memory_.location[operation.location];
  const std::size_t first = thread.known[operation.location];
  if (variant == 0) return Swap{location.count - 1, false};
  for (std::size_t i = location.count - 1; i-- > first;)
    if (location.messages[i].value != operation.expected && --variant == 0) return Swap{i, false};
  if (!operation.weak || thread.spurious == kSpuriousMax) return std::nullopt;
  for (std::size_t i = location.count; i-- > first;)
    if (location.messages[i].value == operation.expected && --variant == 0) return Swap{i, true};
  return std::nullopt;
}

void Exploration::Compact() {
  for (Thread& thread : memory_.threads)
    if (thread.done) thread.known = {};
  for (std::size_t i = 0; i < memory_.locations; ++i) {
    Location& location = memory_.location[i];
    if (location.count == 1) continue;
    std::uint64_t base = location.count - 1;
    for (const Thread& thread : memory_.threads)
      if (!thread.done) base = std::min<std::uint64_t>(base, thread.known[i]);
    if (base == 0) continue;
    std::move(location.messages.begin() + static_cast<std::ptrdiff_t>(base),
              location.messages.begin() + static_cast<std::ptrdiff_t>(location.count),
              location.messages.begin());
    location.count -= base;
    const auto rebase = [&](View& view) {
      view[i] = view[i] > base ? static_cast<Index>(view[i] - base) : Index{0};
    };
    for (Thread& thread : memory_.threads) rebase(thread.known);
    rebase(memory_.lock_released);
    for (std::size_t j = 0; j < memory_.locations; ++j)
      for (std::size_t k = 0; k < memory_.location[j].count; ++k)
        rebase(memory_.location[j].messages[k].released);
  }
}

std::uint64_t Exploration::Hash() const {
  std::uint64_t hash = MixBytes(steps_.world_size, world_, steps_.world_size);
  for (std::size_t i = 0; i < memory_.locations; ++i) {
    const Location& location = memory_.location[i];
    hash = Mix(hash, location.count);
    hash = MixBytes(hash, location.messages.data(), location.count * sizeof(Message));
  }
  for (const Thread& thread : memory_.threads) {
    hash = MixBytes(hash, thread.known.data(), sizeof(View));
    hash = Mix(hash, thread.done ? 1 : thread.history);
    hash = Mix(hash, thread.done ? 0 : thread.spurious);
  }
  hash = MixBytes(hash, memory_.lock_released.data(), sizeof(View));
  return Mix(hash, memory_.locked ? 1 : 0);
}

// ---- memory
// --------------------------------------------------------------------------------------------------

std::size_t Exploration::NewLocation(std::uint64_t value) {
  Require(outside() && memory_.locations < kLocationsMax);
  Location& location = memory_.location[memory_.locations];
  location.count = 1;
  location.messages[0] = {value, {}};
  return memory_.locations++;
}

std::uint64_t& Exploration::Newest(std::size_t location) {
  Location& of = memory_.location[location];
  return of.messages[of.count - 1].value;
}

std::uint64_t Exploration::Read(std::size_t location, std::size_t message, bool acquires) {
  Thread& thread = self();
  const Message& read = memory_.location[location].messages[message];
  thread.known[location] = std::max(thread.known[location], static_cast<Index>(message));
  if (acquires) Join(thread.known, read.released);
  thread.history = Mix(thread.history, read.value);
  return read.value;
}

void Exploration::Append(const Operation& operation, std::uint64_t value, const View& handed_on) {
  Location& location = memory_.location[operation.location];
  Require(location.count < kMessagesMax);
  Thread& thread = self();
  thread.known[operation.location] = static_cast<Index>(location.count);
  thread.history = Mix(thread.history, 1);
  View released = handed_on;
  if (Releases(operation)) Join(released, thread.known);
  location.messages[location.count++] = {value, released};
}

std::uint64_t Exploration::Load(const Operation& operation) {
  if (outside()) return Newest(operation.location);
  const std::size_t variant = Await(operation);
  return Read(operation.location, memory_.location[operation.location].count - 1 - variant,
              Acquires(operation));
}

void Exploration::Store(const Operation& operation, std::uint64_t value) {
  if (outside()) {
    Newest(operation.location) = value;
    return;
  }
  Await(operation);
  Append(operation, value, {});
}

std::uint64_t Exploration::Modify(const Operation& operation, std::uint64_t operand,
                                  std::uint64_t (*change)(std::uint64_t, std::uint64_t)) {
  if (outside()) {
    const std::uint64_t before = Newest(operation.location);
    Newest(operation.location) = change(before, operand);
    return before;
  }
  Await(operation);
  const std::size_t newest = memory_.location[operation.location].count - 1;
  const View handed_on = memory_.location[operation.location].messages[newest].released;
  const std::uint64_t before = Read(operation.location, newest, Acquires(operation));
  Append(operation, change(before, operand), handed_on);
  return before;
}

bool Exploration::CompareAndSwap(const Operation& operation, std::uint64_t& expected, std::uint64_t desired) {
  if (outside()) {
    std::uint64_t& newest = Newest(operation.location);
    if (newest == expected) {
      newest = desired;
      return true;
    }
    expected = newest;
    return false;
  }
  const std::size_t variant = Await(operation);
  const auto swap = SwapOf(self(), variant);
  Require(swap.has_value());
  const Message& read = memory_.location[operation.location].messages[swap->message];
  const bool swaps = read.value == expected && !swap->spurious;
  const View handed_on = read.released;
  if (swap->spurious) ++self().spurious;
  expected =
      Read(operation.location, swap->message, swaps ? Acquires(operation) : AcquiresOnFailure(operation));
  if (swaps) Append(operation, desired, handed_on);
  return swaps;
}

void Exploration::Lock() {
  if (outside()) return;
  Await({.kind = Kind::kLock, .location = kLock, .where = std::source_location::current()});
  memory_.locked = true;
  Thread& thread = self();
  Join(thread.known, memory_.lock_released);
  // What it reads of the world, it reads from now on.
  thread.history = MixBytes(thread.history, world_, steps_.world_size);
}

void Exploration::Unlock() {
  if (outside()) return;
  memory_.locked = false;
  memory_.lock_released = self().known;
}

void Exploration::Forget() {
  if (outside()) return;
  Thread& thread = self();
  thread.position = ((thread.position >> kPositionBits) + 1) << kPositionBits;
  thread.history = Mix(0, thread.position);
}

// ---- orders
// --------------------------------------------------------------------------------------------------

void Exploration::Note(const Operation& operation) {
  if (operation.kind == Kind::kLock) return;
  // An inline function has the same places in each unit, but the names of its file are different pointers.
  const std::uint64_t place = Mix(std::uint64_t{operation.where.line()} << 32 | operation.where.column(),
                                  reinterpret_cast<std::uintptr_t>(operation.where.file_name()));
  if (!noted_.insert(place).second) return;
  const bool reads = operation.kind != Kind::kStore;
  const bool writes = operation.kind != Kind::kLoad;
  const auto note = [&](Part part) {
    orders_.insert({std::string(FileName(operation.where)), std::string(FunctionName(operation.where)),
                    operation.where.line(), operation.where.column(), part});
  };
  if (reads && model::Acquires(operation.order)) note(Part::kAcquire);
  if (writes && model::Releases(operation.order)) note(Part::kRelease);
  if (operation.kind == Kind::kCompareAndSwap && model::Acquires(operation.on_failure))
    note(Part::kAcquireOnFailure);
}

bool Exploration::IsWeakened(const Operation& operation, Part part) const {
  return std::ranges::any_of(without_, [&](const Weakening& order) {
    return order.line == operation.where.line() && order.column == operation.where.column() &&
           order.part == part && order.file == FileName(operation.where);
  });
}

bool Exploration::Acquires(const Operation& operation) const {
  return model::Acquires(operation.order) && !IsWeakened(operation, Part::kAcquire);
}
bool Exploration::AcquiresOnFailure(const Operation& operation) const {
  return model::Acquires(operation.on_failure) && !IsWeakened(operation, Part::kAcquireOnFailure);
}
bool Exploration::Releases(const Operation& operation) const {
  return model::Releases(operation.order) && !IsWeakened(operation, Part::kRelease);
}

std::string Exploration::Trace() const {
  constexpr std::array kNames{"", "load", "store", "modify", "compare-and-swap", "lock"};
  std::string text;
  for (std::size_t i = 0; i < depth_; ++i) {
    const Visit& visit = *visits_[i];
    if (visit.next == 0) continue;
    const Choice& choice = visit.choices[visit.next - 1];
    text +=
        fmt::format("  thread {}: {} of location {} ({}:{}){}\n", choice.thread,
                    kNames[static_cast<std::size_t>(visit.taken.kind)], visit.taken.location,
                    FileName(visit.taken.where), visit.taken.where.line(),
                    choice.variant == 0 ? "" : fmt::format(", not the newest but {} before", choice.variant));
  }
  return text;
}

}  // namespace

std::size_t NewLocation(std::uint64_t value) { return Exploration::current->NewLocation(value); }
std::uint64_t Load(const Operation& operation) { return Exploration::current->Load(operation); }
void Store(const Operation& operation, std::uint64_t value) { Exploration::current->Store(operation, value); }
std::uint64_t Modify(const Operation& operation, std::uint64_t operand,
                     std::uint64_t (*change)(std::uint64_t, std::uint64_t)) {
  return Exploration::current->Modify(operation, operand, change);
}
bool CompareAndSwap(const Operation& operation, std::uint64_t& expected, std::uint64_t desired) {
  return Exploration::current->CompareAndSwap(operation, expected, desired);
}

WriterLock::WriterLock() { Exploration::current->Lock(); }
WriterLock::~WriterLock() { Exploration::current->Unlock(); }

void Fail(const char* what) { Exploration::current->Fail(what); }
void Forget() { Exploration::current->Forget(); }

Report internal::Explore(const Steps& steps, const std::vector<Weakening>& without) {
  return Exploration(steps, without).Run();
}

std::string ToString(Part part) {
  constexpr std::array kParts{"acquire", "release", "acquire on failure"};
  return kParts[static_cast<std::size_t>(part)];
}

std::string ToString(const Weakening& weakening) {
  return fmt::format("{}:{}:{} {}", weakening.file, weakening.line, weakening.column,
                     ToString(weakening.part));
}

}  // namespace model
}  // namespace leaf
