// Takes IDs from a daemon's Redis port. Internal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/id_range.h"
#include "leaf/base/result.h"
#include "leaf/client/trust.h"

namespace leaf::client {

// "redis://HOST:PORT", "rediss://HOST:PORT" or "redis+unix:/PATH".
bool IsRedisServer(std::string_view server);

struct IdQuestion {
  bool snowflake = false;
  std::string_view tag = "";  // in segment mode
  std::uint64_t count = 1;
  bool contiguous = false;  // in segment mode
};

// What the server gave; or that it gives no more than `max_count` IDs at once, and gave none.
struct RedisIds {
  std::vector<IdRange> ranges{};
  std::uint64_t max_count = 0;  // 0: not over the limit
};

// `token`: what the client logs in with; "" for nothing. Blocks up to the time-out, twice for contiguous IDs:
// the server is asked first whether it is a daemon, since another program may know INCRBY and make a counter.
// Errors: kUnreachable, kPermission, kUnavailable (no answer in time), kConfig (no trust over TLS), kInternal
// (no answer of a daemon), and what the server says.
Result<RedisIds> TakeFromRedis(const std::string& server, const IdQuestion& question,
                               std::chrono::milliseconds timeout, const TlsSource& tls,
                               const std::string& token);

}  // namespace leaf::client
