// Snowflake mode in process, as a request meets it: the service with a state file on the disk of the
// temporary folder, the real clocks, ceilings raised beside it.
//
// BM_Ceiling asks as fast as it can. What it gets is bounded by the layout, 4096 IDs a millisecond, once the
// lead over the wall clock that may be borrowed is used up; it is before the time runs.
// BM_Below stays below that: some hundred IDs a millisecond, and the processor time of nothing but taking
// them. Time between them passes asleep, so that the millisecond moves on as it does under load. Beside it
// BM_ReadClock, one reading of the wall clock: what a generator that reads it for every ID cannot be below.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <thread>
#include <vector>

#include "leaf/base/check.h"
#include "leaf/base/thread_counter.h"
#include "leaf/service/snowflake_service.h"
#include "leaf/sys/file_ops.h"
#include "leaf/sys/static_registry.h"
#include "leaf/sys/system_clock.h"
#include "leaf/sys/system_random.h"
#include "leaf/sys/thread_pool.h"
#include "leaf/sys/worker_state_file.h"
#include "support/fakes.h"
#include "support/temp_dir.h"

namespace leaf {
namespace {

constexpr std::uint64_t kPerMillisecond = 4096;
// The clock goes on while the lead is used up.
constexpr std::chrono::milliseconds kLeadSlack{20};
// In one go, and then a pause of a millisecond: below what a millisecond holds, whatever its sequence began
// at.
constexpr std::uint64_t kBurst = 500;

// The sum of all IDs, so that none of the work can be left out unnoticed.
std::atomic<std::uint64_t> checksum{0};

class LiveSnowflake {
 public:
  LiveSnowflake() {
    const auto started = service_.Start();
    LEAF_CHECK(started.ok());
    // A clock that is behind what an earlier process issued would have to be waited for; here there was none.
    core::SnowflakeRun run;
    while (!service_.TryNext(1, run)) std::this_thread::yield();
  }
  // Without an orderly stop, which waits until the clock has passed the last ID: the folder goes away.
  ~LiveSnowflake() {
    timers_.Stop();
    workers_.Stop();
    registry_worker_.Stop();
  }

  bool TryOne(std::uint64_t& sum) {
    core::SnowflakeRun run;
    if (!service_.TryNext(1, run)) return false;
    sum += run.source->FirstId(run);
    return true;
  }
  // Takes until the last ID is as far ahead of the clock as may be. A refusal does not say so: the durable
  // ceiling can be lower, until it is raised. By the millisecond: one by one this would never end where IDs
  // come more slowly than the clock allows, as under a sanitizer.
  // On a disk that takes longer than kLeadSlack for a flush, the durable ceiling never lets it come that far.
  void UseUpLead() {
    core::SnowflakeRun run;
    const auto enough = clock_.Monotonic() + 2 * Options().window;
    while (service_.generator().LeadAt(clock_.Wall()) + kLeadSlack < Options().window &&
           clock_.Monotonic() < enough) {
      if (!service_.TryNext(kPerMillisecond, run)) std::this_thread::yield();
    }
  }

 private:
  static service::SnowflakeOptions Options() {
    service::SnowflakeOptions options;
    options.cluster.name = "bench";
    options.boot_id = "bench";
    return options;
  }

  testing::TempDir folder_;
  sys::SystemClock clock_;
  sys::SystemRandom random_;
  testing::RecordingLogger log_;
  sys::FileOps files_;
  sys::WorkerStateFile state_file_{folder_.path(), files_};
  sys::StaticRegistry registry_{1, {}};
  sys::ThreadPool timers_{"timers", 1, clock_};
  sys::ThreadPool workers_{"ceilings", 1, clock_};
  sys::ThreadPool registry_worker_{"registry", 1, clock_};
  service::SnowflakeService service_{
      Options(), registry_, state_file_, clock_, random_, {timers_, workers_, registry_worker_}, log_};
};

// Threads that ask as fast as they can, from construction to destruction.
class Askers {
 public:
  Askers(LiveSnowflake& snowflake, std::int64_t threads) {
    for (std::int64_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this, &snowflake] {
        std::uint64_t sum = 0;
        while (!stop_.load(std::memory_order_relaxed)) {
          if (snowflake.TryOne(sum)) {
            taken_.Add(1);
          } else {
            std::this_thread::yield();
          }
        }
        checksum.fetch_add(sum);
      });
    }
  }
  ~Askers() {
    stop_.store(true);
    for (std::thread& thread : threads_) thread.join();
  }
  std::uint64_t taken() const { return taken_.Sum(); }

 private:
  std::atomic<bool> stop_{false};
  ThreadCounter taken_;
  std::vector<std::thread> threads_;
};

// An iteration is a slice of time. One begins where the last ended: in a gap between them a lead over the
// clock would come back, and count as if it had been earned. Threads of the library's own have such gaps, and
// each its own end.
void BM_Ceiling(benchmark::State& state) {
  static LiveSnowflake snowflake;
  snowflake.UseUpLead();
  const Askers askers(snowflake, state.range(0));
  // What came back while they started.
  snowflake.UseUpLead();
  const std::uint64_t first = askers.taken();
  std::uint64_t taken = first;
  auto last = std::chrono::steady_clock::now();
  for (auto _ : state) {
    // On a busy machine no thread may have had the processor in such a time: the slice is longer then.
    const std::uint64_t before = taken;
    while (taken == before) {
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
      taken = askers.taken();
    }
    const auto now = std::chrono::steady_clock::now();
    state.SetIterationTime(std::chrono::duration<double>(now - last).count());
    last = now;
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(taken - first));
}

double ThreadCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// kBurst times `one` an iteration, whose processor time counts, and a pause that does not.
template <typename One>
void RunInBursts(benchmark::State& state, One one) {
  for (auto _ : state) {
    const double before = ThreadCpuSeconds();
    for (std::uint64_t i = 0; i < kBurst; ++i) one();
    state.SetIterationTime(ThreadCpuSeconds() - before);
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBurst));
}

void BM_Below(benchmark::State& state) {
  static LiveSnowflake snowflake;
  std::uint64_t sum = 0;
  std::uint64_t refused = 0;
  RunInBursts(state, [&] {
    if (!snowflake.TryOne(sum)) ++refused;
  });
  checksum.fetch_add(sum);
  state.counters["refused"] = static_cast<double>(refused);
}

void BM_ReadClock(benchmark::State& state) {
  std::uint64_t sum = 0;
  RunInBursts(state, [&] {
    timespec time{};
    clock_gettime(CLOCK_REALTIME, &time);
    sum += static_cast<std::uint64_t>(time.tv_nsec);
  });
  checksum.fetch_add(sum);
}

BENCHMARK(BM_Ceiling)->Arg(1)->Arg(2)->UseManualTime();
BENCHMARK(BM_Below)->UseManualTime();
BENCHMARK(BM_ReadClock)->UseManualTime();

}  // namespace
}  // namespace leaf

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  fmt::print("checksum of all IDs: {:016x}\n", leaf::checksum.load());
}
