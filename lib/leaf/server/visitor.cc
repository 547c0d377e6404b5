#include "leaf/server/visitor.h"

#include <algorithm>
#include <array>
#include <boost/beast/core/detail/base64.hpp>
#include <utility>

#include "leaf/base/text.h"

namespace leaf::server {
namespace {

constexpr std::string_view kBearer = "bearer ";
constexpr std::string_view kBasic = "basic ";
// No header with a token is longer: a name and a token in Base64.
constexpr std::size_t kHeaderMax = 1024;

bool HasScheme(std::string_view authorization, std::string_view scheme) {
  return authorization.size() > scheme.size() && LowerCase(authorization.substr(0, scheme.size())) == scheme;
}

// RFC 4648, 4, with its padding.
std::optional<std::string> DecodeBase64(std::string_view text) {
  namespace base64 = boost::beast::detail::base64;
  // Of another length the library would write behind the end of what it says that it needs.
  if (text.size() % 4 != 0) return std::nullopt;
  std::string decoded(base64::decoded_size(text.size()), '\0');
  const auto [written, read] = base64::decode(decoded.data(), text.data(), text.size());
  // The library stops at the padding.
  const std::string_view rest = text.substr(read);
  if (!rest.empty() && rest != "=" && rest != "==") return std::nullopt;
  decoded.resize(written);
  return decoded;
}

// The token in the header; nothing if it has another form.
std::optional<std::string> TokenIn(std::string_view authorization) {
  if (authorization.size() > kHeaderMax) return std::nullopt;
  std::string token;
  if (HasScheme(authorization, kBearer)) {
    token = TrimBlanks(authorization.substr(kBearer.size()));
  } else if (HasScheme(authorization, kBasic)) {
    auto pair = DecodeBase64(TrimBlanks(authorization.substr(kBasic.size())));
    const std::size_t colon = pair ? pair->find(':') : std::string::npos;
    if (colon == std::string::npos) return std::nullopt;
    token = pair->substr(colon + 1);
  }
  if (token.empty() || token.size() > access::kTokenBytesMax) return std::nullopt;
  return token;
}

const access::Gate::CallerPtr& Stranger() {
  static const access::Gate::CallerPtr kStranger =
      std::make_shared<const access::Caller>(access::Caller{.name = "a caller with wrong credentials"});
  return kStranger;
}

}  // namespace

Visitor::Visitor(const access::Gate& gate, const Clock& clock, std::optional<uid_t> user)
    : gate_(gate), clock_(clock), user_(user) {
  Look("");
}

void Visitor::TakeCertificate(std::string_view name) {
  certificate_ = name;
  found_ = nullptr;
  Look("");
}

access::Gate::CallerPtr Visitor::FindBase() const {
  if (user_) return gate_.OfUser(*user_);
  if (!certificate_.empty()) {
    if (auto known = gate_.FindCertificate(certificate_)) return known;
  }
  return gate_.Anonymous();
}

const access::Caller& Visitor::Look(std::string_view authorization) {
  // First: what is found in a gate that changes meanwhile is looked for again next time.
  const std::uint64_t generation = gate_.generation();
  const bool is_asked = !authorization.empty() && gate_.has_tokens() && !is_owner();
  // Here again, although nothing has changed: it has expired, or had.
  const bool is_same = generation == generation_ && found_ != nullptr && IsSameSecret(authorization, last_);
  generation_ = generation;
  problem_ = "";
  if (!is_same) {
    found_ = FindBase();
    if (is_asked) {
      const auto token = TokenIn(authorization);
      const auto found = token ? gate_.FindToken(access::HashOf(*token)) : nullptr;
      if (!token) problem_ = "malformed credentials";
      if (token && !found) problem_ = "unknown token";
      found_ = found ? found : Stranger();
    }
  }
  caller_ = found_;
  may_expire_ = caller_->expires.has_value();
  if (may_expire_) expires_ = *caller_->expires;
  if (HasExpired()) {
    problem_ = is_asked ? "this token has expired" : "the line of this certificate has expired";
    caller_ = Stranger();
    // A clock that was wrong may be set right: the next request comes here again.
    expires_ = WallTime::min();
  }
  last_ = authorization;
  return *caller_;
}

// The owner of the socket may do everything without a token. A wrong token takes nothing from the owner.
bool Visitor::LogIn(std::string_view user, std::string_view token) {
  if (is_owner()) return true;
  std::string header = "Bearer ";
  header += token;
  const access::Caller& caller = Identify(header);
  if (!problem_.empty() || caller.token.empty() || (user != "default" && user != caller.token)) {
    Identify(kept_);
    return false;
  }
  kept_ = std::move(header);
  return true;
}

}  // namespace leaf::server
