// The commands that tell something: of the server, of the commands, of tags and IDs.
#include <fmt/format.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <vector>

#include "leaf/base/id_text.h"
#include "leaf/base/text.h"
#include "leaf/base/time.h"
#include "leaf/server/resp/commands.h"

namespace leaf::server::resp {
namespace {

// Clients go by it for what they may say. This is the first version whose COMMAND is as here.
constexpr std::string_view kRedisVersion = "7.0.0";

// What clients and redis-benchmark ask for at their start.
constexpr auto kSettings = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"appendonly", "no"},
    {"databases", "1"},
    {"maxmemory", "0"},
    {"save", ""},
    {"timeout", "0"},
});

struct Argument {
  std::string_view name;
  bool optional = false;
};

std::vector<Argument> ArgumentsOf(const CommandSpec& command) {
  std::vector<Argument> arguments;
  for (std::string_view rest = command.arguments; !rest.empty();) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    std::string_view name = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const bool optional = name.ends_with('?');
    if (optional) name.remove_suffix(1);
    arguments.push_back({name, optional});
  }
  return arguments;
}

void WriteInfo(const CommandSpec& command, ReplyWriter& reply) {
  reply.Array(10);
  reply.Bulk(command.name);
  if (command.arity < 0) {
    reply.out() += fmt::format(":{}\r\n", command.arity);
  } else {
    reply.Integer(static_cast<std::uint64_t>(command.arity));
  }
  // Without keys a client of a cluster sends a command anywhere; with them it goes by their place.
  std::vector<std::string_view> flags;
  if (command.has_key) flags.push_back(command.writes ? "write" : "readonly");
  if (!command.in_transactions) flags.push_back("noscript");
  flags.push_back("fast");
  if (!command.has_key) flags.insert(flags.end(), {"loading", "stale"});
  reply.Array(flags.size());
  for (const std::string_view flag : flags) reply.Simple(flag);
  const std::uint64_t key = command.has_key ? 1 : 0;
  for (int i = 0; i < 3; ++i) reply.Integer(key);
  for (int i = 0; i < 4; ++i) reply.Array(0);  // categories of access, tips, key specifications, subcommands
}

void WriteDocs(const CommandSpec& command, ReplyWriter& reply) {
  const std::vector<Argument> arguments = ArgumentsOf(command);
  reply.Map(arguments.empty() ? 3 : 4);
  reply.Bulk("summary");
  reply.Bulk(command.summary);
  reply.Bulk("since");
  reply.Bulk("1.0.0");
  reply.Bulk("group");
  reply.Bulk(command.group);
  if (arguments.empty()) return;
  reply.Bulk("arguments");
  reply.Array(arguments.size());
  for (const Argument& argument : arguments) {
    reply.Map(argument.optional ? 3 : 2);
    reply.Bulk("name");
    reply.Bulk(argument.name);
    reply.Bulk("type");
    reply.Bulk(argument.name == "key" ? "key" : "string");
    if (!argument.optional) continue;
    reply.Bulk("flags");
    reply.Array(1);
    reply.Simple("optional");
  }
}

}  // namespace

int DescribeCommands(const CommandCall& call, ReplyWriter& reply) {
  const auto all = AllCommands();
  // A client asks for each command once. Without a limit a short request would have a long answer.
  if (call.words.size() > 2 + 4 * all.size()) return Fail(reply, "ERR too many names");
  if (call.words.size() == 1) {
    reply.Array(all.size());
    for (const CommandSpec& command : all) WriteInfo(command, reply);
    return kFine;
  }
  const std::string_view verb = call.words[1];
  const Words names = call.words.subspan(2);
  if (IsWord(verb, "count") && names.empty()) {
    reply.Integer(all.size());
  } else if (IsWord(verb, "list") && names.empty()) {
    reply.Array(all.size());
    for (const CommandSpec& command : all) reply.Bulk(command.name);
  } else if (IsWord(verb, "info")) {
    if (names.empty()) {
      reply.Array(all.size());
      for (const CommandSpec& command : all) WriteInfo(command, reply);
      return kFine;
    }
    reply.Array(names.size());
    for (const std::string_view name : names) {
      if (const CommandSpec* const command = FindCommand(name)) {
        WriteInfo(*command, reply);
      } else if (reply.version() == Version::kResp3) {
        reply.Null();
      } else {
        reply.out() += "*-1\r\n";
      }
    }
  } else if (IsWord(verb, "docs")) {
    std::vector<const CommandSpec*> known;
    if (names.empty()) {
      for (const CommandSpec& command : all) known.push_back(&command);
    }
    for (const std::string_view name : names) {
      if (const CommandSpec* const command = FindCommand(name)) known.push_back(command);
    }
    reply.Map(known.size());
    for (const CommandSpec* const command : known) {
      reply.Bulk(command->name);
      WriteDocs(*command, reply);
    }
  } else {
    return Fail(reply, fmt::format("ERR unknown subcommand {} of COMMAND", Quoted(verb)));
  }
  return kFine;
}

int Config(const CommandCall& call, ReplyWriter& reply) {
  if (!IsWord(call.words[1], "get") || call.words.size() < 3)
    return Fail(reply, "ERR only CONFIG GET is supported; leafctl is configured by leafctl.toml");
  std::vector<std::pair<std::string_view, std::string_view>> found;
  for (const auto& setting : kSettings) {
    const bool wanted = std::any_of(call.words.begin() + 2, call.words.end(), [&](std::string_view pattern) {
      return fnmatch(std::string(pattern).c_str(), std::string(setting.first).c_str(), FNM_CASEFOLD) == 0;
    });
    if (wanted) found.push_back(setting);
  }
  reply.Map(found.size());
  for (const auto& [name, value] : found) {
    reply.Bulk(name);
    reply.Bulk(value);
  }
  return kFine;
}

int Info(const CommandCall& call, ReplyWriter& reply) {
  const RedisBackend& backend = call.backend;
  const RequestTotals totals = backend.requests.Collect();
  const auto up =
      std::chrono::duration_cast<std::chrono::seconds>(backend.clock.Monotonic() - backend.started_at);
  std::uint64_t commands = 0;
  for (std::size_t route = 0; route < kRoutes; ++route) {
    if (!IsRedis(static_cast<Route>(route))) continue;
    for (const std::uint64_t count : totals.routes[route].requests) commands += count;
  }
  const std::vector<std::pair<std::string_view, std::string>> sections{
      {"Server", fmt::format("redis_version:{}\r\nleafctl_version:{}\r\nredis_mode:standalone\r\n"
                             "arch_bits:64\r\nprocess_id:{}\r\nuptime_in_seconds:{}\r\n",
                             kRedisVersion, backend.options.version, getpid(), up.count())},
      {"Clients", fmt::format("connected_clients:{}\r\n", totals.connections_open)},
      {"Persistence", "loading:0\r\n"},
      {"Stats", fmt::format("total_connections_received:{}\r\ntotal_commands_processed:{}\r\n",
                            totals.connections_accepted, commands)},
      {"Replication", "role:master\r\nconnected_slaves:0\r\n"},
  };
  const Words wanted = call.words.subspan(1);
  std::string text;
  for (const auto& section : sections) {
    const std::string lower = LowerCase(section.first);
    const bool shown =
        wanted.empty() || std::any_of(wanted.begin(), wanted.end(), [&](std::string_view word) {
          return IsWord(word, lower) || IsWord(word, "all") || IsWord(word, "everything") ||
                 IsWord(word, "default");
        });
    if (shown) text += fmt::format("{}# {}\r\n{}", text.empty() ? "" : "\r\n", section.first, section.second);
  }
  reply.Bulk(text);
  return kFine;
}

int Role(const CommandCall&, ReplyWriter& reply) {
  reply.Array(3);
  reply.Bulk("master");
  reply.Integer(0);
  reply.Array(0);
  return kFine;
}

int TellTime(const CommandCall& call, ReplyWriter& reply) {
  const auto now =
      std::chrono::duration_cast<std::chrono::microseconds>(call.backend.clock.Wall().time_since_epoch());
  constexpr std::int64_t kMicros = 1'000'000;
  reply.Array(2);
  reply.Bulk(fmt::format("{}", now.count() / kMicros));
  reply.Bulk(fmt::format("{}", now.count() % kMicros));
  return kFine;
}

int GetLast(const CommandCall& call, ReplyWriter& reply) {
  const Issuer& issuer = call.backend.issuer;
  const std::string_view tag = call.words[1];
  if (const auto valid = ValidateTag(tag); !valid.ok()) return Fail(reply, valid.error());
  if (const auto disabled = issuer.Disabled(IdSource::kSegment)) return Fail(reply, *disabled);
  if (const auto refused = issuer.RefuseOther()) return Fail(reply, *refused);
  if (const auto last = issuer.ids().segment()->LastIssued(tag)) {
    reply.BulkId(*last);
  } else {
    reply.Null();
  }
  return kFine;
}

int DecodeId(const CommandCall& call, ReplyWriter& reply) {
  if (const auto refused = call.backend.issuer.RefuseOther()) return Fail(reply, *refused);
  const auto id = ParseAnyId(call.words[1], std::nullopt, call.backend.options.layout.TimeSplit());
  if (!id.ok()) return Fail(reply, id.error());
  const core::IdFields fields = call.backend.options.layout.Decompose(*id);
  reply.Map(5);
  reply.Bulk("id");
  reply.BulkId(*id);
  reply.Bulk("time");
  reply.Bulk(FormatRfc3339(fields.time));
  reply.Bulk("time_ms");
  reply.Bulk(fmt::format("{}", UnixMillis(fields.time)));
  reply.Bulk("worker");
  reply.Integer(fields.worker);
  reply.Bulk("sequence");
  reply.Integer(fields.sequence);
  return kFine;
}

}  // namespace leaf::server::resp
