// TLS on one connected, non-blocking socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "leaf/tls/context.h"

struct ssl_st;

namespace leaf::tls {

// Not thread-safe. No call blocks. After kFailed every call fails, and does nothing.
class Session {
 public:
  enum class Outcome : std::uint8_t {
    kDone,
    kWantRead,   // call again once the socket has something to read
    kWantWrite,  // call again once the socket takes something
    kEnded,      // the peer says that nothing follows
    kFailed,     // error() says why
  };
  struct Moved {
    Outcome outcome;
    std::size_t bytes = 0;
  };

  // `fd` outlives it, and stays its caller's. `early`: what was read from the socket already.
  Session(std::shared_ptr<const ServerContext> context, int fd, std::string_view early);
  // `host`: a name or an IP address, which the server's certificate has to be for.
  Session(std::shared_ptr<const ClientContext> context, int fd, const std::string& host);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Outcome Handshake();
  // As much as there is, and as `room` has space for, but it asks the kernel once at most: other connections
  // are not kept waiting by a peer that sends without end. kDone: at least one byte.
  Moved Read(char* to, std::size_t room);
  // As much as the kernel takes. `bytes` may be more than zero with kWantWrite; then, and if it is zero, the
  // next call must begin with the first byte that was not taken, and have no fewer. kLast: a short text waits
  // for End, which has to be called next.
  enum class Part : std::uint8_t { kSome, kLast };
  Moved Write(std::string_view bytes, Part part = Part::kSome);
  // Tells the peer that nothing follows. False if the kernel has no room for that now: call it again. After
  // true the caller shuts the socket down, or closes it: what is sent may wait in the kernel until then, so
  // that all of it leaves in one packet.
  bool End();

  // Whether Read may return something although the socket has nothing to read.
  bool may_hold_input() const { return !starved_; }
  // Whether anything has come that Read has not returned, such as a part of a record.
  bool has_input() const;
  // Written to the socket, in its bytes.
  std::uint64_t sent_bytes() const { return wire_.sent_bytes; }
  // After the handshake: the first DNS name that the peer's certificate is for, else its first URI, else its
  // first e-mail address. "" without a certificate.
  const std::string& peer_name() const { return peer_name_; }
  // Of a server: whether it began with `context`, or a handshake with that would take what this peer has
  // shown. False before the handshake with another one is done.
  bool WouldPass(const ServerContext& context) const;
  // After kFailed: in OpenSSL's words, or the kernel's.
  const std::string& error() const { return error_; }
  // After kFailed: what about the peer's certificate is the reason.
  enum class CertificateFault : std::uint8_t { kNone, kOtherHost, kTime, kOther };
  CertificateFault certificate_fault() const { return certificate_fault_; }
  // After kFailed: the peer's first bytes are not those of TLS.
  bool peer_speaks_no_tls() const { return speaks_no_tls_; }
  // After kFailed: the peer refused, and an alert of it says why.
  bool peer_refused() const { return refused_; }

 private:
  // What OpenSSL reads from and writes to.
  struct Wire {
    // Sends what is held. False if the kernel has no room for all of it.
    bool SendHeld();
    // The result of the call that sent: what to do about an error is told to OpenSSL by the caller.
    ssize_t Send(std::string_view bytes);

    int fd = -1;
    bool holds = false;  // short texts, which leave together with what follows them
    bool ends = false;   // the call under way is End
    std::string held{};
    std::string early{};
    bool asked_kernel = false;  // by the call under way
    bool starved = false;       // that call was told that there is nothing
    bool ended = false;
    int error_number = 0;
    std::uint64_t sent_bytes = 0;
  };
  struct Callbacks;

  void Attach(ssl_ctx_st* context);
  Outcome Shake();
  Outcome Judge(int result);
  Outcome Fail(std::string why);
  void NotePeerName();

  const std::shared_ptr<const void> context_;
  const bool is_server_;
  Wire wire_;
  ssl_st* ssl_ = nullptr;
  bool established_ = false;
  bool failed_ = false;
  bool starved_ = false;
  unsigned idle_records_ = 0;  // messages of the protocol itself, since something came for the reader
  std::string peer_name_;
  std::string error_;
  CertificateFault certificate_fault_ = CertificateFault::kNone;
  bool speaks_no_tls_ = false;
  bool refused_ = false;
};

}  // namespace leaf::tls
