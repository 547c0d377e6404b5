// What a daemon does for callers that ask it for codes: CodeStore, on threads of its own. Codes are made on
// one and read on another, and wait in lines of their own: readers may ask for any name, and no name of
// theirs keeps a caller from its codes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "code_store.h"
#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/server/issue/code_desk.h"
#include "leaf/sys/thread_pool.h"

namespace leaf::cmd {

// Thread-safe, but for Prepare, Adopt, CompareRecords and Stop, which are one thread's. The clock and the log
// outlive it.
class NodeCodeDesk final : public server::CodeDesk {
 public:
  using Options = codes::CodeBook::Options;
  using MakeStore = std::function<Result<std::unique_ptr<CodeStore>>(Options)>;
  // There are no codes before Adopt.
  NodeCodeDesk(MakeStore make, const Clock& clock, Logger& log)
      : make_(std::move(make)), clock_(clock), log_(log) {}

  // What Adopt needs for these options, if they are the first ones. Errors: those of CodeStore::Open.
  Result<void> Prepare(const std::optional<Options>& options);
  // From now on codes are made as these options say; nothing: there are none. Requires: Prepare.
  void Adopt(std::optional<Options> options);

  // Compares the records of codes with those in use (CodeStore::CompareRecords), on the thread that makes
  // codes: now, besides what it does once a minute from Prepare on.
  void CompareRecords();

  // Its fingerprint; "" where there are no codes.
  std::string KeyInUse() const;

  bool is_on() const override { return in_use_.load(std::memory_order_acquire) != nullptr; }
  Codes Find(std::string_view tag, Purpose purpose) const override;
  void Open(std::string_view tag, Purpose purpose, Opened opened) override;

  // Nothing is opened from here on. What was asked for is not answered.
  void Stop() {
    if (making_) making_->Stop();
    if (reading_) reading_->Stop();
  }

 private:
  struct Wanted {
    std::string tag;
    Purpose purpose;
    std::uint64_t settings;  // what was opened, or refused, with earlier ones says nothing of these

    bool operator<(const Wanted& other) const {
      return std::tie(tag, purpose, settings) < std::tie(other.tag, other.purpose, other.settings);
    }
  };
  // Requests that wait for each purpose; they are few, as each tag is opened once.
  static constexpr std::size_t kWaitingMax = 1000;
  // A failure is remembered for so long, of so many tags: clients that repeat their request ask the database
  // once a second, and not more often.
  static constexpr std::size_t kFailuresMax = 1000;

  struct Failure {
    Error error;
    MonotonicTime until;
  };

  // Why it is not tried now.
  std::optional<Error> Refuse(const Wanted& wanted);
  // Whether it is the first that waits for this, and has to see to it.
  bool Join(const Wanted& wanted, Opened opened);
  void OpenNow(const Wanted& wanted);
  std::size_t& WaitingLocked(Purpose purpose) LEAF_REQUIRES(mutex_) {
    return purpose == Purpose::kIssue ? waiting_to_make_ : waiting_to_read_;
  }

  const MakeStore make_;
  const Clock& clock_;
  Logger& log_;
  std::unique_ptr<CodeStore> store_;         // made once, by Prepare
  std::atomic<CodeStore*> in_use_{nullptr};  // null while there are no codes
  std::atomic<std::uint64_t> settings_{0};   // counts what Adopt was told
  Mutex mutex_;
  std::map<Wanted, std::vector<Opened>> waiting_ LEAF_GUARDED_BY(mutex_);
  std::size_t waiting_to_make_ LEAF_GUARDED_BY(mutex_) = 0;
  std::size_t waiting_to_read_ LEAF_GUARDED_BY(mutex_) = 0;
  std::map<Wanted, Failure> failures_ LEAF_GUARDED_BY(mutex_);
  // Made with the store.
  std::optional<sys::ThreadPool> making_;
  std::optional<sys::ThreadPool> reading_;
};

}  // namespace leaf::cmd
