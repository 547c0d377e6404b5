#include "leaf/client/tls_stream.h"

#include <fmt/format.h>

namespace leaf::client {

std::optional<Error> TlsStream::Failure(const std::string& server) const {
  using Fault = tls::Session::CertificateFault;
  if (session_ == nullptr || session_->error().empty()) return std::nullopt;
  const std::string text = fmt::format("cannot ask {}: ", server);
  switch (session_->certificate_fault()) {
    case Fault::kNone:
      break;
    case Fault::kOtherHost:
      return Error{ErrorCode::kConfig, text + "its certificate is not for " + host_,
                   "name the server as its certificate does"};
    case Fault::kTime:
      return Error{ErrorCode::kConfig, text + session_->error(),
                   "renew the server's certificate; is the clock of this machine right?"};
    case Fault::kOther:
      return Error{ErrorCode::kConfig, text + session_->error(),
                   "name the file with its authority: client.ca, or --ca"};
  }
  if (session_->peer_speaks_no_tls())
    return Error{ErrorCode::kConfig, text + "it does not speak TLS", "name it with http:// or redis://"};
  if (session_->peer_refused())
    return Error{ErrorCode::kConfig, fmt::format("{} refuses this client: {}", server, session_->error()),
                 "does it ask for a certificate? client.cert and client.key, or --cert and --key"};
  return Error{ErrorCode::kUnavailable, text + session_->error(), ""};
}

}  // namespace leaf::client
