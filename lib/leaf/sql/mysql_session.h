// One connection to one MySQL or MariaDB server: how it is made. With mysql_library.h all that the client
// library is needed for; the simulator (tests/sim) has connections of its own in its place.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "leaf/base/endpoint.h"
#include "leaf/base/result.h"

namespace soci {
class session;
}

namespace leaf::sql {

// kPreferred: encrypted if the server offers it. kRequired: encrypted, with any server that answers. kVerify:
// and the certificate is of an authority that is trusted, and of the host that was asked for.
enum class MysqlTls { kDisabled, kPreferred, kRequired, kVerify };

struct MysqlOptions {
  std::vector<Endpoint> endpoints;  // of one replicated cluster
  std::string database;
  std::string user;
  // Asked for each new connection, from any thread, so that a changed password needs no restart. None: no
  // password.
  std::function<Result<std::string>()> password = nullptr;
  // Rounded up to whole seconds, which is what the client library counts in.
  std::chrono::milliseconds connect_timeout{2000};
  std::chrono::milliseconds query_timeout{2000};
  MysqlTls tls = MysqlTls::kPreferred;
  std::string tls_ca;               // a file, for kVerify; "": the authorities that the system trusts
  std::size_t connections_max = 8;  // at once
};

// Connects. Each wait for a peer that says nothing ends: connect_timeout for the TCP connection and as much
// for the server's greeting, query_timeout for everything after it. A name is looked up each time, and its
// addresses are tried in order.
//
// SOCI's backend has no options for TLS but the files, and reads no option group. Its `host`, however, goes
// to the client library as it is, and the library takes a text with a ';' for a whole connection string
// (mariadb_connect in mysql.h): that is how ssl-enforce, ssl-verify-server-cert, ssl-ca and the TCP protocol
// for the name "localhost" get there. ssl-enforce by itself only prefers: with a server that offers no TLS
// the library goes on in plain text. So what is required is checked on the session, by asking the library
// (not the server) for its cipher, before the first statement; by then an authentication has been exchanged,
// whose default methods do not show the password. kVerify is refused by the library itself, before that.
//
// Errors: those of TranslateException, without "cannot …" and without the endpoint; kUnavailable for a
// session that is not encrypted as demanded; kConfig without the client library; those of the password
// source. `full`, if given, tells whether the server lets in no more connections.
Result<std::unique_ptr<soci::session>> OpenMysql(const MysqlOptions& options, const Endpoint& endpoint,
                                                 bool* full = nullptr);

// Whether a locking read can be told not to wait (NOWAIT). Sends nothing.
bool CanReadWithoutWaiting(soci::session& session);

}  // namespace leaf::sql
