// How many connections there may be, over all and from one address.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <string_view>

#include "leaf/base/clock.h"
#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/server/net/address_counts.h"

namespace leaf::server {

// An operator is not locked out by clients that take all places: Unix sockets have so many more.
inline constexpr std::size_t kReservedConnections = 64;

// Tells the log of connections over a limit: of the first at once, and of those since now and then.
// Thread-safe.
class RefusalLog {
 public:
  // `limit`: the setting.
  RefusalLog(Logger& log, std::string_view limit) : log_(log), limit_(limit) {}
  // Tells of the rest.
  ~RefusalLog();
  RefusalLog(const RefusalLog&) = delete;
  RefusalLog& operator=(const RefusalLog&) = delete;

  void Count(MonotonicTime now);
  // To be called now and then.
  void Look(MonotonicTime now);

 private:
  void TellIfDue(MonotonicTime now) LEAF_REQUIRES(mutex_);
  void Tell() LEAF_REQUIRES(mutex_);

  Logger& log_;
  const std::string_view limit_;
  Mutex mutex_;
  std::size_t untold_ LEAF_GUARDED_BY(mutex_) = 0;
  std::optional<MonotonicTime> told_ LEAF_GUARDED_BY(mutex_);  // the last line
};

// Thread-safe. Outlives its places.
class Places {
 public:
  // One connection's, given back when it is destroyed.
  class Place {
   public:
    Place(Place&& other) noexcept;
    Place& operator=(Place&&) = delete;
    ~Place();

    // Static text: why there is none; "" for a place within the limits.
    std::string_view refusal() const { return refusal_; }

   private:
    friend class Places;
    Place(Places& all, std::string_view refusal, const std::optional<ClientAddress>& address)
        : all_(&all), refusal_(refusal), address_(address) {}

    Places* all_;
    std::string_view refusal_;
    std::optional<ClientAddress> address_;  // if it was counted
  };

  explicit Places(Logger& log)
      : refusals_(log, "server.max_connections"),
        address_refusals_(log, "server.max_connections_per_address") {}

  // Holds for connections that come from now on. `per_address`: 0 for no limit.
  void SetLimits(std::size_t most, std::size_t per_address) {
    most_.store(most);
    per_address_.store(per_address);
  }
  // For a connection that was accepted. `fd`: its socket.
  Place Take(bool is_local, int fd, MonotonicTime now);
  // To be called now and then, for the log.
  void Look(MonotonicTime now) {
    refusals_.Look(now);
    address_refusals_.Look(now);
  }

 private:
  std::atomic<std::size_t> most_{0};
  std::atomic<std::size_t> per_address_{0};
  // This one word decides on a place: two that are compared, while other threads move them, let in one too
  // many.
  std::atomic<std::size_t> taken_{0};
  AddressCounts addresses_;  // while there is a limit for one
  RefusalLog refusals_;
  RefusalLog address_refusals_;
};

}  // namespace leaf::server
