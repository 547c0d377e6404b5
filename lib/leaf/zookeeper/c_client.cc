#include "leaf/zookeeper/c_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "leaf/base/mutex.h"
#include "leaf/base/text.h"
#include "leaf/base/time.h"

namespace leaf::zookeeper {
namespace {

// The library's callback carries no context: all sessions of a process share one log, that of the newest.
Mutex g_loggers_mutex;
std::vector<Logger*>& Loggers() LEAF_REQUIRES(g_loggers_mutex) {
  // Never destroyed: a session that is static may be closed at the very end of the process.
  static auto& loggers = *new std::vector<Logger*>;
  return loggers;
}

// Held while a transaction is handed to the library. zoo_amulti (as of 3.8.0) leaves the variables of those
// operations unset that it no longer prepares because the session has ended, and then frees them: memory that
// is ours, or nothing at all. So it is called only while there is a connection, and the session does not end
// before it has returned: on the way from one to the other the library's thread logs that the connection is
// lost and that the next one is begun, and waits for this lock there. It holds no lock of its own meanwhile.
// Recursive, since zoo_amulti may log as well.
std::recursive_mutex g_transaction_mutex;

// As in the shell of ZooKeeper: "world:anyone:cdrwa".
std::string PermissionsText(std::int32_t permissions) {
  const std::array<std::pair<std::int32_t, char>, 5> letters{{{ZOO_PERM_CREATE, 'c'},
                                                              {ZOO_PERM_DELETE, 'd'},
                                                              {ZOO_PERM_READ, 'r'},
                                                              {ZOO_PERM_WRITE, 'w'},
                                                              {ZOO_PERM_ADMIN, 'a'}}};
  std::string text;
  for (const auto& [permission, letter] : letters) {
    if ((permissions & permission) != 0) text += letter;
  }
  return text;
}

}  // namespace

void OnLibraryLog(const char* message) {
  { const std::lock_guard transaction(g_transaction_mutex); }
  const MutexLock lock(g_loggers_mutex);
  if (Loggers().empty()) return;
  std::string_view text = message;
  // "2026-11-21 22:31:10,123:4711(0x7f…):ZOO_INFO@check_events@2989: …": we have a clock of our own.
  if (const std::size_t begin = text.find("ZOO_"); begin != std::string_view::npos) text.remove_prefix(begin);
  Loggers().back()->Debug("ZooKeeper client: {}", text);
}

LibraryLog::LibraryLog(Logger& log) : log_(log) {
  const MutexLock lock(g_loggers_mutex);
  zoo_set_debug_level(ZOO_LOG_LEVEL_INFO);
  Loggers().push_back(&log_);
}

LibraryLog::~LibraryLog() {
  const MutexLock lock(g_loggers_mutex);
  auto& loggers = Loggers();
  loggers.erase(std::find(loggers.begin(), loggers.end(), &log_));
}

NodeStat StatOf(const Stat& stat) {
  return {stat.version, stat.cversion,          stat.numChildren,   stat.czxid,
          stat.mzxid,   WallTimeOf(stat.mtime), stat.ephemeralOwner};
}

ACL_vector& OwnRules() {
  static char auth[] = "auth";
  static char no_id[] = "";
  static char world[] = "world";
  static char anyone[] = "anyone";
  static std::array<ACL, 2> entries{{{ZOO_PERM_ALL, {auth, no_id}}, {ZOO_PERM_READ, {world, anyone}}}};
  static ACL_vector rules{static_cast<std::int32_t>(entries.size()), entries.data()};
  return rules;
}

NodeAccess AccessOf(const ACL_vector& rules, const Stat& stat) {
  NodeAccess access;
  access.version = stat.aversion;
  access.stat = StatOf(stat);
  for (std::int32_t i = 0; i < rules.count; ++i) {
    const ACL& rule = rules.data[i];
    const std::string_view scheme = rule.id.scheme;
    std::string_view id = rule.id.id;
    // Of "user:hash of the password", the user only.
    if (scheme == "digest") id = id.substr(0, id.find(':'));
    if (!access.rules.empty()) access.rules += ", ";
    access.rules += fmt::format("{}:{}:{}", scheme, id, PermissionsText(rule.perms));
    if (scheme == "world" && (rule.perms & ~ZOO_PERM_READ) != 0) access.open = true;
  }
  return access;
}

std::optional<WriteOutcome::Conflict> ConflictOf(int code) {
  switch (code) {
    case ZNODEEXISTS:
      return WriteOutcome::Conflict::kExists;
    case ZNONODE:
      return WriteOutcome::Conflict::kMissing;
    case ZBADVERSION:
      return WriteOutcome::Conflict::kVersion;
    case ZNOTEMPTY:
      return WriteOutcome::Conflict::kNotEmpty;
    default:
      return std::nullopt;
  }
}

bool IsLost(int code) {
  return code == ZCONNECTIONLOSS || code == ZOPERATIONTIMEOUT || code == ZSESSIONEXPIRED ||
         code == ZCLOSING || code == ZRUNTIMEINCONSISTENCY;
}

Error ErrorOf(int code, bool write, std::string_view path) {
  if (IsLost(code)) {
    if (!write) return {ErrorCode::kUnavailable, fmt::format("ZooKeeper: {}", zerror(code)), ""};
    return {ErrorCode::kOutcomeUnknown,
            fmt::format("ZooKeeper: {}: the reply to a write is lost: {}", Quoted(path), zerror(code)), ""};
  }
  switch (code) {
    case ZNOAUTH:
      return {ErrorCode::kPermission, fmt::format("ZooKeeper: {}: access is denied", Quoted(path)),
              "give this node the credentials that the cluster's other leafctl nodes have "
              "(zookeeper.auth_file), or set the node's access rules"};
    case ZINVALIDACL:
      return {ErrorCode::kPermission,
              fmt::format("ZooKeeper: {}: the servers do not accept this node's credentials in access rules",
                          Quoted(path)),
              "check that they allow digest authentication, or unset zookeeper.auth_file"};
    case ZAUTHFAILED:
      return {ErrorCode::kPermission, "ZooKeeper refuses the authentication", "set zookeeper.auth_file"};
    // An answer: it was not done.
    case ZSESSIONMOVED:
    case ZTHROTTLEDOP:
    case ZNOTREADONLY:
      return {ErrorCode::kUnavailable, fmt::format("ZooKeeper: {}", zerror(code)), ""};
    case ZINVALIDSTATE:  // the library took nothing
      return {ErrorCode::kUnavailable, "ZooKeeper: the session has just ended", "retry soon"};
    default:
      return {ErrorCode::kInternal, fmt::format("ZooKeeper: {}: {} ({})", Quoted(path), zerror(code), code),
              ""};
  }
}

void PrepareTransaction(Call& call, const ACL_vector& own) {
  const std::size_t count = call.operations.size();
  call.library_operations.resize(count);
  call.created.resize(count);
  call.stats.resize(count);
  call.library_results.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Operation& operation = call.operations[i];
    zoo_op_t* const out = &call.library_operations[i];
    const char* const path = operation.path.c_str();
    const int size = static_cast<int>(operation.data.size());
    call.library_results[i] = {};
    switch (operation.kind) {
      case Operation::Kind::kCreate:
      case Operation::Kind::kCreateSequential:
      case Operation::Kind::kCreateEphemeral:
        zoo_create_op_init(out, path, operation.data.data(), size,
                           operation.own ? &own : &ZOO_OPEN_ACL_UNSAFE,
                           operation.kind == Operation::Kind::kCreate             ? ZOO_PERSISTENT
                           : operation.kind == Operation::Kind::kCreateSequential ? ZOO_PERSISTENT_SEQUENTIAL
                                                                                  : ZOO_EPHEMERAL,
                           call.created[i].data(), static_cast<int>(call.created[i].size()));
        break;
      case Operation::Kind::kSet:
        zoo_set_op_init(out, path, operation.data.data(), size, operation.version, &call.stats[i]);
        break;
      case Operation::Kind::kDelete:
        zoo_delete_op_init(out, path, operation.version);
        break;
      case Operation::Kind::kCheck:
        zoo_check_op_init(out, path, operation.version);
        break;
    }
  }
}

int BeginTransaction(zhandle_t* library, Call& call, void_completion_t completion, const void* context) {
  const std::lock_guard lock(g_transaction_mutex);
  if (zoo_state(library) != ZOO_CONNECTED_STATE) return ZINVALIDSTATE;
  return zoo_amulti(library, static_cast<int>(call.library_operations.size()), call.library_operations.data(),
                    call.library_results.data(), completion, context);
}

}  // namespace leaf::zookeeper
