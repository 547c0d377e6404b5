#include "leaf/embed/tls_files.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "leaf/base/mutex.h"
#include "leaf/sys/durable_file.h"
#include "leaf/sys/file_ops.h"
#include "leaf/sys/secret_file.h"

namespace leaf::embed {
namespace {

// The bundle of all authorities of a system has a quarter of that.
constexpr std::size_t kPemBytesMax = std::size_t{1} * 1024 * 1024;

// As messages call it.
std::string PemName(std::string_view key, const std::string& path) {
  return fmt::format("{}: {}", key, path);
}

Result<tls::Pem> ReadPem(std::string_view key, const std::string& path) {
  sys::FileOps ops;
  auto text = sys::ReadWholeFile(ops, path, kPemBytesMax);
  if (!text.ok()) {
    return Error{ErrorCode::kConfig, fmt::format("{}: {}", key, text.error().message), text.error().hint};
  }
  if (!*text)
    return Error{ErrorCode::kConfig, fmt::format("{}: there is no such file", PemName(key, path)), ""};
  return tls::Pem{PemName(key, path), **std::move(text)};
}

Result<tls::Pem> ReadKey(std::string_view key, const std::string& path) {
  auto text = sys::ReadSecretFile(path);
  if (!text.ok())
    return Error{ErrorCode::kConfig, fmt::format("{}: {}", key, text.error().message), text.error().hint};
  return tls::Pem{PemName(key, path), *std::move(text) + "\n"};
}

// What tells whether a file is another one than before.
using Stamp = std::array<std::int64_t, 4>;
Stamp StampOf(const std::string& path) {
  struct stat status {};
  if (path.empty() || stat(path.c_str(), &status) != 0) return {};
  return {static_cast<std::int64_t>(status.st_ino), status.st_size, status.st_mtim.tv_sec,
          status.st_mtim.tv_nsec};
}

class CachedClientTls {
 public:
  explicit CachedClientTls(config::Config::Client client) : client_(std::move(client)) {}

  Result<std::shared_ptr<const tls::ClientContext>> Get() {
    const std::array<Stamp, 3> stamps{StampOf(client_.ca), StampOf(client_.cert), StampOf(client_.key)};
    const MutexLock lock(mutex_);
    if (context_ == nullptr || stamps != stamps_) {
      LEAF_ASSIGN_OR_RETURN(context_, LoadClientTls(client_));
      stamps_ = stamps;
    }
    return context_;
  }

 private:
  const config::Config::Client client_;
  Mutex mutex_;
  std::array<Stamp, 3> stamps_ LEAF_GUARDED_BY(mutex_){};
  std::shared_ptr<const tls::ClientContext> context_ LEAF_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::shared_ptr<const tls::ServerContext>> LoadServerTls(const config::Config::Server& server) {
  if (server.tls_cert.empty()) return std::shared_ptr<const tls::ServerContext>();
  tls::ServerContext::Parts parts;
  LEAF_ASSIGN_OR_RETURN(parts.certificate, ReadPem("server.tls_cert", server.tls_cert));
  LEAF_ASSIGN_OR_RETURN(parts.key, ReadKey("server.tls_key", server.tls_key));
  if (!server.tls_client_ca.empty()) {
    LEAF_ASSIGN_OR_RETURN(parts.client_ca, ReadPem("server.tls_client_ca", server.tls_client_ca));
  }
  return tls::ServerContext::Make(parts);
}

Result<std::shared_ptr<const tls::ClientContext>> LoadClientTls(const config::Config::Client& client) {
  tls::ClientContext::Parts parts;
  if (!client.ca.empty()) {
    LEAF_ASSIGN_OR_RETURN(parts.ca, ReadPem("client.ca", client.ca));
  }
  if (!client.cert.empty()) {
    LEAF_ASSIGN_OR_RETURN(tls::Pem certificate, ReadPem("client.cert", client.cert));
    LEAF_ASSIGN_OR_RETURN(tls::Pem key, ReadKey("client.key", client.key));
    parts.identity = tls::ClientContext::Identity{std::move(certificate), std::move(key)};
  }
  return tls::ClientContext::Make(parts);
}

client::TlsSource ClientTlsOf(const config::Config::Client& client) {
  return [cached = std::make_shared<CachedClientTls>(client)] { return cached->Get(); };
}

}  // namespace leaf::embed
