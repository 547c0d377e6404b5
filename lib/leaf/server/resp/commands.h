// The commands of the Redis port: one table, which clients can ask for (COMMAND), and the handlers of those
// that give no IDs. What each does is told in leafctl-redis(7).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "leaf/access/gate.h"
#include "leaf/base/clock.h"
#include "leaf/core/id_layout.h"
#include "leaf/server/issue/issuer.h"
#include "leaf/server/net/unread_bytes.h"
#include "leaf/server/request_metrics.h"
#include "leaf/server/resp/reply.h"
#include "leaf/server/visitor.h"

namespace leaf::server::resp {

struct RedisOptions {
  std::chrono::milliseconds request_timeout{1000};  // how long a request whose tag is drained waits
  std::string version;                              // of leafctl
  core::IdLayout layout{};                          // of the IDs that are decoded
};

// What commands are answered from. Thread-safe; outlives every connection.
struct RedisBackend {
  const RedisOptions options;
  const Issuer& issuer;
  UnreadAnswers& unread;
  const Clock& clock;
  const RequestMetrics& requests;
  const access::Gate& gate;
  const MonotonicTime started_at;
};

// What a caller needs for a command.
enum class CommandAccess : std::uint8_t {
  kFree,      // nothing: a client logs in with it, or ends
  kLoggedIn,  // any role
  kIds,
  kRead,
};

// What a client has said of itself.
struct Session {
  std::uint64_t id = 0;  // no other connection of this process has it
  Version version = Version::kResp2;
  std::string name{};
  std::string library{};
  std::string library_version{};
  MonotonicTime since{};
  Visitor* visitor = nullptr;        // null in a transaction, in which nothing logs in
  access::Gate::CallerPtr caller{};  // as it was at the last command
};

using Words = std::span<const std::string_view>;

// Views, good for the call of the handler.
struct CommandCall {
  const RedisBackend& backend;
  Session& session;
  Words words;  // the name, too; as many as the command takes
};

inline constexpr int kFine = 200;
inline constexpr int kUnknownCaller = 401;
inline constexpr int kDenied = 403;

// Never blocks. Writes one reply, and returns the status that HTTP has for it.
using CommandHandler = int (*)(const CommandCall& call, ReplyWriter& reply);

enum class CommandKind : std::uint8_t {
  kAnswered,     // by its handler, at once
  kTakesIds,     // see take.h
  kTransaction,  // MULTI, EXEC, DISCARD: the connection's business
  kEnds,         // QUIT, RESET: the same
};

struct CommandSpec {
  std::string_view name;  // in lower case
  // Words with the name; negative: so many or more.
  int arity;
  CommandKind kind;
  Route route;
  CommandAccess access;
  bool in_transactions;  // it can stand between MULTI and EXEC
  bool has_key;          // its first argument is a tag
  bool writes;
  std::string_view group;
  std::string_view arguments;  // "key count?": for help; '?' marks those that may be left out
  std::string_view summary;
  CommandHandler handler;  // of kAnswered
};

// Null if there is no such command. Names are read in any case.
const CommandSpec* FindCommand(std::string_view name);
std::span<const CommandSpec> AllCommands();

inline bool HasRightArity(const CommandSpec& command, std::size_t words) {
  return command.arity < 0 ? words >= static_cast<std::size_t>(-command.arity)
                           : words == static_cast<std::size_t>(command.arity);
}
// The status of a command that the session's caller may not use, whose error is written then; nothing if it
// may.
std::optional<int> RefuseCommand(const CommandSpec& command, const Session& session, ReplyWriter& reply);
// As Redis says that it has not.
std::string WrongArity(const CommandSpec& command);
// As Redis says it.
std::string UnknownCommand(Words words);

// The handlers, in files by what they are about: session_commands.cc, server_commands.cc.
int Auth(const CommandCall& call, ReplyWriter& reply);
int Client(const CommandCall& call, ReplyWriter& reply);
int EchoWord(const CommandCall& call, ReplyWriter& reply);
int Hello(const CommandCall& call, ReplyWriter& reply);
int Ping(const CommandCall& call, ReplyWriter& reply);
int Select(const CommandCall& call, ReplyWriter& reply);

int DescribeCommands(const CommandCall& call, ReplyWriter& reply);
int Config(const CommandCall& call, ReplyWriter& reply);
int Info(const CommandCall& call, ReplyWriter& reply);
int Role(const CommandCall& call, ReplyWriter& reply);
int TellTime(const CommandCall& call, ReplyWriter& reply);
int GetLast(const CommandCall& call, ReplyWriter& reply);
int DecodeId(const CommandCall& call, ReplyWriter& reply);

// Whether `word` is `lower`, in any case.
bool IsWord(std::string_view word, std::string_view lower);
// Replies with an error, and returns its status.
int Fail(ReplyWriter& reply, std::string_view text);
int Fail(ReplyWriter& reply, const Error& error);

}  // namespace leaf::server::resp
