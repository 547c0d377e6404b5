// Who sends a request that changes something.
#pragma once

#include <string>

#include "leaf/server/http/message.h"

namespace leaf::server {

// For the history and the log.
inline std::string CallerOf(const Request& request) {
  return request.from_operator || request.is_local ? "unix socket" : "tcp";
}

}  // namespace leaf::server
