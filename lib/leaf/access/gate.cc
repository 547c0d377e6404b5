#include "leaf/access/gate.h"

#include <fmt/format.h>

#include <utility>

#include "leaf/base/secret.h"

namespace leaf::access {
namespace {

std::string_view BytesOf(const TokenHash& hash) {
  return {reinterpret_cast<const char*>(hash.data()), hash.size()};
}

}  // namespace

void Gate::Set(const std::vector<TokenEntry>& tokens, bool has_tokens, Roles anonymous) {
  const MutexLock lock(mutex_);
  std::map<std::string, CallerPtr, std::less<>> by_name;
  std::vector<Known> known;
  for (const TokenEntry& entry : tokens) {
    std::shared_ptr<IdLimit> limit;
    if (entry.ids_per_second > 0) {
      const auto old = by_name_.find(entry.name);
      const bool goes_on = old != by_name_.end() && old->second->limit &&
                           old->second->limit->per_second() == entry.ids_per_second;
      limit = goes_on ? old->second->limit : std::make_shared<IdLimit>(entry.ids_per_second);
    }
    const auto caller = std::make_shared<const Caller>(Caller{.name = "token " + entry.name,
                                                              .token = entry.name,
                                                              .roles = entry.roles,
                                                              .tags = entry.tags,
                                                              .snowflakes = entry.snowflakes,
                                                              .is_known = true,
                                                              .expires = entry.expires,
                                                              .limit = std::move(limit)});
    if (entry.hash) known.push_back({*entry.hash, caller});
    by_name.emplace(entry.name, caller);
  }
  tokens_ = std::move(known);
  by_name_ = std::move(by_name);
  anonymous_ = std::make_shared<const Caller>(Caller{.name = "a caller without a token", .roles = anonymous});
  has_tokens_.store(has_tokens, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
}

std::size_t Gate::token_count() const {
  const MutexLock lock(mutex_);
  return by_name_.size();
}

Gate::CallerPtr Gate::Anonymous() const {
  const MutexLock lock(mutex_);
  return anonymous_;
}

Gate::CallerPtr Gate::FindToken(const TokenHash& hash) const {
  const MutexLock lock(mutex_);
  CallerPtr found;
  for (const Known& known : tokens_) {
    if (IsSameSecret(BytesOf(known.hash), BytesOf(hash))) found = known.caller;
  }
  return found;
}

Gate::CallerPtr Gate::FindCertificate(std::string_view name) const {
  const MutexLock lock(mutex_);
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

Gate::CallerPtr Gate::OfUser(uid_t user) const {
  const bool is_operator = user == owner_ || user == 0;
  return std::make_shared<const Caller>(
      Caller{.name = fmt::format("uid {}", user),
             .roles = is_operator ? Roles{Role::kAdmin} : Roles{Role::kIds, Role::kRead},
             .is_known = true});
}

}  // namespace leaf::access
