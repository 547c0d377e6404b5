// Certificates and keys, out of the files that a configuration names.
#pragma once

#include <memory>

#include "leaf/base/result.h"
#include "leaf/client/trust.h"
#include "leaf/config/config.h"
#include "leaf/tls/context.h"

namespace leaf::embed {

// Of the server; null without server.tls_cert. Errors: kConfig that names the key and the file.
Result<std::shared_ptr<const tls::ServerContext>> LoadServerTls(const config::Config::Server& server);

// Of clients, read now. Errors: the same.
Result<std::shared_ptr<const tls::ClientContext>> LoadClientTls(const config::Config::Client& client);

// The same, read when a server with TLS is first asked, and again whenever a file is another one than before.
// Thread-safe.
client::TlsSource ClientTlsOf(const config::Config::Client& client);

}  // namespace leaf::embed
