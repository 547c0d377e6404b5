// Segment mode on fakes, for unit tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "leaf/service/segment_service.h"
#include "support/fakes.h"

namespace leaf::service {

// The whole service on one thread: every task runs when the test says so.
class SegmentServiceTest : public ::testing::Test {
 protected:
  void StartService() {
    service_.emplace(options_, store_, marks_, clock_, random_,
                     SegmentExecutors{timers_, workers_, slow_workers_, workers_}, log_);
    service_->Start();
  }
  void Run() {
    while (timers_.RunOne() || workers_.RunOne() || slow_workers_.RunOne()) {
    }
  }
  // Lets time pass in small steps, running what falls due.
  void Pass(std::chrono::milliseconds time) {
    for (std::chrono::milliseconds passed{0}; passed < time; passed += std::chrono::milliseconds{5}) {
      clock_.Advance(std::chrono::milliseconds{5});
      Run();
    }
  }

  struct Answer {
    std::optional<Result<IdSpans>> result;
    ParkedRequest parked;
    bool done() const { return result.has_value(); }
    ErrorCode code() const { return result->error().code; }
    std::vector<std::uint64_t> ids() const {
      std::vector<std::uint64_t> ids;
      for (const IdRange& range : result->value().ranges()) {
        for (std::uint64_t id = range.begin; id < range.end; ++id) ids.push_back(id);
      }
      return ids;
    }
  };
  std::shared_ptr<Answer> Ask(const std::string& tag, const Batch& batch = 1) {
    auto answer = std::make_shared<Answer>();
    IdSpans spans;
    if (batch.contiguous ? service_->TryNextContiguous(tag, batch.count, spans)
                         : service_->TryNext(tag, batch.count, spans)) {
      answer->result = spans;
    } else {
      answer->parked = service_->Next(tag, batch, {std::chrono::seconds{1}, std::chrono::milliseconds{10}},
                                      [answer](Result<IdSpans> result) {
                                        ASSERT_FALSE(answer->done()) << "answered twice";
                                        answer->result = std::move(result);
                                      });
    }
    return answer;
  }
  // Asks and runs until it is answered, within the longest wait.
  std::shared_ptr<Answer> Get(const std::string& tag, const Batch& batch = 1) {
    auto answer = Ask(tag, batch);
    Run();
    for (int i = 0; i < 300 && !answer->done(); ++i) Pass(std::chrono::milliseconds{5});
    EXPECT_TRUE(answer->done());
    return answer;
  }
  TagStatus StatusOf(const std::string& tag) const {
    for (const TagStatus& status : service_->TagStatuses()) {
      if (status.tag == tag) return status;
    }
    ADD_FAILURE() << "no status of " << tag;
    return {};
  }

  SegmentOptions options_;
  testing::FakeClock clock_;
  testing::FakeRandom random_;
  testing::ManualExecutor timers_{clock_};
  testing::ManualExecutor workers_{clock_};
  testing::ManualExecutor slow_workers_{clock_};
  testing::RecordingLogger log_;
  testing::MemorySegmentStore table_;
  testing::FaultySegmentStore store_{table_};
  testing::MemoryMarkStore marks_{clock_};
  std::optional<SegmentService> service_;
};

}  // namespace leaf::service
