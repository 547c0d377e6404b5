// What stands behind a router in unit tests: segment mode on fakes, with two tags.
#pragma once

#include <gtest/gtest.h>

#include "leaf/service/id_service.h"
#include "leaf/service/paused_tags.h"
#include "leaf/service/segment_service.h"
#include "leaf/sys/paused_tags_file.h"
#include "support/fakes.h"
#include "support/snowflake_fakes.h"

namespace leaf::server {

class RouterFixture : public ::testing::Test {
 protected:
  // To be called once the test has what its router needs.
  void StartService() {
    table_.Put("pay", 1, 1'000'000);
    table_.Put("order", 1, 1000);
    service_.Start();
    Run();
  }
  // All that is due.
  void Run() {
    while (timers_.RunOne() || workers_.RunOne() || control_.RunOne()) {
    }
  }

  testing::FakeClock clock_;
  testing::FakeRandom random_;
  testing::ManualExecutor timers_{clock_};
  testing::ManualExecutor workers_{clock_};
  testing::ManualExecutor control_{clock_};
  testing::RecordingLogger log_;
  testing::MemorySegmentStore table_;
  testing::MemoryMarkStore marks_{clock_};
  testing::CrashingDisk disk_;
  sys::PausedTagsFile file_{"/state", disk_};
  service::PausedTags paused_{file_};
  service::SegmentService service_{OptionsWith(paused_),
                                   table_,
                                   marks_,
                                   clock_,
                                   random_,
                                   service::SegmentExecutors{timers_, workers_, workers_, workers_},
                                   log_};
  service::IdService ids_{&service_};

 private:
  static service::SegmentOptions OptionsWith(service::PausedTags& paused) {
    service::SegmentOptions options;
    options.paused = &paused;
    return options;
  }
};

}  // namespace leaf::server
