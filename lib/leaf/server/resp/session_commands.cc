// The commands by which a client and the server come to terms.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "leaf/base/text.h"
#include "leaf/base/time.h"
#include "leaf/server/resp/commands.h"

namespace leaf::server::resp {
namespace {

// Of a name that a client gives itself.
constexpr std::size_t kNameBytesMax = 256;
// The user of a server that asks for no password.
constexpr std::string_view kDefaultUser = "default";

// Good for a line of CLIENT INFO, as Redis has it.
bool IsGoodName(std::string_view name) {
  return name.size() <= kNameBytesMax &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= '!' && c <= '~'; });
}

constexpr std::string_view kBadName =
    "ERR Client names cannot contain spaces, newlines or special characters.";

constexpr std::string_view kWrongUser = "WRONGPASS invalid username-password pair or user is disabled.";

// The name of the caller, as Redis knows users.
std::string_view UserOf(const Session& session) {
  return session.caller->token.empty() ? kDefaultUser : std::string_view(session.caller->token);
}

// Without tokens any password of the default user is right: none is needed.
bool LogIn(const CommandCall& call, std::string_view user, std::string_view password) {
  if (!call.backend.gate.has_tokens()) return user == kDefaultUser;
  Session& session = call.session;
  const bool logged_in = session.visitor->LogIn(user, password);
  session.caller = session.visitor->held();
  return logged_in;
}

int WrongPassword(ReplyWriter& reply) {
  reply.Error(kWrongUser);
  return kUnknownCaller;
}

std::string InfoLine(const CommandCall& call) {
  const Session& session = call.session;
  const auto age =
      std::chrono::duration_cast<std::chrono::seconds>(call.backend.clock.Monotonic() - session.since);
  return fmt::format("id={} name={} age={} db=0 user={} resp={} lib-name={} lib-ver={}\n", session.id,
                     session.name, age.count(), UserOf(session), static_cast<int>(session.version),
                     session.library, session.library_version);
}

int SetInfo(const CommandCall& call, ReplyWriter& reply) {
  if (call.words.size() != 4)
    return Fail(reply, "ERR wrong number of arguments for 'client|setinfo' command");
  const std::string_view value = call.words[3];
  if (!IsGoodName(value))
    return Fail(reply, fmt::format("ERR {} cannot contain spaces, newlines or special characters.",
                                   Printable(call.words[2].substr(0, kNameBytesMax))));
  if (IsWord(call.words[2], "lib-name")) {
    call.session.library = value;
  } else if (IsWord(call.words[2], "lib-ver")) {
    call.session.library_version = value;
  } else {
    return Fail(reply, fmt::format("ERR Unrecognized option {}", Quoted(call.words[2])));
  }
  reply.Simple("OK");
  return kFine;
}

}  // namespace

int Ping(const CommandCall& call, ReplyWriter& reply) {
  if (call.words.size() > 2) return Fail(reply, "ERR wrong number of arguments for 'ping' command");
  if (call.words.size() == 2) {
    reply.Bulk(call.words[1]);
  } else {
    reply.Simple("PONG");
  }
  return kFine;
}

int EchoWord(const CommandCall& call, ReplyWriter& reply) {
  reply.Bulk(call.words[1]);
  return kFine;
}

int Select(const CommandCall& call, ReplyWriter& reply) {
  const auto index = ParseWhole<std::int64_t>(call.words[1]);
  if (!index) return Fail(reply, "ERR value is not an integer or out of range");
  if (*index != 0) return Fail(reply, "ERR DB index is out of range");
  reply.Simple("OK");
  return kFine;
}

int Auth(const CommandCall& call, ReplyWriter& reply) {
  if (call.words.size() > 3) return Fail(reply, "ERR syntax error");
  if (call.words.size() == 2 && !call.backend.gate.has_tokens()) {
    return Fail(reply,
                "ERR AUTH <password> called without any password configured for the default user. "
                "Are you sure your configuration is correct?");
  }
  const bool names_user = call.words.size() == 3;
  if (!LogIn(call, names_user ? call.words[1] : kDefaultUser, call.words[names_user ? 2 : 1]))
    return WrongPassword(reply);
  reply.Simple("OK");
  return kFine;
}

int Hello(const CommandCall& call, ReplyWriter& reply) {
  Version version = call.session.version;
  if (call.words.size() > 1) {
    const auto wanted = ParseWhole<std::int64_t>(call.words[1]);
    if (!wanted) return Fail(reply, "ERR Protocol version is not an integer or out of range");
    if (*wanted != 2 && *wanted != 3) return Fail(reply, "NOPROTO unsupported protocol version");
    version = *wanted == 3 ? Version::kResp3 : Version::kResp2;
  }
  // Nothing changes unless all of it is good.
  std::string name = call.session.name;
  std::optional<std::pair<std::string_view, std::string_view>> login;
  for (std::size_t at = 2; at < call.words.size();) {
    const std::size_t left = call.words.size() - at - 1;
    if (IsWord(call.words[at], "auth") && left >= 2) {
      login = {call.words[at + 1], call.words[at + 2]};
      at += 3;
    } else if (IsWord(call.words[at], "setname") && left >= 1) {
      if (!IsGoodName(call.words[at + 1])) return Fail(reply, kBadName);
      name = call.words[at + 1];
      at += 2;
    } else {
      return Fail(reply, fmt::format("ERR Syntax error in HELLO option {}", Quoted(call.words[at])));
    }
  }
  if (login && !LogIn(call, login->first, login->second)) return WrongPassword(reply);
  if (call.session.caller->roles.empty()) {
    reply.Error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH "
        "<user> <pass> option can be used to authenticate the client and select the RESP protocol version at "
        "the same time");
    return kUnknownCaller;
  }
  call.session.version = version;
  call.session.name = std::move(name);
  ReplyWriter answer(version, reply.out());
  answer.Map(7);
  answer.Bulk("server");
  answer.Bulk("leafctl");
  answer.Bulk("version");
  answer.Bulk(call.backend.options.version);
  answer.Bulk("proto");
  answer.Integer(static_cast<std::uint64_t>(version));
  answer.Bulk("id");
  answer.Integer(call.session.id);
  answer.Bulk("mode");
  answer.Bulk("standalone");
  answer.Bulk("role");
  answer.Bulk("master");
  answer.Bulk("modules");
  answer.Array(0);
  return kFine;
}

int Client(const CommandCall& call, ReplyWriter& reply) {
  const std::string_view verb = call.words[1];
  const std::size_t words = call.words.size();
  const auto ok = [&] {
    reply.Simple("OK");
    return kFine;
  };
  if (IsWord(verb, "setinfo")) return SetInfo(call, reply);
  if (IsWord(verb, "setname") && words == 3) {
    if (!IsGoodName(call.words[2])) return Fail(reply, kBadName);
    call.session.name = call.words[2];
    return ok();
  }
  if (IsWord(verb, "getname") && words == 2) {
    if (call.session.name.empty()) {
      reply.Null();
    } else {
      reply.Bulk(call.session.name);
    }
    return kFine;
  }
  if (IsWord(verb, "id") && words == 2) {
    reply.Integer(call.session.id);
    return kFine;
  }
  if (IsWord(verb, "info") && words == 2) {
    reply.Bulk(InfoLine(call));
    return kFine;
  }
  if ((IsWord(verb, "no-evict") || IsWord(verb, "no-touch")) && words == 3) {
    if (IsWord(call.words[2], "on") || IsWord(call.words[2], "off")) return ok();
    return Fail(reply, "ERR syntax error");
  }
  if (IsWord(verb, "reply") && words == 3) {
    if (IsWord(call.words[2], "on")) return ok();
    return Fail(reply, "ERR only CLIENT REPLY ON is supported: an ID whose reply is left out would be lost");
  }
  return Fail(reply, fmt::format("ERR unknown subcommand or wrong number of arguments for {} of CLIENT",
                                 Quoted(verb)));
}

}  // namespace leaf::server::resp
