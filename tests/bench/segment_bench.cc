// Segment mode in process: Take beside a bare fetch_add on one shared counter, and beside the same work under
// a mutex. One run holds all of them, interleaved at random; the table at the end compares medians. The
// refill is real: ranges of kStep IDs, asked for when the buffer says so and installed under the writer's
// mutex; only the database is left out.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/core/segment_buffer.h"
#include "leaf/service/segment_service.h"
#include "leaf/sys/system_clock.h"
#include "leaf/sys/thread_pool.h"
#include "support/fakes.h"

namespace leaf {
namespace {

constexpr std::uint64_t kStep = 100'000;

// Sum of all IDs given out, per benchmark and thread count, so that none of the work can be left out
// unnoticed.
std::atomic<std::uint64_t> checksum{0};

void Publish(benchmark::State& state, std::uint64_t sum, std::uint64_t ids) {
  checksum.fetch_add(sum);
  state.SetItemsProcessed(static_cast<std::int64_t>(ids));
}

// The yardstick: what no counter shared by threads can beat.
void BM_FetchAdd(benchmark::State& state) {
  alignas(64) static std::atomic<std::uint64_t> counter{0};
  std::uint64_t sum = 0;
  for (auto _ : state) sum += counter.fetch_add(1, std::memory_order_acq_rel);
  Publish(state, sum, static_cast<std::uint64_t>(state.iterations()));
}

// A buffer whose takers refill it themselves.
class RefilledBuffer {
 public:
  RefilledBuffer() { Refill(); }

  std::uint64_t TakeOne() {
    while (true) {
      std::uint64_t id = 0;
      const auto result = buffer_.TakeOne(id);
      if (result.refill_wanted) [[unlikely]]
        Refill();
      if (result.outcome == core::SegmentBuffer::Outcome::kTaken) [[likely]]
        return id;
      if (result.outcome == core::SegmentBuffer::Outcome::kOvershoot) {
        if (const std::uint64_t late = Resolve(result.position)) return late;
      }
      Refill();
    }
  }
  // The first of `count`.
  std::uint64_t Take(std::uint64_t count) {
    while (true) {
      IdSpans spans;
      const auto result = buffer_.Take(count, spans);
      if (result.refill_wanted || result.outcome != core::SegmentBuffer::Outcome::kTaken) Refill();
      if (result.outcome == core::SegmentBuffer::Outcome::kTaken) return spans.ranges().front().begin;
    }
  }

 private:
  // Apart, both: what they need would be kept in memory on the way of every ID.
  [[gnu::noinline]] std::uint64_t Resolve(std::uint64_t position) {
    const std::lock_guard lock(mutex_);
    std::uint64_t id = 0;
    return buffer_.Resolve(position, id) ? id : 0;
  }
  [[gnu::noinline]] void Refill() {
    const std::lock_guard lock(mutex_);
    while (buffer_.CanInstall() && buffer_.remaining() < 2 * kStep) {
      (void)buffer_.Install({next_, next_ + kStep}, kStep - kStep / 10);
      next_ += kStep;
    }
  }

  core::SegmentBuffer buffer_;
  std::mutex mutex_;
  std::uint64_t next_ = 1;
};

void BM_Take1(benchmark::State& state) {
  static RefilledBuffer buffer;
  std::uint64_t sum = 0;
  for (auto _ : state) sum += buffer.TakeOne();
  Publish(state, sum, static_cast<std::uint64_t>(state.iterations()));
}

void BM_Take100(benchmark::State& state) {
  static RefilledBuffer buffer;
  std::uint64_t sum = 0;
  for (auto _ : state) sum += buffer.Take(100);
  Publish(state, sum, 100 * static_cast<std::uint64_t>(state.iterations()));
}

// What most of the field does: a lock around two numbers.
void BM_Mutex1(benchmark::State& state) {
  static std::mutex mutex;
  static std::uint64_t next = 1;
  static std::uint64_t end = 1 + kStep;
  std::uint64_t sum = 0;
  for (auto _ : state) {
    const std::lock_guard lock(mutex);
    if (next == end) end += kStep;
    sum += next++;
  }
  Publish(state, sum, static_cast<std::uint64_t>(state.iterations()));
}

// The service as a request meets it: the tag is looked up by name, refills run on a worker thread.
class LiveService {
 public:
  LiveService() {
    table_.Put("pay", 1, kStep);
    service_.Start();
  }
  ~LiveService() {
    service_.Stop();
    timers_.Stop();
    workers_.Stop();
    slow_workers_.Stop();
  }
  std::uint64_t TakeOne(std::string_view tag) {
    while (true) {
      std::uint64_t id = 0;
      if (service_.TryNextOne(tag, id)) [[likely]]
        return id;
      Wait();
    }
  }
  service::TagHandle Tag(std::string_view tag) { return service_.Tag(tag); }
  // Drained means that the worker has not had the processor yet.
  [[gnu::noinline]] void Wait() {
    service_.Next("pay", 1, {std::chrono::seconds{1}, std::chrono::seconds{1}}, [](const auto&) {});
    std::this_thread::yield();
  }

 private:
  sys::SystemClock clock_;
  testing::FakeRandom random_;
  testing::RecordingLogger log_;
  testing::MemorySegmentStore table_;
  testing::MemoryMarkStore marks_{clock_};
  sys::ThreadPool timers_{"timers", 1, clock_};
  sys::ThreadPool workers_{"workers", 1, clock_};
  sys::ThreadPool slow_workers_{"slow", 1, clock_};
  service::SegmentService service_{
      {}, table_, marks_, clock_, random_, {timers_, workers_, slow_workers_, workers_}, log_};
};

void BM_ServiceTake1(benchmark::State& state) {
  static LiveService service;
  // As a request brings it: nothing is known of it here.
  std::string_view tag = "pay";
  benchmark::DoNotOptimize(tag);
  std::uint64_t sum = 0;
  for (auto _ : state) sum += service.TakeOne(tag);
  Publish(state, sum, static_cast<std::uint64_t>(state.iterations()));
}

void BM_HandleTake1(benchmark::State& state) {
  static LiveService service;
  auto tag = service.Tag("pay");
  std::uint64_t sum = 0;
  for (auto _ : state) {
    std::uint64_t id = 0;
    while (!tag.TryTakeOne(id)) service.Wait();
    sum += id;
  }
  Publish(state, sum, static_cast<std::uint64_t>(state.iterations()));
}

BENCHMARK(BM_FetchAdd)->Threads(1)->Threads(2)->UseRealTime();
BENCHMARK(BM_Take1)->Threads(1)->Threads(2)->UseRealTime();
BENCHMARK(BM_Take100)->Threads(1)->Threads(2)->UseRealTime();
BENCHMARK(BM_Mutex1)->Threads(1)->Threads(2)->UseRealTime();
BENCHMARK(BM_ServiceTake1)->Threads(1)->Threads(2)->UseRealTime();
BENCHMARK(BM_HandleTake1)->Threads(1)->Threads(2)->UseRealTime();

// Collects the medians and puts them side by side.
class RatioReporter final : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      const bool median = run.run_type == Run::RT_Aggregate && run.aggregate_name == "median";
      if (median) per_second_[run.run_name.function_name][run.threads] = run.counters.at("items_per_second");
    }
    ConsoleReporter::ReportRuns(runs);
  }
  void Finalize() override {
    if (per_second_.count("BM_FetchAdd") == 0) return;
    fmt::print("\n{:<18} {:>8} {:>12} {:>22}\n", "median", "threads", "M IDs/s", "ratio to a fetch_add");
    for (const auto& [name, by_threads] : per_second_) {
      for (const auto& [threads, rate] : by_threads) {
        const double bare = per_second_["BM_FetchAdd"][threads];
        fmt::print("{:<18} {:>8} {:>12.1f} {:>22.2f}\n", name, threads, rate / 1e6, rate / bare);
      }
    }
    fmt::print("checksum of all IDs: {:016x}\n", checksum.load());
  }

 private:
  std::map<std::string, std::map<std::int64_t, double>> per_second_;
};

}  // namespace
}  // namespace leaf

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  leaf::RatioReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  benchmark::Shutdown();
}
