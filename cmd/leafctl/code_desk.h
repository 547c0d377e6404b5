// What a daemon does for those who ask it for codes: CodeStore, on a thread of its own.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "code_store.h"
#include "leaf/base/clock.h"
#include "leaf/base/mutex.h"
#include "leaf/server/issue/code_desk.h"
#include "leaf/sys/thread_pool.h"

namespace leaf::cmd {

// Thread-safe. The clock outlives it.
class NodeCodeDesk final : public server::CodeDesk {
 public:
  NodeCodeDesk(std::unique_ptr<CodeStore> store, const Clock& clock)
      : store_(std::move(store)), clock_(clock), thread_("leaf-codes", 1, clock) {}

  Codes Find(std::string_view tag, Purpose purpose) const override;
  void Open(std::string_view tag, Purpose purpose, Opened opened) override;

  // Nothing is opened from here on. What was asked for is not answered.
  void Stop() { thread_.Stop(); }

 private:
  using Wanted = std::pair<std::string, Purpose>;
  // Requests that wait; they are few, as each tag is opened once.
  static constexpr std::size_t kWaitingMax = 1000;
  // A failure is remembered for so long, of so many tags: clients that repeat their request ask the database
  // once a second, and not more often.
  static constexpr std::size_t kFailuresMax = 1000;

  struct Failure {
    Error error;
    MonotonicTime until;
  };

  // Why it is not tried now.
  std::optional<Error> Refuse(const Wanted& wanted) const;
  // Whether it is the first that waits for this, and has to see to it.
  bool Join(const Wanted& wanted, Opened opened);
  void OpenNow(const Wanted& wanted);

  const std::unique_ptr<CodeStore> store_;
  const Clock& clock_;
  mutable Mutex mutex_;
  std::map<Wanted, std::vector<Opened>> waiting_ LEAF_GUARDED_BY(mutex_);
  std::size_t waiting_count_ LEAF_GUARDED_BY(mutex_) = 0;
  std::map<Wanted, Failure> failures_ LEAF_GUARDED_BY(mutex_);
  sys::ThreadPool thread_;
};

}  // namespace leaf::cmd
