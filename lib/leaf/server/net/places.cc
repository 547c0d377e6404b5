#include "leaf/server/net/places.h"

#include <sys/socket.h>

#include <chrono>
#include <utility>

namespace leaf::server {
namespace {

// The log tells of connections over a limit once in so long.
constexpr std::chrono::minutes kRefusalsTold{1};
constexpr std::string_view kTooMany = "this server has too many connections";
constexpr std::string_view kTooManyFromAddress = "this address has too many connections";

// Nothing if the client has gone already, or has no address: it came through a proxy's Unix socket.
std::optional<ClientAddress> PeerOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  if (address.ss_family == AF_UNIX) return std::nullopt;
  return ClientAddressOf(address);
}

}  // namespace

RefusalLog::~RefusalLog() {
  if (untold_ > 0) Tell();
}

void RefusalLog::Count(MonotonicTime now) {
  const MutexLock lock(mutex_);
  ++untold_;
  TellIfDue(now);
}

void RefusalLog::Look(MonotonicTime now) {
  const MutexLock lock(mutex_);
  if (untold_ > 0) TellIfDue(now);
}

void RefusalLog::TellIfDue(MonotonicTime now) {
  if (told_ && now - *told_ < kRefusalsTold) return;
  told_ = now;
  Tell();
}

void RefusalLog::Tell() {
  log_.Warning("{} connection{} over {}", untold_, untold_ == 1 ? "" : "s", limit_);
  untold_ = 0;
}

Places::Place::Place(Place&& other) noexcept
    : all_(std::exchange(other.all_, nullptr)), refusal_(other.refusal_), address_(other.address_) {}

Places::Place::~Place() {
  if (all_ == nullptr) return;
  if (refusal_.empty()) all_->taken_.fetch_sub(1);
  if (address_) all_->addresses_.Remove(*address_);
}

Places::Place Places::Take(bool is_local, int fd, MonotonicTime now) {
  // Once, as it can change meanwhile.
  const std::size_t per_address = per_address_.load();
  const auto address = is_local || per_address == 0 ? std::nullopt : PeerOf(fd);
  if (address && !addresses_.Add(*address, per_address)) {
    address_refusals_.Count(now);
    return {*this, kTooManyFromAddress, std::nullopt};
  }
  if (taken_.fetch_add(1) < most_.load() + (is_local ? kReservedConnections : 0)) return {*this, "", address};
  taken_.fetch_sub(1);
  if (address) addresses_.Remove(*address);
  refusals_.Count(now);
  return {*this, kTooMany, std::nullopt};
}

}  // namespace leaf::server
