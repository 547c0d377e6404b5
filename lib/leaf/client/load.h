// A load on a daemon, over connections that stay open: what it answers a second, and how fast.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "leaf/base/result.h"
#include "leaf/client/trust.h"

namespace leaf::client {

// How long answers took, in buckets that are at most 1/32 wide of their value. Not thread-safe.
class LatencyHistogram {
 public:
  void Add(std::chrono::microseconds latency);
  std::uint64_t count() const { return count_; }
  // The latency that this share of the answers did not exceed, 0 < share <= 1, to the width of a bucket; 0
  // for none. Never above max().
  std::chrono::microseconds AtShare(double share) const;
  std::chrono::microseconds max() const { return max_; }

 private:
  // Each power of two has kParts buckets; below kParts each microsecond has its own.
  static constexpr std::size_t kParts = 32;
  static constexpr std::size_t kPowers = 30;  // up to an hour and a half
  static std::size_t BucketOf(std::uint64_t micros);
  static std::uint64_t EndOf(std::size_t bucket);

  std::array<std::uint64_t, kParts * kPowers> buckets_{};
  std::uint64_t count_ = 0;
  std::chrono::microseconds max_{0};
};

struct LoadPlan {
  std::string server;   // "http://HOST:PORT", "https://HOST:PORT" or "unix:/PATH"
  std::string token{};  // as of DaemonClient
  std::string target;   // what is asked for: "/v1/snowflake?count=1"
  std::size_t connections = 1;
  std::chrono::milliseconds duration{0};
  std::chrono::milliseconds timeout{0};  // of a connect and of an answer
  TlsSource tls{};
};

struct LoadReport {
  std::uint64_t answers = 0;  // with status 200
  // By the code of the answer's body, "http_STATUS" without one, or "connection" for a connection that broke
  // off or was silent for longer than the time-out.
  std::map<std::string, std::uint64_t> failures;
  LatencyHistogram latency;  // of the answers with status 200
  std::chrono::nanoseconds elapsed{0};

  std::uint64_t failed() const;
};

// Sends requests on each connection, one after the other, and opens a connection again that breaks off, until
// the duration is over, which begins with the first answer. The calling thread does all of it: a load that
// needs more than one core is not made. `progress` hears of what there is so far, about once a second. The
// first answer decides whether there is anything to measure. Errors: those of DaemonClient for the first
// connection and its answer.
Result<LoadReport> RunLoad(const LoadPlan& plan, const std::function<void(const LoadReport&)>& progress);

}  // namespace leaf::client
