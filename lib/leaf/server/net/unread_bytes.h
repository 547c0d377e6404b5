// A bound on the memory of large answers that wait until their clients read them.
#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

#include "leaf/server/net/high_water.h"

namespace leaf::server {

// Thread-safe. Outlives what it holds.
class UnreadBytes {
 public:
  // A part of the memory, for as long as it lives.
  class Held {
   public:
    Held() = default;
    Held(Held&& other) noexcept
        : all_(std::exchange(other.all_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Held& operator=(Held&& other) noexcept {
      std::swap(all_, other.all_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() {
      if (all_ != nullptr) all_->held_.fetch_sub(bytes_);
    }
    explicit operator bool() const { return all_ != nullptr; }

   private:
    friend class UnreadBytes;
    Held(UnreadBytes& all, std::size_t bytes) : all_(&all), bytes_(bytes) {}

    UnreadBytes* all_ = nullptr;
    std::size_t bytes_ = 0;
  };

  explicit UnreadBytes(std::size_t most) : most_(most) {}

  bool full() const { return held_.load() >= most_; }
  // More than half of it is held.
  bool scarce() const { return held_.load() > most_ / 2; }
  std::size_t held() const { return held_.load(); }
  // The most that was held at a time.
  HighWater& most_held() { return most_held_; }
  // Nothing if it is full. One answer may go beyond the bound: otherwise a larger one could never be given.
  Held Hold(std::size_t bytes) {
    const std::size_t before = held_.fetch_add(bytes);
    if (before >= most_) {
      held_.fetch_sub(bytes);
      return {};
    }
    most_held_.Rise(before + bytes);
    return {*this, bytes};
  }
  // For what cannot be refused any more.
  Held HoldAnyway(std::size_t bytes) {
    most_held_.Rise(held_.fetch_add(bytes) + bytes);
    return {*this, bytes};
  }

 private:
  const std::size_t most_;
  std::atomic<std::size_t> held_{0};
  HighWater most_held_;
};

// Of all connections together.
struct UnreadAnswers {
  // Batches of IDs, which are ranges until they are written out: a few hundred bytes for most, and some tens
  // of KB for millions of snowflake IDs. 50 000 clients can wait for ordinary ones.
  UnreadBytes batches{std::size_t{32} * 1024 * 1024};
  // What clients of the Redis port queue between MULTI and EXEC, beyond a little for each, and its replies.
  UnreadBytes queues{std::size_t{32} * 1024 * 1024};
  // Reports, whose text is in memory.
  UnreadBytes reports{std::size_t{64} * 1024 * 1024};
  // The metrics, and reports over the Unix socket: clients that do not read other reports must not keep
  // operators from seeing that.
  UnreadBytes metrics{std::size_t{48} * 1024 * 1024};
  UnreadBytes local{std::size_t{16} * 1024 * 1024};
  // Bodies of requests that change tags, as long as they arrive and are read; and those over the Unix socket.
  UnreadBytes bodies{std::size_t{4} * 1024 * 1024};
  UnreadBytes local_bodies{std::size_t{4} * 1024 * 1024};

  std::size_t reports_held() const { return reports.held() + metrics.held() + local.held(); }
  // About: each may have had its most at another time.
  std::size_t reports_most_held() {
    return reports.most_held().level() + metrics.most_held().level() + local.most_held().level();
  }
  // At least what is held now.
  void RiseMostHeld() {
    for (UnreadBytes* const each : {&reports, &metrics, &local}) each->most_held().Rise(each->held());
  }
  // Not more than what is held now.
  void ForgetMostHeld() {
    for (UnreadBytes* const each : {&reports, &metrics, &local}) each->most_held().Reset(each->held());
  }
};

}  // namespace leaf::server
