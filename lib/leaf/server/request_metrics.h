// What the server counts of its requests: by route and status, how long they took, and its connections.
//
// Every thread that serves counts in a shard that only it writes: no lock, no read-modify-write, and no cache
// line that another thread writes. A collection reads all shards while they are written: each number is
// right for some moment of the collection, and none ever goes back.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "leaf/base/mutex.h"
#include "leaf/base/time.h"

namespace leaf::server {

// What a request was for, as metrics label it: there are few of them, whatever clients ask for.
enum class Route : std::uint8_t {
  kOther,  // nothing that exists, or no request at all
  kLeafSegment,
  kLeafSnowflake,
  kLeafDecode,
  kLeafPages,
  kV1Segment,
  kV1Snowflake,
  kV1Decode,
  kV1Codes,
  kV1Clock,
  kV1Mark,
  kV1Advice,
  kV1Pause,
  kV1Resume,
  kV1Status,
  kV1Workers,
  kV1Tags,
  kHealth,
  kMetrics,
  kDashboard,
  // Commands of the Redis port.
  kRedisIncr,
  kRedisIncrBy,
  kRedisNext,
  kRedisRange,
  kRedisSnowflake,
  kRedisCode,
  kRedisGet,
  kRedisDecode,
  kRedisExec,
  kRedisOther,
};
inline constexpr std::size_t kRoutes = static_cast<std::size_t>(Route::kRedisOther) + 1;
constexpr bool IsRedis(Route route) { return route >= Route::kRedisIncr; }
// By route, in the order of the enumeration.
inline constexpr std::array<std::string_view, kRoutes> kRouteNames{"other",
                                                                   "/api/segment/get",
                                                                   "/api/snowflake/get",
                                                                   "/decodeSnowflakeId",
                                                                   "/cache,/db",
                                                                   "/v1/segment",
                                                                   "/v1/snowflake",
                                                                   "/v1/decode",
                                                                   "/v1/codes",
                                                                   "/v1/clock",
                                                                   "/v1/segment/mark",
                                                                   "/v1/segment/advice",
                                                                   "/v1/segment/pause",
                                                                   "/v1/segment/resume",
                                                                   "/v1/status",
                                                                   "/v1/workers",
                                                                   "/v1/tags",
                                                                   "/health",
                                                                   "/metrics",
                                                                   "/",
                                                                   "incr",
                                                                   "incrby",
                                                                   "leaf.next",
                                                                   "leaf.range",
                                                                   "leaf.snowflake",
                                                                   "leaf.code",
                                                                   "get",
                                                                   "leaf.decode",
                                                                   "exec",
                                                                   "other"};
constexpr std::string_view RouteName(Route route) { return kRouteNames.at(static_cast<std::size_t>(route)); }

// The status codes that are counted on their own; any other one is counted as the last of them, 0.
inline constexpr std::array<int, 20> kCountedStatuses{200, 201, 304, 400, 401, 403, 404, 405, 408, 409,
                                                      413, 415, 421, 428, 429, 431, 500, 501, 503, 0};

// Upper bounds of the classes of durations: an ID from the reserve takes a few microseconds, and a request
// may be allowed to wait for longer than a second (server.request_timeout).
inline constexpr std::array<std::chrono::microseconds, 20> kDurationBounds{
    std::chrono::microseconds{5},         std::chrono::microseconds{10},
    std::chrono::microseconds{25},        std::chrono::microseconds{50},
    std::chrono::microseconds{100},       std::chrono::microseconds{250},
    std::chrono::microseconds{500},       std::chrono::microseconds{1000},
    std::chrono::microseconds{2500},      std::chrono::microseconds{5000},
    std::chrono::microseconds{10'000},    std::chrono::microseconds{25'000},
    std::chrono::microseconds{50'000},    std::chrono::microseconds{100'000},
    std::chrono::microseconds{250'000},   std::chrono::microseconds{500'000},
    std::chrono::microseconds{1'000'000}, std::chrono::microseconds{2'500'000},
    std::chrono::microseconds{5'000'000}, std::chrono::microseconds{10'000'000}};

struct RouteTotals {
  std::array<std::uint64_t, kCountedStatuses.size()> requests{};      // by status
  std::array<std::uint64_t, kDurationBounds.size() + 1> durations{};  // the last: above every bound
  std::uint64_t sum_ns = 0;
};

struct RequestTotals {
  std::array<RouteTotals, kRoutes> routes;
  std::uint64_t connections_accepted = 0;
  std::uint64_t connections_refused = 0;  // over a limit
  std::uint64_t connections_open = 0;
  std::uint64_t connections_max = 0;  // that may be open; 0 if not set
  std::uint64_t handshakes = 0;       // of TLS, that came to an end
  std::uint64_t handshakes_failed = 0;
  std::optional<WallTime> certificate_end{};  // nothing without TLS
};

// Thread-safe.
class RequestMetrics {
 public:
  // All calls from one thread at a time.
  class alignas(64) Shard {
   public:
    // A request was answered, so long after it was there.
    void Count(Route route, int status, std::chrono::nanoseconds took);
    void CountAccepted() { Add(accepted_, 1); }
    void CountRefused() { Add(refused_, 1); }
    void CountClosed() { Add(closed_, 1); }
    // Of TLS.
    void CountHandshake(bool good) { Add(good ? handshakes_ : handshakes_failed_, 1); }

   private:
    friend class RequestMetrics;
    using Cell = std::atomic<std::uint64_t>;
    // There is one writer: nothing can come between the two.
    static void Add(Cell& cell, std::uint64_t count) {
      cell.store(cell.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
    }
    struct RouteCells {
      std::array<Cell, kCountedStatuses.size()> requests{};
      std::array<Cell, kDurationBounds.size() + 1> durations{};
      Cell sum_ns{0};
    };
    std::array<RouteCells, kRoutes> routes_;
    Cell accepted_{0};
    Cell refused_{0};
    Cell closed_{0};
    Cell handshakes_{0};
    Cell handshakes_failed_{0};
  };

  // A new shard, which lives as long as this.
  Shard& NewShard();
  // server.max_connections, at the start and after each reload.
  void SetConnectionsMax(std::uint64_t count) { connections_max_.store(count, std::memory_order_relaxed); }
  // Of the server's certificate, at the start and after each reload.
  void SetCertificateEnd(WallTime end) { certificate_end_.store(UnixMillis(end), std::memory_order_relaxed); }
  RequestTotals Collect() const;

 private:
  std::atomic<std::uint64_t> connections_max_{0};
  static constexpr std::int64_t kNoCertificate = -1;
  std::atomic<std::int64_t> certificate_end_{kNoCertificate};
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Shard>> shards_ LEAF_GUARDED_BY(mutex_);
};

}  // namespace leaf::server
