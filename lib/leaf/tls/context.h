// What all connections of a server, or all of a client, have in common: certificate, key, and whose
// certificates are believed. Made of texts: the caller reads the files.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "leaf/base/result.h"
#include "leaf/base/time.h"

struct ssl_ctx_st;

namespace leaf::tls {

// The content of a file in PEM, and what messages call it: "server.tls_cert: /etc/leafctl/server.pem".
struct Pem {
  std::string name;
  std::string text;
};

struct FreeContext {
  void operator()(ssl_ctx_st* context) const;
};
using ContextPointer = std::unique_ptr<ssl_ctx_st, FreeContext>;

// TLS 1.2 and later, without renegotiation and compression. Immutable: for a new certificate a new context is
// made, and connections keep the one that they began with (Session::WouldPass tells whether they may).
// Thread-safe.
class ServerContext {
 public:
  struct Parts {
    Pem certificate;                 // the server's first, then those between it and its authority
    Pem key;                         // without a pass phrase
    std::optional<Pem> client_ca{};  // clients must show a certificate of one of these authorities
  };
  // Loads OpenSSL. Errors: kConfig that names the part.
  static Result<std::shared_ptr<const ServerContext>> Make(const Parts& parts);

  // When the first certificate ends.
  WallTime expires_at() const { return expires_at_; }
  bool asks_for_certificates() const { return !client_ca_.empty(); }
  // Whether the same authorities of clients are believed.
  bool BelievesAs(const ServerContext& other) const { return client_ca_ == other.client_ca_; }
  ssl_ctx_st* get() const { return context_.get(); }

 private:
  ServerContext(ContextPointer context, WallTime expires_at, std::string client_ca)
      : context_(std::move(context)), expires_at_(expires_at), client_ca_(std::move(client_ca)) {}

  const ContextPointer context_;
  const WallTime expires_at_;
  const std::string client_ca_;  // in PEM; empty: no certificate is asked for
};

// The same of a client, which believes only a server whose certificate is of an authority that it knows, and
// for the host that it asked for. Thread-safe.
class ClientContext {
 public:
  struct Identity {
    Pem certificate;
    Pem key;
  };
  struct Parts {
    std::optional<Pem> ca{};  // else those of the system
    std::optional<Identity> identity{};
  };
  // Loads OpenSSL. Errors: kConfig that names the part.
  static Result<std::shared_ptr<const ClientContext>> Make(const Parts& parts);

  ssl_ctx_st* get() const { return context_.get(); }

 private:
  explicit ClientContext(ContextPointer context) : context_(std::move(context)) {}

  const ContextPointer context_;
};

}  // namespace leaf::tls
