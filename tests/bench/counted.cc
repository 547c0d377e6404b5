// What counts.py counts in process, under callgrind: each row is a loop whose instructions are dumped with
// the row's name. No time is measured, and nothing runs beside a row: ranges are so large that none is
// refilled.
#include <valgrind/callgrind.h>

#include <cstdint>
#include <cstdio>
#include <string_view>
#include <thread>

#include "leaf/base/check.h"
#include "leaf/core/segment_buffer.h"
#include "leaf/service/segment_service.h"
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

constexpr std::int64_t kStep = 100'000'000;
// Of a row, after as many that are not counted. counts.py divides by it.
constexpr std::uint64_t kIds = 20'000;
// Of snowflakes: so few that in most of the batches no millisecond is new and no clock is read. counts.py
// looks for the least, of batches of two sizes.
constexpr int kBatches = 100;
constexpr std::uint64_t kBatch = 4;

// So that no work is left out.
volatile std::uint64_t checksum = 0;

template <typename One>
void Count(const char* row, std::uint64_t ids, One one) {
  std::uint64_t sum = 0;
  CALLGRIND_ZERO_STATS;
  for (std::uint64_t i = 0; i < ids; ++i) sum += one();
  CALLGRIND_DUMP_STATS_AT(row);
  checksum = checksum + sum;
}

template <typename One>
void CountWarm(const char* row, One one) {
  for (std::uint64_t i = 0; i < kIds; ++i) checksum = checksum + one();
  Count(row, kIds, one);
}

void CountBuffer() {
  core::SegmentBuffer buffer;
  LEAF_CHECK(buffer.Install({1, 1 + static_cast<std::uint64_t>(kStep)}, 1000) ==
             core::SegmentBuffer::Installed::kYes);
  CountWarm("segment.take1", [&] {
    std::uint64_t id = 0;
    const auto result = buffer.TakeOne(id);
    LEAF_CHECK(result.outcome == core::SegmentBuffer::Outcome::kTaken && !result.refill_wanted);
    return id;
  });
}

void CountService() {
  sys::SystemClock clock;
  testing::FakeRandom random;
  testing::RecordingLogger log;
  testing::MemorySegmentStore table;
  testing::MemoryMarkStore marks(clock);
  sys::ThreadPool timers("timers", 1, clock);
  sys::ThreadPool workers("workers", 1, clock);
  service::SegmentService service({}, table, marks, clock, random, {timers, workers, workers, workers}, log);
  table.Put("pay", 1, kStep);
  service.Start();
  IdSpans first;
  while (!service.TryNext("pay", 1, first)) {
    service.Next("pay", 1, {std::chrono::seconds{1}, std::chrono::seconds{1}}, [](const auto&) {});
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
  std::this_thread::sleep_for(std::chrono::milliseconds{50});  // what the first grant set going is over
  // As a request brings it: the compiler knows nothing of it.
  const char* volatile name = "pay";
  const std::string_view tag = name;
  CountWarm("segment.named", [&] {
    std::uint64_t id = 0;
    LEAF_CHECK(service.TryNextOne(tag, id));
    return id;
  });
  CountWarm("segment.handle", [handle = service.Tag(tag)]() mutable {
    std::uint64_t id = 0;
    LEAF_CHECK(handle.TryTakeOne(id));
    return id;
  });
  service.Stop();
  timers.Stop();
  workers.Stop();
}

void CountSnowflake() {
  testing::TempDir folder;
  sys::SystemClock clock;
  sys::SystemRandom random;
  testing::RecordingLogger log;
  sys::FileOps files;
  sys::WorkerStateFile state_file(folder.path(), files);
  sys::StaticRegistry registry(1, {});
  sys::ThreadPool timers("timers", 1, clock);
  sys::ThreadPool workers("ceilings", 1, clock);
  service::SnowflakeOptions options;
  options.cluster.name = "bench";
  options.boot_id = "bench";
  service::SnowflakeService service(options, registry, state_file, clock, random, {timers, workers, workers},
                                    log);
  LEAF_CHECK(service.Start().ok());
  const auto one = [&]() -> std::uint64_t {
    core::SnowflakeRun run;
    return service.TryNext(1, run) ? run.source->FirstId(run) : 0;
  };
  // On a busy machine the ceiling may not be raised yet.
  const auto wait = [&] {
    while (one() == 0) std::this_thread::yield();
  };
  for (int i = 0; i < kBatches; ++i) {
    // The ID before reads the clock, and begins a millisecond: to write a dump takes long.
    wait();
    Count("snowflake.batch", kBatch, one);
    wait();
    Count("snowflake.batch2", 2 * kBatch, one);
  }
  timers.Stop();
  workers.Stop();
}

}  // namespace
}  // namespace leaf

int main() {
  leaf::CountBuffer();
  leaf::CountService();
  leaf::CountSnowflake();
  std::printf("%llu IDs a row, %llu and %llu a batch\n", static_cast<unsigned long long>(leaf::kIds),
              static_cast<unsigned long long>(leaf::kBatch),
              static_cast<unsigned long long>(2 * leaf::kBatch));
}
