#include "leaf/server/net/address_counts.h"

#include <netinet/in.h>

#include <cstring>

#include "leaf/base/check.h"

namespace leaf::server {

ClientAddress ClientAddressOf(const sockaddr_storage& address) {
  // As IPv6 writes IPv4: ::ffff:a.b.c.d.
  constexpr std::size_t kV4At = 12;
  constexpr std::size_t kV6PrefixBytes = 8;
  ClientAddress client{};
  if (address.ss_family == AF_INET) {
    client[10] = client[11] = 0xFF;
    std::memcpy(client.data() + kV4At, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
    return client;
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  std::memcpy(client.data(), &v6, IN6_IS_ADDR_V4MAPPED(&v6) ? client.size() : kV6PrefixBytes);
  return client;
}

bool AddressCounts::Add(const ClientAddress& address, std::size_t max) {
  const MutexLock lock(mutex_);
  const auto found = counts_.try_emplace(address, 0).first;
  if (found->second >= max) {
    if (found->second == 0) counts_.erase(found);
    return false;
  }
  ++found->second;
  return true;
}

void AddressCounts::Remove(const ClientAddress& address) {
  const MutexLock lock(mutex_);
  const auto found = counts_.find(address);
  LEAF_CHECK(found != counts_.end());
  if (--found->second == 0) counts_.erase(found);
}

}  // namespace leaf::server
