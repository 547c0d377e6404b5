// How many connections each address has.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <map>

#include "leaf/base/mutex.h"

namespace leaf::server {

// What counts as one client: an IPv4 address, or the first 64 bits of an IPv6 address, since a host has all
// of the rest to itself (RFC 7421). An IPv4 address that is mapped into IPv6 is the IPv4 address.
using ClientAddress = std::array<unsigned char, 16>;
// `address` is of AF_INET or AF_INET6.
ClientAddress ClientAddressOf(const sockaddr_storage& address);

// Thread-safe.
class AddressCounts {
 public:
  // Counts one more, unless there are `max` already. False if it is not counted.
  bool Add(const ClientAddress& address, std::size_t max);
  // One that was counted is gone.
  void Remove(const ClientAddress& address);

 private:
  Mutex mutex_;
  std::map<ClientAddress, std::size_t> counts_ LEAF_GUARDED_BY(mutex_);  // none is 0
};

}  // namespace leaf::server
