#include "leaf/server/resp/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "leaf/base/text.h"
#include "leaf/server/error_meaning.h"

namespace leaf::server::resp {
namespace {

using Kind = CommandKind;
using Needs = CommandAccess;

// name, words, kind, route, access, in transactions, has a key, writes, group, arguments, summary, handler
constexpr auto kCommands = std::to_array<CommandSpec>({
    {"incr", 2, Kind::kTakesIds, Route::kRedisIncr, Needs::kIds, true, true, true, "string", "key",
     "Takes the next ID of a tag", nullptr},
    {"incrby", 3, Kind::kTakesIds, Route::kRedisIncrBy, Needs::kIds, true, true, true, "string",
     "key increment", "Takes IDs of a tag that follow each other, and returns the last one", nullptr},
    {"leaf.next", -2, Kind::kTakesIds, Route::kRedisNext, Needs::kIds, true, true, true, "leaf", "key count?",
     "Takes IDs of a tag", nullptr},
    {"leaf.range", 3, Kind::kTakesIds, Route::kRedisRange, Needs::kIds, true, true, true, "leaf", "key count",
     "Takes IDs of a tag as ranges; the end of each is not in it", nullptr},
    {"leaf.snowflake", -1, Kind::kTakesIds, Route::kRedisSnowflake, Needs::kIds, true, false, true, "leaf",
     "count? form?", "Takes snowflake IDs, as numbers, or in form uuid or ulid", nullptr},
    {"leaf.code", -2, Kind::kTakesIds, Route::kRedisCode, Needs::kIds, true, true, true, "leaf", "key count?",
     "Takes IDs of a tag, or of tag snowflake, and returns their codes", nullptr},
    {"leaf.decode", 2, Kind::kAnswered, Route::kRedisDecode, Needs::kRead, true, false, false, "leaf", "id",
     "Takes a snowflake ID apart", DecodeId},
    {"get", 2, Kind::kAnswered, Route::kRedisGet, Needs::kRead, true, true, false, "string", "key",
     "Returns the last ID of a tag that this node issued since its start", GetLast},
    {"ping", -1, Kind::kAnswered, Route::kRedisOther, Needs::kLoggedIn, true, false, false, "connection",
     "message?", "Returns PONG, or the message", Ping},
    {"echo", 2, Kind::kAnswered, Route::kRedisOther, Needs::kLoggedIn, true, false, false, "connection",
     "message", "Returns the message", EchoWord},
    {"hello", -1, Kind::kAnswered, Route::kRedisOther, Needs::kFree, false, false, false, "connection",
     "protover?", "Chooses the version of the protocol, and tells of the server", Hello},
    {"auth", -2, Kind::kAnswered, Route::kRedisOther, Needs::kFree, false, false, false, "connection",
     "username? password", "Logs in", Auth},
    {"client", -2, Kind::kAnswered, Route::kRedisOther, Needs::kLoggedIn, false, false, false, "connection",
     "subcommand", "ID, INFO, GETNAME, SETNAME, SETINFO, NO-EVICT, NO-TOUCH, REPLY ON", Client},
    {"select", 2, Kind::kAnswered, Route::kRedisOther, Needs::kLoggedIn, true, false, false, "connection",
     "index", "Accepts database 0, the only one", Select},
    {"reset", 1, Kind::kEnds, Route::kRedisOther, Needs::kFree, false, false, false, "connection", "",
     "Makes the connection as it was at its begin", nullptr},
    {"quit", -1, Kind::kEnds, Route::kRedisOther, Needs::kFree, false, false, false, "connection", "",
     "Ends the connection", nullptr},
    {"multi", 1, Kind::kTransaction, Route::kRedisOther, Needs::kLoggedIn, false, false, false,
     "transactions", "", "Queues the commands that follow", nullptr},
    {"exec", 1, Kind::kTransaction, Route::kRedisExec, Needs::kLoggedIn, false, false, false, "transactions",
     "", "Does what is queued", nullptr},
    {"discard", 1, Kind::kTransaction, Route::kRedisOther, Needs::kLoggedIn, false, false, false,
     "transactions", "", "Forgets what is queued", nullptr},
    {"command", -1, Kind::kAnswered, Route::kRedisOther, Needs::kLoggedIn, false, false, false, "server",
     "subcommand?", "Tells of the commands: COUNT, DOCS, INFO, LIST", DescribeCommands},
    {"config", -2, Kind::kAnswered, Route::kRedisOther, Needs::kLoggedIn, false, false, false, "server",
     "subcommand pattern", "GET: tells what clients ask for at their start", Config},
    {"info", -1, Kind::kAnswered, Route::kRedisOther, Needs::kLoggedIn, false, false, false, "server",
     "section?", "Tells of the server", Info},
    {"role", 1, Kind::kAnswered, Route::kRedisOther, Needs::kLoggedIn, true, false, false, "server", "",
     "Returns master", Role},
    {"time", 1, Kind::kAnswered, Route::kRedisOther, Needs::kLoggedIn, true, false, false, "server", "",
     "Returns the server's time, in seconds and microseconds", TellTime},
});

}  // namespace

bool IsWord(std::string_view word, std::string_view lower) {
  return word.size() == lower.size() && std::equal(word.begin(), word.end(), lower.begin(),
                                                   [](char a, char b) { return LowerCase(a) == b; });
}

const CommandSpec* FindCommand(std::string_view name) {
  // The most frequent ones are the first: a few comparisons of lengths.
  for (const CommandSpec& command : kCommands) {
    if (IsWord(name, command.name)) return &command;
  }
  return nullptr;
}

std::span<const CommandSpec> AllCommands() { return kCommands; }

std::optional<int> RefuseCommand(const CommandSpec& command, const Session& session, ReplyWriter& reply) {
  const access::Caller& caller = *session.caller;
  const bool may = command.access == Needs::kFree ||
                   (command.access == Needs::kLoggedIn && !caller.roles.empty()) ||
                   (command.access == Needs::kIds && caller.roles.Has(access::Role::kIds)) ||
                   (command.access == Needs::kRead && caller.roles.Has(access::Role::kRead));
  if (may) [[likely]]
    return std::nullopt;
  if (!caller.is_known) {
    reply.Error("NOAUTH Authentication required.");
    return kUnknownCaller;
  }
  reply.Error(
      fmt::format("NOPERM {} lacks role {}", caller.name, command.access == Needs::kRead ? "read" : "ids"));
  return kDenied;
}

std::string WrongArity(const CommandSpec& command) {
  return fmt::format("ERR wrong number of arguments for '{}' command", command.name);
}

std::string UnknownCommand(Words words) {
  constexpr std::size_t kShown = 128;
  std::string text = fmt::format("ERR unknown command '{}', with args beginning with: ",
                                 Printable(words.front().substr(0, kShown)));
  const std::size_t most = text.size() + kShown;
  for (const std::string_view word : words.subspan(1)) {
    if (text.size() >= most) break;
    text += fmt::format("'{}' ", Printable(word.substr(0, most - text.size())));
  }
  return text;
}

int Fail(ReplyWriter& reply, std::string_view text) {
  reply.Error(text);
  return MeaningOf(ErrorCode::kInvalidArgument).status;
}

int Fail(ReplyWriter& reply, const Error& error) {
  reply.Error(ErrorText(error));
  return MeaningOf(error.code).status;
}

}  // namespace leaf::server::resp
