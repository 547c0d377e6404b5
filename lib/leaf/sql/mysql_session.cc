#include "leaf/sql/mysql_session.h"

#include <fmt/format.h>
#include <soci/mysql/soci-mysql.h>
#include <soci/soci.h>

#include <utility>

#include "leaf/base/check.h"
#include "leaf/sql/error_map.h"
#include "leaf/sql/mysql_library.h"

namespace leaf::sql {
namespace {

// A value of SOCI's MySQL connection string: single-quoted, with backslash escapes.
std::string SociValue(std::string_view value) {
  std::string quoted = "'";
  for (const char c : value) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

long long WholeSeconds(std::chrono::milliseconds duration) {
  return std::chrono::ceil<std::chrono::seconds>(duration).count();
}

// The client library's own connection string. Endpoint's characters and ours mean nothing in it; a path
// stands in curly brackets.
Result<std::string> LibraryString(const MysqlOptions& options, const Endpoint& endpoint) {
  // 1 is MYSQL_PROTOCOL_TCP: "localhost" would otherwise be the Unix socket, whatever the port says.
  std::string text = fmt::format("host={};protocol=1", endpoint.host);
  switch (options.tls) {
    case MysqlTls::kDisabled:
      break;
    case MysqlTls::kPreferred:
    case MysqlTls::kRequired:
      text += ";ssl-enforce=1";
      break;
    case MysqlTls::kVerify:
      text += ";ssl-enforce=1;ssl-verify-server-cert=1";
      if (options.tls_ca.find_first_of("{}") != std::string::npos)
        return Error{ErrorCode::kConfig, "mysql.tls_ca: a path with a curly bracket", ""};
      if (!options.tls_ca.empty()) text += fmt::format(";ssl-ca={{{}}}", options.tls_ca);
      break;
  }
  return text;
}

MYSQL* HandleOf(soci::session& session) {
  return static_cast<soci::mysql_session_backend*>(session.get_backend())->conn_;
}

constexpr unsigned long kMariaDb103 = 100300;  // NOLINT(google-runtime-int): the library's type

// Sends nothing: the server's greeting said so.
bool IsMariaDb(soci::session& session) { return mariadb_connection(HandleOf(session)) != 0; }

// Whether the server knows idle_transaction_timeout.
bool CanEndIdleTransactions(soci::session& session) {
  return IsMariaDb(session) && mysql_get_server_version(HandleOf(session)) >= kMariaDb103;
}

// MARIADB_TLS_VERIFY_STATUS, which the headers of client libraries before 3.4 do not have.
constexpr auto kTlsVerifyStatus = static_cast<mariadb_value>(37);
#if MARIADB_PACKAGE_VERSION_ID >= 30410
static_assert(kTlsVerifyStatus == MARIADB_TLS_VERIFY_STATUS);
#endif

// That the library has understood what it was told.
Result<void> CheckEncryption(const MysqlOptions& options, soci::session& session) {
  if (options.tls == MysqlTls::kDisabled || options.tls == MysqlTls::kPreferred) return {};
  MYSQL* const handle = HandleOf(session);
  const char* const cipher = mysql_get_ssl_cipher(handle);
  if (cipher == nullptr || *cipher == '\0') {
    return Error{ErrorCode::kUnavailable,
                 "the server offers no TLS, and mysql.tls requires it: the connection is not used",
                 "set up TLS on the server (ssl_cert, ssl_key), or set mysql.tls"};
  }
  if (options.tls == MysqlTls::kVerify) {
    my_bool verifies = 0;
    mysql_get_option(handle, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &verifies);
    LEAF_CHECK(verifies != 0);
    // From 3.4 on the library lets in a certificate of an unknown authority if no mysql.tls_ca is set and the
    // server shows that it knows the password. Older ones refuse it by themselves, and do not know this
    // number.
    unsigned doubts = 0;
    if (mariadb_get_info(handle, kTlsVerifyStatus, &doubts) == 0 && doubts != 0) {
      return Error{ErrorCode::kUnavailable,
                   "TLS: the server's certificate is from no authority that this system trusts, and "
                   "mysql.tls requires "
                   "one: the connection is not used",
                   "name the server's authority in mysql.tls_ca"};
    }
  }
  return {};
}

}  // namespace

bool CanReadWithoutWaiting(soci::session& session) {
  constexpr unsigned long kMysql801 = 80001;  // NOLINT(google-runtime-int): the library's type
  return mysql_get_server_version(HandleOf(session)) >= (IsMariaDb(session) ? kMariaDb103 : kMysql801);
}

Result<std::unique_ptr<soci::session>> OpenMysql(const MysqlOptions& options, const Endpoint& endpoint,
                                                 bool* full) {
  LEAF_RETURN_IF_ERROR(LoadMysqlLibrary());
  LEAF_ASSIGN_OR_RETURN(const std::string host, LibraryString(options, endpoint));
  const auto seconds = [](std::chrono::milliseconds timeout) { return WholeSeconds(timeout); };
  std::string parameters = fmt::format(
      "host={} port={} dbname={} user={} charset=utf8mb4 connect_timeout={} read_timeout={} write_timeout={}",
      SociValue(host), endpoint.port, SociValue(options.database), SociValue(options.user),
      seconds(options.connect_timeout), seconds(options.query_timeout), seconds(options.query_timeout));
  if (options.password) {
    LEAF_ASSIGN_OR_RETURN(const std::string password, options.password());
    if (!password.empty()) parameters += " password=" + SociValue(password);
  }
  try {
    auto session = std::make_unique<soci::session>(*soci::factory_mysql(), parameters);
    LEAF_RETURN_IF_ERROR(CheckEncryption(options, *session));
    // What a server is set up with would change what statements mean here. It may not heed the handshake's
    // character set, and read names as other ones. With autocommit off a plain SELECT pins an old snapshot.
    // Without a strict mode a max_id that its column cannot hold is cut off, and the next node gets the same
    // range. A limit of rows hides tags, and one of what may be joined or changed at once refuses them.
    *session << "SET NAMES utf8mb4, autocommit = 1, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', "
                "sql_select_limit = 18446744073709551615, sql_safe_updates = 0, sql_big_selects = 1";
    // A row that another connection holds must not outlast the statement's own time-out.
    std::string limits =
        fmt::format("SET SESSION innodb_lock_wait_timeout = {}", seconds(options.query_timeout));
    // And a row that we hold must not outlast us: a process that is stopped in the middle of a transaction
    // (`tag advance`, say) keeps its connection, and with it every node's grants of that tag waiting. MySQL
    // has no such limit.
    if (CanEndIdleTransactions(*session))
      limits += fmt::format(", SESSION idle_transaction_timeout = {}", seconds(options.query_timeout));
    *session << limits;
    return session;
  } catch (const std::exception& exception) {
    if (full != nullptr) *full = IsTooManyConnections(exception);
    return TranslateReason(exception, Phase::kStatement);
  }
}

}  // namespace leaf::sql
