// OpenSSL, loaded when TLS is first needed and not before: with its algorithms it takes longer to load than a
// whole call that asks a daemon. Internal to this folder: only its .cc files include it.
//
// The functions are members of a table, and this part defines none of OpenSSL's names: a program that links
// the library leaf and OpenSSL, or a library that brings OpenSSL along, keeps its own.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

// What is called. A macro of OpenSSL's headers has to be written as the function behind it.
#define LEAF_OPENSSL_FUNCTIONS(F)     \
  F(ASN1_STRING_get0_data)            \
  F(ASN1_STRING_length)               \
  F(ASN1_TIME_to_tm)                  \
  F(BIO_clear_flags)                  \
  F(BIO_free)                         \
  F(BIO_get_data)                     \
  F(BIO_meth_new)                     \
  F(BIO_meth_set_ctrl)                \
  F(BIO_meth_set_read)                \
  F(BIO_meth_set_write)               \
  F(BIO_new)                          \
  F(BIO_new_mem_buf)                  \
  F(BIO_set_data)                     \
  F(BIO_set_flags)                    \
  F(BIO_set_init)                     \
  F(ERR_clear_error)                  \
  F(ERR_get_error)                    \
  F(ERR_peek_error)                   \
  F(ERR_reason_error_string)          \
  F(EVP_PKEY_free)                    \
  F(GENERAL_NAMES_free)               \
  F(OPENSSL_init_ssl)                 \
  F(OPENSSL_sk_num)                   \
  F(OPENSSL_sk_value)                 \
  F(PEM_read_bio_PrivateKey)          \
  F(PEM_read_bio_X509)                \
  F(SSL_CTX_add_client_CA)            \
  F(SSL_CTX_check_private_key)        \
  F(SSL_CTX_ctrl)                     \
  F(SSL_CTX_free)                     \
  F(SSL_CTX_get_cert_store)           \
  F(SSL_CTX_load_verify_file)         \
  F(SSL_CTX_new)                      \
  F(SSL_CTX_set_alpn_select_cb)       \
  F(SSL_CTX_set_default_verify_paths) \
  F(SSL_CTX_set_num_tickets)          \
  F(SSL_CTX_set_options)              \
  F(SSL_CTX_set_session_id_context)   \
  F(SSL_CTX_set_verify)               \
  F(SSL_CTX_use_PrivateKey)           \
  F(SSL_CTX_use_certificate)          \
  F(SSL_callback_ctrl)                \
  F(SSL_ctrl)                         \
  F(SSL_do_handshake)                 \
  F(SSL_free)                         \
  F(SSL_get0_param)                   \
  F(SSL_get1_peer_certificate)        \
  F(SSL_get_error)                    \
  F(SSL_get_peer_cert_chain)          \
  F(SSL_get_security_level)           \
  F(SSL_get_verify_result)            \
  F(SSL_get_version)                  \
  F(SSL_has_pending)                  \
  F(SSL_new)                          \
  F(SSL_read_ex)                      \
  F(SSL_set1_host)                    \
  F(SSL_set_accept_state)             \
  F(SSL_set_bio)                      \
  F(SSL_set_connect_state)            \
  F(SSL_shutdown)                     \
  F(SSL_version)                      \
  F(SSL_write_ex)                     \
  F(TLS_client_method)                \
  F(TLS_server_method)                \
  F(X509_STORE_CTX_free)              \
  F(X509_STORE_CTX_get0_param)        \
  F(X509_STORE_CTX_init)              \
  F(X509_STORE_CTX_new)               \
  F(X509_STORE_CTX_set_default)       \
  F(X509_STORE_add_cert)              \
  F(X509_VERIFY_PARAM_set1_ip_asc)    \
  F(X509_VERIFY_PARAM_set_auth_level) \
  F(X509_free)                        \
  F(X509_get0_notAfter)               \
  F(X509_get_ext_d2i)                 \
  F(X509_verify_cert)                 \
  F(X509_verify_cert_error_string)

namespace leaf::tls {

struct OpenSsl {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name that is declared
#define LEAF_MEMBER(name) decltype(&::name) name = nullptr;
  LEAF_OPENSSL_FUNCTIONS(LEAF_MEMBER)
#undef LEAF_MEMBER
};

// After LoadLibrary has succeeded.
const OpenSsl& Ssl();

struct FreeX509 {
  void operator()(X509* certificate) const { Ssl().X509_free(certificate); }
};
using X509Pointer = std::unique_ptr<X509, FreeX509>;

// The reason of the oldest error of this thread since ERR_clear_error, in OpenSSL's words; "" for none.
std::string OldestReason();

}  // namespace leaf::tls
