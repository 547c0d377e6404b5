// HTTP on a connection: requests are read, routed and answered, in order.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "leaf/access/gate.h"
#include "leaf/base/clock.h"
#include "leaf/server/http/allowed_hosts.h"
#include "leaf/server/http/message.h"
#include "leaf/server/http/request_reader.h"
#include "leaf/server/http/router.h"
#include "leaf/server/net/protocol.h"
#include "leaf/server/request_metrics.h"

namespace leaf::server {

// Speaks HTTP on every connection to a listener. Thread-safe.
class HttpProtocolFactory final : public ProtocolFactory {
 public:
  // The router, the gate and the clock outlive it.
  HttpProtocolFactory(const Router& router, AllowedHosts hosts, const access::Gate& gate, const Clock& clock)
      : router_(router), hosts_(std::move(hosts)), gate_(gate), clock_(clock) {}

  std::unique_ptr<Protocol> Make(const Origin& origin) const override;

 private:
  friend class HttpProtocol;

  const Router& router_;
  const AllowedHosts hosts_;
  const access::Gate& gate_;
  const Clock& clock_;
};

}  // namespace leaf::server
