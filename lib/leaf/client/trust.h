// Whom a client believes, and what it shows, where a server speaks TLS.
#pragma once

#include <functional>
#include <memory>

#include "leaf/base/result.h"
#include "leaf/tls/context.h"

namespace leaf::client {

// Called when a server with TLS is to be asked, and not before: what it gives has to be loaded. An empty one
// stands for the system's authorities. Thread-safe.
using TlsSource = std::function<Result<std::shared_ptr<const tls::ClientContext>>()>;

}  // namespace leaf::client
