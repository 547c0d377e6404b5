// One look at all tags for all requests for /v1/status: at most one a second, however many there are.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "leaf/base/clock.h"
#include "leaf/base/mutex.h"
#include "leaf/base/time.h"
#include "leaf/server/http/status_json.h"
#include "leaf/service/id_service.h"

namespace leaf::server {

// Thread-safe. The clock and the service outlive it.
class SharedStatus {
 public:
  static constexpr std::chrono::milliseconds kMaxAge{1000};

  using Gather = std::function<StatusSnapshot()>;
  SharedStatus(const Clock& clock, const service::IdService& ids, Gather gather)
      : clock_(clock), ids_(ids), gather_(std::move(gather)) {}

  // The JSON that `query` asks for, of a snapshot that is no older than kMaxAge, nor than the last
  // Invalidate. Takes longer the more tags there are.
  std::string Answer(const StatusQuery& query);

  // Something was changed here: what is asked for from now on has it. Does not block.
  void Invalidate() { changes_.fetch_add(1); }

 private:
  // So much of answers is kept beside the newest one.
  static constexpr std::size_t kKeptBytes = std::size_t{16} * 1024 * 1024;
  static constexpr std::size_t kKeptAnswers = 16;

  struct Kept {
    StatusQuery query;
    std::string body;
  };
  void Refresh() LEAF_REQUIRES(mutex_);
  void Keep(const StatusQuery& query, const std::string& body) LEAF_REQUIRES(mutex_);

  const Clock& clock_;
  const service::IdService& ids_;
  const Gather gather_;
  std::atomic<std::uint64_t> changes_{0};
  Mutex mutex_;
  std::shared_ptr<const StatusSnapshot> snapshot_ LEAF_GUARDED_BY(mutex_);
  MonotonicTime made_at_ LEAF_GUARDED_BY(mutex_);
  std::uint64_t changes_seen_ LEAF_GUARDED_BY(mutex_) = 0;  // by the snapshot
  std::deque<Kept> kept_ LEAF_GUARDED_BY(mutex_);           // of the snapshot, the oldest first
  std::size_t kept_bytes_ LEAF_GUARDED_BY(mutex_) = 0;
};

}  // namespace leaf::server
