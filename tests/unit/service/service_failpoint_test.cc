// Schedules between steps of the service that no port lets a test into.
#include <gtest/gtest.h>

#include <functional>
#include <string_view>
#include <utility>

#include "leaf/base/failpoint.h"
#include "unit/service/segment_service_fixture.h"

namespace leaf::service {
namespace {

// Runs a task once, when the named failpoint is reached.
class At {
 public:
  At(std::string_view name, std::function<void()> task) {
    name_ = name;
    task_ = std::move(task);
    failpoint_hit.store([](const char* hit) {
      if (task_ && hit == name_) std::exchange(task_, nullptr)();
    });
  }
  ~At() {
    failpoint_hit.store(nullptr);
    EXPECT_FALSE(task_) << "the failpoint was not reached";
  }
  At(const At&) = delete;
  At& operator=(const At&) = delete;

 private:
  static inline std::string_view name_;
  static inline std::function<void()> task_;
};

// A refresh has read the row, and made its generator. Before the row is judged, a request finds the generator
// and is granted a range: the row is older than the mark, and the database did not go back.
TEST_F(SegmentServiceTest, AGrantBeforeTheFirstRowIsJudgedIsNoWayBack) {
  table_.Put("pay", 1, 100);
  StartService();
  const At added("refresh: a tag is added", [&] {
    Ask("pay");
    workers_.RunOne();
  });
  Run();
  EXPECT_EQ(Get("pay")->ids(), std::vector<std::uint64_t>{2});
  EXPECT_NE(StatusOf("pay").state, "frozen");
}

}  // namespace
}  // namespace leaf::service
