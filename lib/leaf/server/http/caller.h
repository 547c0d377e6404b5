// Who sends a request that changes something.
#pragma once

#include <string>

#include "leaf/server/http/message.h"

namespace leaf::server {

// For the history and the log.
inline std::string CallerOf(const Request& request) {
  return request.caller->name + (request.is_local ? " on the Unix socket" : "");
}

}  // namespace leaf::server
