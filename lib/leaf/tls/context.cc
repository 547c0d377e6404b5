#include "leaf/tls/context.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "leaf/base/check.h"
#include "leaf/tls/library.h"
#include "leaf/tls/openssl.h"

namespace leaf::tls {
namespace {

struct FreeBio {
  void operator()(BIO* bio) const { Ssl().BIO_free(bio); }
};
using BioPointer = std::unique_ptr<BIO, FreeBio>;
struct FreeKey {
  void operator()(EVP_PKEY* key) const { Ssl().EVP_PKEY_free(key); }
};
using KeyPointer = std::unique_ptr<EVP_PKEY, FreeKey>;

Error BadPem(const Pem& pem, std::string_view what, std::string hint = "") {
  return {ErrorCode::kConfig, fmt::format("{}: {}", pem.name, what), std::move(hint)};
}

// With OpenSSL's reason behind it.
std::string WithReason(std::string_view what) {
  const std::string reason = OldestReason();
  return reason.empty() ? std::string(what) : fmt::format("{} ({})", what, reason);
}

BioPointer Reader(const std::string& text) {
  BioPointer bio(Ssl().BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  LEAF_CHECK(bio != nullptr);
  return bio;
}

// A daemon has no terminal on which to ask for a pass phrase.
int NoPassPhrase(char*, int, int, void*) { return -1; }

Result<std::vector<X509Pointer>> CertificatesOf(const Pem& pem) {
  const OpenSsl& ssl = Ssl();
  std::vector<X509Pointer> certificates;
  const BioPointer bio = Reader(pem.text);
  ssl.ERR_clear_error();
  while (X509* const certificate = ssl.PEM_read_bio_X509(bio.get(), nullptr, &NoPassPhrase, nullptr))
    certificates.emplace_back(certificate);
  const unsigned long end = ssl.ERR_peek_error();
  const bool ended = ERR_GET_LIB(end) == ERR_LIB_PEM && ERR_GET_REASON(end) == PEM_R_NO_START_LINE;
  if (!certificates.empty() && ended) {
    ssl.ERR_clear_error();
    return certificates;
  }
  if (certificates.empty() && ended) {
    return BadPem(pem, "there is no certificate in it",
                  "it has to be in PEM: a line -----BEGIN CERTIFICATE-----");
  }
  return BadPem(pem, WithReason(fmt::format("certificate {} in it is broken", certificates.size() + 1)));
}

Result<KeyPointer> KeyOf(const Pem& pem) {
  const OpenSsl& ssl = Ssl();
  const BioPointer bio = Reader(pem.text);
  ssl.ERR_clear_error();
  KeyPointer key(ssl.PEM_read_bio_PrivateKey(bio.get(), nullptr, &NoPassPhrase, nullptr));
  if (key != nullptr) return key;
  if (pem.text.find("ENCRYPTED") != std::string::npos)
    return BadPem(pem, "the key has a pass phrase", "openssl pkey -in KEY -out KEY-WITHOUT-PASS-PHRASE");
  return BadPem(pem, "there is no private key in it, or it is broken",
                "it has to be in PEM: a line -----BEGIN PRIVATE KEY-----");
}

// What servers and clients have in common.
Result<ContextPointer> NewContext(const SSL_METHOD* method) {
  const OpenSsl& ssl = Ssl();
  ssl.ERR_clear_error();
  ContextPointer context(ssl.SSL_CTX_new(method));
  if (context == nullptr)
    return Error{ErrorCode::kConfig, WithReason("OpenSSL makes no context"),
                 "is its file openssl.cnf right?"};
  ssl.SSL_CTX_ctrl(context.get(), SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, nullptr);
  ssl.SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // What is to be sent may move between two attempts, a full kernel takes a part of it, and a connection that
  // waits holds no buffers.
  ssl.SSL_CTX_ctrl(
      context.get(), SSL_CTRL_MODE,
      SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS,
      nullptr);
  // Session looks after each record that has nothing for its reader.
  ssl.SSL_CTX_ctrl(context.get(), SSL_CTRL_CLEAR_MODE, SSL_MODE_AUTO_RETRY, nullptr);
  // One call of the kernel for a record instead of two.
  ssl.SSL_CTX_ctrl(context.get(), SSL_CTRL_SET_READ_AHEAD, 1, nullptr);
  ssl.SSL_CTX_ctrl(context.get(), SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, nullptr);
  return context;
}

// Shows `certificate`, with what follows it in its file. Its end.
Result<WallTime> UseIdentity(SSL_CTX* context, const Pem& certificate, const Pem& key) {
  const OpenSsl& ssl = Ssl();
  LEAF_ASSIGN_OR_RETURN(const std::vector<X509Pointer> chain, CertificatesOf(certificate));
  LEAF_ASSIGN_OR_RETURN(const KeyPointer private_key, KeyOf(key));
  ssl.ERR_clear_error();
  if (ssl.SSL_CTX_use_certificate(context, chain.front().get()) != 1)
    return BadPem(certificate, WithReason("OpenSSL does not take the certificate"));
  for (auto next = chain.begin() + 1; next != chain.end(); ++next) {
    constexpr long kKeepToo = 1;
    if (ssl.SSL_CTX_ctrl(context, SSL_CTRL_CHAIN_CERT, kKeepToo, next->get()) != 1)
      return BadPem(certificate, WithReason("OpenSSL does not take a certificate of the chain"));
  }
  const bool fits = ssl.SSL_CTX_use_PrivateKey(context, private_key.get()) == 1 &&
                    ssl.SSL_CTX_check_private_key(context) == 1;
  if (!fits) return BadPem(key, WithReason(fmt::format("the key is not that of {}", certificate.name)));
  std::tm end{};
  const bool read = ssl.ASN1_TIME_to_tm(ssl.X509_get0_notAfter(chain.front().get()), &end) == 1;
  if (!read) return BadPem(certificate, "the certificate does not say when it ends");
  return WallTimeOf(std::int64_t{timegm(&end)} * 1000);
}

Result<void> Believe(SSL_CTX* context, const Pem& authorities, bool tell_clients) {
  const OpenSsl& ssl = Ssl();
  LEAF_ASSIGN_OR_RETURN(const std::vector<X509Pointer> all, CertificatesOf(authorities));
  X509_STORE* const store = ssl.SSL_CTX_get_cert_store(context);
  for (const X509Pointer& authority : all) {
    if (ssl.X509_STORE_add_cert(store, authority.get()) != 1)
      return BadPem(authorities, WithReason("OpenSSL does not take a certificate"));
    // So that a client that has several certificates chooses the right one.
    if (tell_clients) ssl.SSL_CTX_add_client_CA(context, authority.get());
  }
  return {};
}

// Where systems keep the authorities they believe; OpenSSL's own default is that of the system it was built
// for.
void BelieveSystem(SSL_CTX* context) {
  const OpenSsl& ssl = Ssl();
  ssl.SSL_CTX_set_default_verify_paths(context);
  constexpr std::array<const char*, 2> kFiles{"/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"};
  for (const char* const file : kFiles) ssl.SSL_CTX_load_verify_file(context, file);
  ssl.ERR_clear_error();
}

// http/1.1 for a client that names what it would speak. One that names other things only is answered as if
// it had named none.
int ChooseProtocol(SSL*, const unsigned char** chosen, unsigned char* chosen_size,
                   const unsigned char* offered, unsigned offered_size, void*) {
  constexpr std::string_view kHttp = "http/1.1";
  for (unsigned at = 0; at < offered_size; at += 1U + offered[at]) {
    const unsigned size = offered[at];
    if (size != kHttp.size() || at + 1 + size > offered_size) continue;
    if (std::memcmp(offered + at + 1, kHttp.data(), size) != 0) continue;
    *chosen = offered + at + 1;
    *chosen_size = static_cast<unsigned char>(size);
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_NOACK;
}

}  // namespace

void FreeContext::operator()(ssl_ctx_st* context) const { Ssl().SSL_CTX_free(context); }

Result<std::shared_ptr<const ServerContext>> ServerContext::Make(const Parts& parts) {
  LEAF_RETURN_IF_ERROR(LoadLibrary());
  const OpenSsl& ssl = Ssl();
  LEAF_ASSIGN_OR_RETURN(ContextPointer context, NewContext(ssl.TLS_server_method()));
  LEAF_ASSIGN_OR_RETURN(const WallTime expires_at, UseIdentity(context.get(), parts.certificate, parts.key));
  // A client that hangs up without a word has hung up: each request says where it ends.
  ssl.SSL_CTX_set_options(context.get(), SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                             SSL_OP_PRIORITIZE_CHACHA);
  ssl.SSL_CTX_set_alpn_select_cb(context.get(), &ChooseProtocol, nullptr);
  if (parts.client_ca) {
    LEAF_RETURN_IF_ERROR(Believe(context.get(), *parts.client_ca, true));
    ssl.SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    // A resumed session would not look at the certificate again, which may have ended meanwhile.
    ssl.SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET);
    ssl.SSL_CTX_set_num_tickets(context.get(), 0);
  } else {
    ssl.SSL_CTX_set_num_tickets(context.get(), 1);
  }
  constexpr std::string_view kName = "leafctl";
  ssl.SSL_CTX_set_session_id_context(context.get(), reinterpret_cast<const unsigned char*>(kName.data()),
                                     static_cast<unsigned>(kName.size()));
  return std::shared_ptr<const ServerContext>(
      new ServerContext(std::move(context), expires_at, parts.client_ca ? parts.client_ca->text : ""));
}

Result<std::shared_ptr<const ClientContext>> ClientContext::Make(const Parts& parts) {
  LEAF_RETURN_IF_ERROR(LoadLibrary());
  const OpenSsl& ssl = Ssl();
  LEAF_ASSIGN_OR_RETURN(ContextPointer context, NewContext(ssl.TLS_client_method()));
  ssl.SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (parts.ca) {
    LEAF_RETURN_IF_ERROR(Believe(context.get(), *parts.ca, false));
  } else {
    BelieveSystem(context.get());
  }
  if (parts.identity)
    LEAF_RETURN_IF_ERROR(UseIdentity(context.get(), parts.identity->certificate, parts.identity->key));
  return std::shared_ptr<const ClientContext>(new ClientContext(std::move(context)));
}

}  // namespace leaf::tls
