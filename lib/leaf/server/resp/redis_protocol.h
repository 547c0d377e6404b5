// Redis' protocol on a connection: commands are read and answered, in order. See leafctl-redis(7).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "leaf/server/net/protocol.h"
#include "leaf/server/resp/commands.h"

namespace leaf::server {

// Speaks Redis' protocol on every connection to a listener. Thread-safe.
class RedisProtocolFactory final : public ProtocolFactory {
 public:
  // What it is given outlives it.
  RedisProtocolFactory(resp::RedisOptions options, const Issuer& issuer, UnreadAnswers& unread,
                       const RequestMetrics& requests, const access::Gate& gate, const Clock& clock)
      : backend_{std::move(options), issuer, unread, clock, requests, gate, clock.Monotonic()} {}

  std::unique_ptr<Protocol> Make(const Origin& origin) const override;

 private:
  const resp::RedisBackend backend_;
  mutable std::atomic<std::uint64_t> next_client_{1};
};

}  // namespace leaf::server
