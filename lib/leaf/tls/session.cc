#include "leaf/tls/session.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "leaf/base/check.h"
#include "leaf/tls/openssl.h"

namespace leaf::tls {
namespace {

// Renewed keys, refused renegotiations, tickets: no peer needs many of them in a row, and each costs more
// than a request.
constexpr unsigned kIdleRecordsMax = 32;

// More is sent at once.
constexpr std::size_t kHeldMax = std::size_t{4} * 1024;

bool IsAddress(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// The text of a name of `kind`, "" if it holds anything that no name does.
std::string TextOf(const GENERAL_NAME& name) {
  const OpenSsl& ssl = Ssl();
  const ASN1_STRING* const text = name.d.ia5;
  const int size = ssl.ASN1_STRING_length(text);
  if (size <= 0) return "";
  std::string result(reinterpret_cast<const char*>(ssl.ASN1_STRING_get0_data(text)),
                     static_cast<std::size_t>(size));
  const bool plain = std::all_of(result.begin(), result.end(), [](char c) { return c > ' ' && c <= '~'; });
  return plain ? result : "";
}

std::string NameOf(const X509& certificate) {
  const OpenSsl& ssl = Ssl();
  auto* const names =
      static_cast<GENERAL_NAMES*>(ssl.X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr));
  if (names == nullptr) return "";
  std::string found;
  const auto* const stack = reinterpret_cast<const OPENSSL_STACK*>(names);
  for (const int kind : {GEN_DNS, GEN_URI, GEN_EMAIL}) {
    for (int i = 0; i < ssl.OPENSSL_sk_num(stack) && found.empty(); ++i) {
      const auto& name = *static_cast<const GENERAL_NAME*>(ssl.OPENSSL_sk_value(stack, i));
      if (name.type == kind) found = TextOf(name);
    }
  }
  ssl.GENERAL_NAMES_free(names);
  return found;
}

Session::CertificateFault FaultOf(long verified) {
  switch (verified) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return Session::CertificateFault::kOtherHost;
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return Session::CertificateFault::kTime;
    default:
      return Session::CertificateFault::kOther;
  }
}

}  // namespace

struct Session::Callbacks {
  static int Read(BIO* bio, char* to, int most) {
    const OpenSsl& ssl = Ssl();
    Wire& wire = *static_cast<Wire*>(ssl.BIO_get_data(bio));
    ssl.BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    if (most <= 0) return 0;
    if (!wire.early.empty()) {
      const std::size_t size = wire.early.copy(to, static_cast<std::size_t>(most));
      wire.early.erase(0, size);
      if (wire.early.empty()) wire.early.shrink_to_fit();
      return static_cast<int>(size);
    }
    const auto later = [&] {
      wire.starved = true;
      ssl.BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
      return -1;
    };
    if (wire.asked_kernel) return later();
    wire.asked_kernel = true;
    ssize_t got = 0;
    do {
      got = recv(wire.fd, to, static_cast<std::size_t>(most), 0);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return later();
    if (got < 0) wire.error_number = errno;
    if (got == 0) wire.ended = true;
    return static_cast<int>(got);
  }

  static int Write(BIO* bio, const char* from, int size) {
    const OpenSsl& ssl = Ssl();
    Wire& wire = *static_cast<Wire*>(ssl.BIO_get_data(bio));
    ssl.BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    if (size <= 0) return 0;
    const std::string_view bytes(from, static_cast<std::size_t>(size));
    if (wire.holds && wire.held.size() + bytes.size() <= kHeldMax) {
      wire.held += bytes;
      return size;
    }
    const ssize_t sent = wire.Send(bytes);
    if (sent < 0 && wire.error_number == 0) ssl.BIO_set_flags(bio, BIO_FLAGS_WRITE | BIO_FLAGS_SHOULD_RETRY);
    return static_cast<int>(sent);
  }

  static long Control(BIO* bio, int what, long, void*) {
    if (what == BIO_CTRL_FLUSH) return 1;
    if (what == BIO_CTRL_EOF) return static_cast<Wire*>(Ssl().BIO_get_data(bio))->ended ? 1 : 0;
    return 0;
  }

  static const BIO_METHOD* Method() {
    static const BIO_METHOD* const method = [] {
      const OpenSsl& ssl = Ssl();
      constexpr int kType = BIO_TYPE_SOURCE_SINK | 0x7F;
      BIO_METHOD* const made = ssl.BIO_meth_new(kType, "leaf socket");
      LEAF_CHECK(made != nullptr && ssl.BIO_meth_set_read(made, &Read) == 1 &&
                 ssl.BIO_meth_set_write(made, &Write) == 1 && ssl.BIO_meth_set_ctrl(made, &Control) == 1);
      return made;
    }();
    return method;
  }

  // Hears of every message of the protocol after the handshake. A refused renegotiation shows in the alert
  // that answers it.
  static void Message(int is_ours, int, int kind, const void*, std::size_t, SSL*, void* session) {
    auto& self = *static_cast<Session*>(session);
    const bool counts = is_ours != 0 ? kind == SSL3_RT_ALERT : kind == SSL3_RT_HANDSHAKE;
    if (counts) ++self.idle_records_;
  }
};

// Behind what is held. How much of `bytes` was sent: -1 for none of it, with error_number if it never will
// be.
ssize_t Session::Wire::Send(std::string_view bytes) {
  const auto part = [](std::string_view text) {
    return iovec{.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
  };
  std::array<iovec, 2> parts{part(held), part(bytes)};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  ssize_t sent = 0;
  do {
    sent = sendmsg(fd, &message, MSG_NOSIGNAL | (ends ? MSG_MORE : 0));
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) {
    if (errno != EAGAIN && errno != EWOULDBLOCK) error_number = errno;
    return -1;
  }
  sent_bytes += static_cast<std::uint64_t>(sent);
  const std::size_t of_held = std::min(static_cast<std::size_t>(sent), held.size());
  held.erase(0, of_held);
  if (held.empty()) held.shrink_to_fit();
  const ssize_t rest = sent - static_cast<ssize_t>(of_held);
  return rest == 0 && !bytes.empty() ? -1 : rest;
}

bool Session::Wire::SendHeld() {
  while (!held.empty()) {
    if (Send({}) >= 0) continue;
    if (error_number == 0) return false;
    held.clear();  // reading finds out
  }
  return true;
}

Session::Session(std::shared_ptr<const ServerContext> context, int fd, std::string_view early)
    : context_(context), is_server_(true) {
  wire_.fd = fd;
  wire_.early = early;
  Attach(context->get());
  Ssl().SSL_set_accept_state(ssl_);
}

Session::Session(std::shared_ptr<const ClientContext> context, int fd, const std::string& host)
    : context_(context), is_server_(false) {
  const OpenSsl& ssl = Ssl();
  wire_.fd = fd;
  Attach(context->get());
  if (IsAddress(host)) {
    LEAF_CHECK(ssl.X509_VERIFY_PARAM_set1_ip_asc(ssl.SSL_get0_param(ssl_), host.c_str()) == 1);
  } else {
    LEAF_CHECK(ssl.SSL_set1_host(ssl_, host.c_str()) == 1);
    ssl.SSL_ctrl(ssl_, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                 const_cast<char*>(host.c_str()));
  }
  ssl.SSL_set_connect_state(ssl_);
}

Session::~Session() { Ssl().SSL_free(ssl_); }

void Session::Attach(ssl_ctx_st* context) {
  const OpenSsl& ssl = Ssl();
  ssl_ = ssl.SSL_new(context);
  BIO* const bio = ssl.BIO_new(Callbacks::Method());
  LEAF_CHECK(ssl_ != nullptr && bio != nullptr);  // out of memory
  ssl.BIO_set_data(bio, &wire_);
  ssl.BIO_set_init(bio, 1);
  ssl.SSL_set_bio(ssl_, bio, bio);  // owns it now
}

Session::Outcome Session::Handshake() {
  if (failed_) return Outcome::kFailed;
  if (!wire_.SendHeld()) return Outcome::kWantWrite;
  wire_.holds = is_server_;
  const Outcome outcome = Shake();
  wire_.holds = false;
  // A server's last words are a ticket in TLS 1.3, for which no client waits: it leaves with the first
  // answer.
  const bool may_wait = outcome == Outcome::kDone && Ssl().SSL_version(ssl_) == TLS1_3_VERSION;
  if (may_wait || wire_.SendHeld() || outcome != Outcome::kWantRead) return outcome;
  return Outcome::kWantWrite;
}

Session::Outcome Session::Shake() {
  const OpenSsl& ssl = Ssl();
  ssl.ERR_clear_error();
  for (;;) {
    wire_.asked_kernel = false;
    wire_.starved = false;
    const int result = ssl.SSL_do_handshake(ssl_);
    const Outcome outcome = result == 1 ? Outcome::kDone : Judge(result);
    if (outcome == Outcome::kWantRead && !wire_.starved) continue;
    if (outcome == Outcome::kDone) {
      established_ = true;
      ssl.SSL_callback_ctrl(ssl_, SSL_CTRL_SET_MSG_CALLBACK,
                            reinterpret_cast<void (*)()>(&Callbacks::Message));
      ssl.SSL_ctrl(ssl_, SSL_CTRL_SET_MSG_CALLBACK_ARG, 0, this);
      NotePeerName();
    }
    return outcome;
  }
}

Session::Moved Session::Read(char* to, std::size_t room) {
  if (failed_) return {Outcome::kFailed, 0};
  const OpenSsl& ssl = Ssl();
  Moved moved{Outcome::kDone, 0};
  wire_.asked_kernel = false;
  wire_.starved = false;
  starved_ = false;
  ssl.ERR_clear_error();
  while (moved.bytes < room) {
    std::size_t got = 0;
    if (ssl.SSL_read_ex(ssl_, to + moved.bytes, room - moved.bytes, &got) == 1) {
      moved.bytes += got;
      idle_records_ = 0;
      if (!wire_.asked_kernel || has_input()) continue;
      starved_ = true;
      break;
    }
    if (idle_records_ > kIdleRecordsMax)
      return {Fail("the peer renews its keys, or wants to begin again, without end"), 0};
    const Outcome outcome = Judge(0);
    // A record that had nothing for the reader.
    if (outcome == Outcome::kWantRead && !wire_.starved) continue;
    if (outcome == Outcome::kWantRead || outcome == Outcome::kWantWrite) starved_ = true;
    // What came before is the reader's first.
    if (outcome == Outcome::kFailed || moved.bytes == 0) moved.outcome = outcome;
    break;
  }
  // There is no answer with which it could leave.
  if (moved.bytes == 0 && !wire_.SendHeld() && moved.outcome == Outcome::kWantRead)
    moved.outcome = Outcome::kWantWrite;
  return moved;
}

Session::Moved Session::Write(std::string_view bytes, Part part) {
  if (failed_) return {Outcome::kFailed, 0};
  const OpenSsl& ssl = Ssl();
  Moved moved{Outcome::kDone, 0};
  wire_.holds = part == Part::kLast;
  ssl.ERR_clear_error();
  while (moved.bytes < bytes.size()) {
    const std::string_view rest = bytes.substr(moved.bytes);
    std::size_t sent = 0;
    if (ssl.SSL_write_ex(ssl_, rest.data(), rest.size(), &sent) != 1) {
      moved.outcome = Judge(0);
      // That is for reading to find out.
      if (moved.outcome == Outcome::kWantRead || moved.outcome == Outcome::kEnded)
        moved.outcome = Fail("the peer's answer would be needed to send more");
      break;
    }
    moved.bytes += sent;
  }
  wire_.holds = false;
  return moved;
}

bool Session::End() {
  if (failed_ || !established_) return true;
  const OpenSsl& ssl = Ssl();
  ssl.ERR_clear_error();
  wire_.ends = true;
  const int result = ssl.SSL_shutdown(ssl_);
  const bool full = result < 0 && ssl.SSL_get_error(ssl_, result) == SSL_ERROR_WANT_WRITE;
  ssl.ERR_clear_error();
  const bool ended = !full && wire_.SendHeld();
  wire_.ends = false;
  return ended;
}

bool Session::WouldPass(const ServerContext& context) const {
  if (context_.get() == &context) return true;
  if (failed_ || !established_) return false;
  const OpenSsl& ssl = Ssl();
  const X509Pointer certificate(ssl.SSL_get1_peer_certificate(ssl_));
  // A name from a certificate that is not asked for any more gives no right.
  if (!context.asks_for_certificates()) return certificate == nullptr;
  if (certificate == nullptr) return false;
  X509_STORE_CTX* const check = ssl.X509_STORE_CTX_new();
  LEAF_CHECK(check != nullptr);
  ssl.ERR_clear_error();
  bool passes = ssl.X509_STORE_CTX_init(check, ssl.SSL_CTX_get_cert_store(context.get()), certificate.get(),
                                        ssl.SSL_get_peer_cert_chain(ssl_)) == 1 &&
                ssl.X509_STORE_CTX_set_default(check, "ssl_client") == 1;
  if (passes) {
    // As in a handshake: no weak keys and digests in the chain.
    ssl.X509_VERIFY_PARAM_set_auth_level(ssl.X509_STORE_CTX_get0_param(check),
                                         ssl.SSL_get_security_level(ssl_));
    passes = ssl.X509_verify_cert(check) == 1;
  }
  ssl.X509_STORE_CTX_free(check);
  ssl.ERR_clear_error();
  return passes;
}

bool Session::has_input() const { return !wire_.early.empty() || Ssl().SSL_has_pending(ssl_) == 1; }

Session::Outcome Session::Judge(int result) {
  const OpenSsl& ssl = Ssl();
  switch (ssl.SSL_get_error(ssl_, result)) {
    case SSL_ERROR_WANT_READ:
      return Outcome::kWantRead;
    case SSL_ERROR_WANT_WRITE:
      return Outcome::kWantWrite;
    case SSL_ERROR_ZERO_RETURN:
      return Outcome::kEnded;
    case SSL_ERROR_SYSCALL:
      return Fail(wire_.error_number != 0 ? std::strerror(wire_.error_number) : "the peer hung up");
    default:
      break;
  }
  const unsigned long code = ssl.ERR_peek_error();
  const int reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;
  // With the number of the alert that came.
  refused_ = reason > SSL_AD_REASON_OFFSET && reason < SSL_AD_REASON_OFFSET + 256;
  speaks_no_tls_ = !refused_ && !established_ &&
                   (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST ||
                    reason == SSL_R_PACKET_LENGTH_TOO_LONG || reason == SSL_R_BAD_RECORD_TYPE);
  std::string why = OldestReason();
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
    const long verified = ssl.SSL_get_verify_result(ssl_);
    certificate_fault_ = FaultOf(verified);
    why = std::string("its certificate is not accepted: ") + ssl.X509_verify_cert_error_string(verified);
  }
  return Fail(why.empty() ? "TLS failed" : why);
}

Session::Outcome Session::Fail(std::string why) {
  failed_ = true;
  error_ = std::move(why);
  Ssl().ERR_clear_error();
  return Outcome::kFailed;
}

void Session::NotePeerName() {
  const X509Pointer certificate(Ssl().SSL_get1_peer_certificate(ssl_));
  if (certificate != nullptr) peer_name_ = NameOf(*certificate);
}

}  // namespace leaf::tls
