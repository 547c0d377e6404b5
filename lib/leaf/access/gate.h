// Tells callers apart: by token, by the name of a client certificate, and by user of this machine.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/access/caller.h"
#include "leaf/access/token_file.h"
#include "leaf/base/mutex.h"

namespace leaf::access {

// Thread-safe. What it gives away is good for as long as it is held.
class Gate {
 public:
  using CallerPtr = std::shared_ptr<const Caller>;

  // `owner`: the user that runs the server.
  explicit Gate(uid_t owner) : owner_(owner) { Set({}, false, {Role::kIds, Role::kRead}); }

  // Replaces all tokens. `has_tokens`: there is a file of them, even if it is empty. A token with its old
  // name and limit goes on with what it has used of it.
  void Set(const std::vector<TokenEntry>& tokens, bool has_tokens, Roles anonymous);

  // Changes with each Set: what was given away before may be out of date.
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  bool has_tokens() const { return has_tokens_.load(std::memory_order_relaxed); }
  std::size_t token_count() const;

  // The caller without credentials.
  CallerPtr Anonymous() const;
  // Null if no token has this hash. It may have expired. Takes as long for each hash.
  CallerPtr FindToken(const TokenHash& hash) const;
  // The caller with this certificate; null if no line of the file has its name.
  CallerPtr FindCertificate(std::string_view name) const;
  // A user of this machine, on a Unix socket: the socket's mode has let it in. The owner of the server, and
  // root, may do everything, others take IDs and read.
  CallerPtr OfUser(uid_t user) const;

 private:
  struct Known {
    TokenHash hash;
    CallerPtr caller;
  };

  const uid_t owner_;
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<bool> has_tokens_{false};
  mutable Mutex mutex_;
  CallerPtr anonymous_ LEAF_GUARDED_BY(mutex_);
  std::vector<Known> tokens_ LEAF_GUARDED_BY(mutex_);
  std::map<std::string, CallerPtr, std::less<>> by_name_ LEAF_GUARDED_BY(mutex_);
};

}  // namespace leaf::access
