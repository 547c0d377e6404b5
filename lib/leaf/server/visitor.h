// The caller behind a connection: found out once, and remembered for the requests that follow.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "leaf/access/gate.h"
#include "leaf/base/clock.h"
#include "leaf/base/secret.h"

namespace leaf::server {

// One connection's. Not thread-safe.
class Visitor {
 public:
  // `user`: of this machine, on a Unix socket. Without tokens in the gate, and on the socket of its owner,
  // credentials are not looked at.
  Visitor(const access::Gate& gate, const Clock& clock, std::optional<uid_t> user);

  // The name in the client's certificate, "" for none: known once the connection has shaken hands.
  void KnowCertificate(std::string_view name) {
    if (name.size() != certificate_.size()) [[unlikely]]
      TakeCertificate(name);
  }

  // The caller of a request with this Authorization header (RFC 9110, 11.6.2), "" for none: "Bearer TOKEN",
  // or "Basic" with the token as password. With wrong credentials a caller without any role, and problem()
  // says what is wrong. The reference is good until the next call. A header like the last one costs a
  // comparison, whose time does not tell where the two differ.
  const access::Caller& Identify(std::string_view authorization) {
    if (generation_ == gate_.generation() && IsSameSecret(authorization, last_) && !HasExpired()) [[likely]]
      return *caller_;
    return Look(authorization);
  }
  // Static text; "" if nothing was wrong.
  std::string_view problem() const { return problem_; }

  // For protocols in which a client logs in: keeps the token for what follows, if it is one, and `user` is
  // its name or "default".
  bool LogIn(std::string_view user, std::string_view token);
  void LogOut() { kept_.clear(); }
  // The caller that is logged in, as it is by now.
  const access::Caller& Current() { return Identify(kept_); }
  // What the last call returned, to be kept.
  const access::Gate::CallerPtr& held() const { return caller_; }

 private:
  // Of the Unix socket that it came over.
  bool is_owner() const { return user_ && gate_.OfUser(*user_)->roles.Has(access::Role::kAdmin); }
  bool HasExpired() const { return may_expire_ && expires_ <= clock_.Wall(); }
  void TakeCertificate(std::string_view name);
  const access::Caller& Look(std::string_view authorization);
  access::Gate::CallerPtr FindBase() const;

  const access::Gate& gate_;
  const Clock& clock_;
  const std::optional<uid_t> user_;
  std::string certificate_;
  std::uint64_t generation_ = 0;   // of the gate at the last look
  access::Gate::CallerPtr found_;  // at the last look, even if it has expired
  bool may_expire_ = false;
  WallTime expires_{};  // if it may
  std::string last_;    // the header that caller_ had
  access::Gate::CallerPtr caller_;
  std::string_view problem_;
  std::string kept_;  // as a header
};

}  // namespace leaf::server
