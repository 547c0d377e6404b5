// leafctl status
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "daemons.h"
#include "leaf/base/duration.h"
#include "leaf/base/foreign_json.h"
#include "leaf/base/text.h"
#include "leaf/client/daemon_client.h"
#include "status_screen.h"
#include "tag_output.h"
#include "terminal.h"

namespace leaf::cmd {
namespace {

constexpr std::chrono::milliseconds kWatchInterval{2000};

struct StatusOptions {
  bool watch = false;
  bool live = false;
};

// A text of a daemon's, as a terminal may have it.
std::string Said(const Json& json, const char* name, const char* otherwise = "") {
  return Printable(json.value(name, otherwise));
}

// How far its part in the cluster protects against a database and a ZooKeeper that go back together.
std::string ClusterText(const Json& cluster) {
  if (cluster.empty()) return "";
  const auto nodes = cluster.value("nodes", std::uint64_t{0});
  std::string out = fmt::format("cluster: {}, {} node{}, incarnation {}\n", Said(cluster, "state", "?"),
                                nodes, nodes == 1 ? "" : "s", cluster.value("incarnation", std::uint64_t{0}));
  if (const std::string why = Said(cluster, "why"); !why.empty()) out += fmt::format("  {}\n", why);
  for (const Json& missing : cluster.value("missing", Json::array()))
    out += fmt::format("  missing: {}\n", missing.is_string() ? Printable(missing.get<std::string>()) : "?");
  if (const auto older = cluster.value("older_daemons", std::uint64_t{0}); older > 0) {
    out += fmt::format(
        "  {} daemon{} of a version before 0.2 issue{} IDs, too: until the last one is upgraded, IDs may "
        "repeat if the database and ZooKeeper lose data together\n",
        older, older == 1 ? "" : "s", older == 1 ? "s" : "");
  }
  return out;
}

std::string StatusText(const Json& json, const std::string& server) {
  std::string out =
      fmt::format("{}  leafctl {}  up {}  {}  fence: {}\n", server, Said(json, "version", "?"),
                  FormatDuration(std::chrono::seconds{json.value("uptime_ms", std::int64_t{0}) / 1000}),
                  json.value("ready", false) ? "ready" : "NOT READY", Said(json, "fence", "?"));
  for (const Json& reason : json.value("reasons", Json::array()))
    out += fmt::format("not ready: {}\n", Said(reason, "message"));
  for (const Json& problem : json.value("problems", Json::array())) {
    out += fmt::format("problem: {}\n", Said(problem, "message"));
    if (const std::string hint = Said(problem, "hint"); !hint.empty())
      out += fmt::format("  hint: {}\n", hint);
  }
  out += ClusterText(json.value("witness", Json::object()).value("cluster", Json::object()));
  const Json snowflake = json.value("snowflake", Json::object());
  if (snowflake.value("enabled", false)) {
    if (snowflake.contains("worker")) {
      out += fmt::format("snowflake: worker {} of {}, {}, {} ms ahead of the clock\n",
                         snowflake.value("worker", std::uint64_t{0}), Said(snowflake, "cluster", "?"),
                         Said(snowflake, "state", "?"), snowflake.value("lead_ms", std::int64_t{0}));
    } else {
      out += fmt::format("snowflake: no worker number of {} yet, {}\n", Said(snowflake, "cluster", "?"),
                         Said(snowflake, "state", "?"));
    }
    if (const std::string source = Said(snowflake, "worker_source"); source.starts_with("host name"))
      out += fmt::format("  worker number from the {}\n", source);
    if (snowflake.value("private", false))
      out += "  private cluster: these IDs are unique in this state directory only (snowflake.cluster)\n";
    if (const auto older = snowflake.value("older_peers", std::uint64_t{0}); older > 0) {
      out += fmt::format(
          "  {} peer{} of a version before 0.2: if the registry loses data, another node may get {} "
          "number{}\n",
          older, older == 1 ? " is" : "s are", older == 1 ? "its" : "their", older == 1 ? "" : "s");
    }
  }
  const Json segment = json.value("segment", Json::object());
  const Json tags = segment.value("tags", Json::array());
  std::size_t width = 3;
  for (const Json& tag : tags) width = std::max(width, Said(tag, "tag").size());
  out += fmt::format("{:<{}}  {:<7}  {:>12}  {:>10}  {:>10}  {:>12}  {:>10}  {:>8}\n", "TAG", width, "STATE",
                     "RESERVE", "STEP", "PER SECOND", "ISSUED", "WASTED", "WAITING");
  for (const Json& tag : tags) {
    out += fmt::format(
        "{:<{}}  {:<7}  {:>12}  {:>10}  {:>10.0f}  {:>12}  {:>10}  {:>8}\n", Said(tag, "tag"), width,
        StateShown(tag), tag.value("reserve", std::uint64_t{0}), tag.value("step", std::int64_t{0}),
        tag.value("rate", 0.0), tag.value("issued", std::uint64_t{0}),
        tag.value("wasted", std::uint64_t{0}) + tag.value("wasted_by_restarts", std::uint64_t{0}),
        tag.value("waiting", std::uint64_t{0}));
  }
  return out;
}

// Of one of several daemons.
std::string TableRow(const Json& json, const std::string& server, std::size_t width) {
  const Json segment = json.value("segment", Json::object());
  const Json totals = segment.value("totals", Json::object());
  const Json snowflake = json.value("snowflake", Json::object());
  return fmt::format(
      "{:<{}}  {:<11}  {:<8}  {:>8}  {:>8}  {:>10.0f}  {:>12}  {:>7}  {:>8}\n", server, width,
      json.value("ready", false) ? "ready" : "NOT READY", Said(json, "version", "?"),
      FormatDuration(std::chrono::seconds{json.value("uptime_ms", std::int64_t{0}) / 1000}),
      segment.value("tags_total", std::uint64_t{0}), totals.value("rate", 0.0),
      totals.value("reserve", std::uint64_t{0}),
      snowflake.contains("worker") ? std::to_string(snowflake.value("worker", std::uint64_t{0})) : "-",
      json.value("problems", Json::array()).size());
}

// What one of several daemons said.
struct Asked {
  std::string server;
  Result<Json> status;
};

// Whether its fields are of the kinds that a daemon of any version has written.
bool CanBeShown(const Json& json) {
  try {
    (void)StatusText(json, "");
    (void)TableRow(json, "", 0);
    StatusScreen screen({}, "");
    screen.ShowDaemon("", json);
    screen.BeginRound();
    screen.ShowOneOf("", json);
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

Result<Json> AskOne(client::DaemonClient& daemon) {
  LEAF_ASSIGN_OR_RETURN(const std::string body, daemon.Status(client::DaemonClient::StatusTags::kAll));
  Json json = ParseForeignJson<Json>(body);
  if (json.is_object() && CanBeShown(json)) return json;
  return Error{ErrorCode::kInternal,
               fmt::format("{} sent an answer that is not from leafctl", daemon.answered_by()), ""};
}

// All at once: one that does not answer does not delay the others.
std::vector<Asked> AskAll(const std::vector<std::string>& servers, std::chrono::milliseconds timeout,
                          const client::TlsSource& tls, const std::string& token) {
  std::vector<std::future<Result<Json>>> answers;
  answers.reserve(servers.size());
  for (const std::string& server : servers) {
    answers.push_back(std::async(std::launch::async, [server, timeout, tls, token] {
      client::DaemonClient daemon({server}, timeout, tls, token);
      return AskOne(daemon);
    }));
  }
  std::vector<Asked> asked;
  asked.reserve(servers.size());
  for (std::size_t i = 0; i < servers.size(); ++i) asked.push_back({servers[i], answers[i].get()});
  return asked;
}

bool IsWell(const Json& json) {
  return json.value("ready", false) && json.value("problems", Json::array()).empty();
}

std::string Health(const Json& json) {
  const std::size_t problems = json.value("problems", Json::array()).size();
  return fmt::format(
      "{}{}", json.value("ready", false) ? "ready" : "not ready",
      problems == 0 ? "" : fmt::format(", with {} problem{}", problems, problems == 1 ? "" : "s"));
}

// It does not answer, as far as can be seen from here.
bool IsSilence(const Error& error) {
  return error.code == ErrorCode::kUnreachable || error.code == ErrorCode::kUnavailable;
}

// What a command fails with because of it; one that answers that it cannot is no silence.
Error Unanswered(const client::DaemonClient& daemon, Error error) {
  if (IsSilence(error) && !daemon.was_answered()) error.code = ErrorCode::kUnreachable;
  return error;
}

// Several daemons, a line each, and what is wrong with them.
std::string TableText(const std::vector<Asked>& asked) {
  std::size_t width = 6;
  for (const Asked& one : asked) width = std::max(width, one.server.size());
  std::string out =
      fmt::format("{:<{}}  {:<11}  {:<8}  {:>8}  {:>8}  {:>10}  {:>12}  {:>7}  {:>8}\n", "SERVER", width,
                  "STATE", "VERSION", "UP", "TAGS", "PER SECOND", "RESERVE", "WORKER", "PROBLEMS");
  std::string notes;
  for (const Asked& one : asked) {
    if (!one.status.ok()) {
      out += fmt::format("{:<{}}  {}\n", one.server, width,
                         IsSilence(one.status.error()) ? "UNREACHABLE" : "NO STATUS");
      notes += fmt::format("{}: {}\n", one.server, one.status.error().message);
      continue;
    }
    const Json& json = *one.status;
    const Json problems = json.value("problems", Json::array());
    out += TableRow(json, one.server, width);
    for (const Json& reason : json.value("reasons", Json::array()))
      notes += fmt::format("{}: not ready: {}\n", one.server, Said(reason, "message"));
    for (const Json& problem : problems) {
      notes += fmt::format("{}: problem: {}\n", one.server, Said(problem, "message"));
      if (const std::string hint = Said(problem, "hint"); !hint.empty())
        notes += fmt::format("  hint: {}\n", hint);
    }
  }
  return out + notes;
}

Json TableJson(const std::vector<Asked>& asked) {
  Json servers = Json::array();
  for (const Asked& one : asked) {
    Json item{{"server", one.server}};
    if (one.status.ok()) {
      item.update(*one.status);
    } else {
      const Error& error = one.status.error();
      item["error"] = {{"code", ErrorCodeName(error.code)}, {"message", error.message}, {"hint", error.hint}};
    }
    servers.push_back(std::move(item));
  }
  return {{"servers", std::move(servers)}};
}

Result<void> ShowSeveral(CommandContext& context, const std::vector<Asked>& asked) {
  if (context.flags.json) {
    WriteJson(context, TableJson(asked));
  } else {
    context.out.Write(TableText(asked));
  }
  // One that does not answer, or not with its status, outweighs any problem of those that do: it is not known
  // what it is doing.
  std::string failed;
  std::string unhealthy;
  std::optional<Error> error;
  const auto append = [](std::string& list, const std::string& item) {
    list += (list.empty() ? "" : "; ") + item;
  };
  for (const Asked& one : asked) {
    if (!one.status.ok()) {
      append(failed, one.status.error().message);
      Error why = one.status.error();
      if (IsSilence(why)) why.code = ErrorCode::kUnreachable;
      if (!error || (why.code == ErrorCode::kUnreachable && error->code != why.code)) error = std::move(why);
    } else if (!IsWell(*one.status)) {
      append(unhealthy, fmt::format("{} is {}", one.server, Health(*one.status)));
    }
  }
  if (error) return Error{error->code, failed, error->hint};
  if (!unhealthy.empty()) return Error{ErrorCode::kUnhealthy, unhealthy, ""};
  return {};
}

Result<void> ShowOnce(CommandContext& context, client::DaemonClient& daemon) {
  auto answer = AskOne(daemon);
  if (!answer.ok()) return Unanswered(daemon, std::move(answer).error());
  const Json& json = *answer;
  if (context.flags.json) {
    WriteJson(context, json);
  } else {
    context.out.Write(StatusText(json, daemon.answered_by()));
  }
  if (IsWell(json)) return {};
  return Error{ErrorCode::kUnhealthy, fmt::format("{} is {}", daemon.answered_by(), Health(json)), ""};
}

bool WritesUtf8(const CommandContext& context) {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string value = LowerCase(context.Variable(name));
    if (!value.empty())
      return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

// Until a key or a signal ends it. A daemon that does not answer does not hold up the keys.
Result<void> WatchOnScreen(CommandContext& context, const std::vector<std::string>& servers, bool several,
                           std::chrono::milliseconds timeout, const client::TlsSource& tls,
                           const std::string& token) {
  constexpr std::chrono::milliseconds kKeyWait{100};
  constexpr std::size_t kColumnsDefault = 80;
  constexpr std::size_t kRowsDefault = 24;
  StatusScreen screen({.color = context.TellsInColor(), .utf8 = WritesUtf8(context)}, servers.front());
  std::string last = servers.front();  // which of them answered
  const auto ask = [&]() -> std::vector<Asked> {
    if (several) return AskAll(servers, timeout, tls, token);
    client::DaemonClient daemon(servers, timeout, tls, token);
    auto answer = AskOne(daemon);
    return {{answer.ok() ? daemon.answered_by() : servers.front(), std::move(answer)}};
  };
  std::future<std::vector<Asked>> asked = std::async(std::launch::async, ask);
  std::optional<FullScreen> terminal(std::in_place, context.stdin_is_terminal());
  std::string shown;
  MonotonicTime next = context.clock.Monotonic();
  while (!context.out.failed()) {
    if (asked.valid() && asked.wait_for(std::chrono::seconds{0}) == std::future_status::ready) {
      if (several) screen.BeginRound();
      for (const Asked& one : asked.get()) {
        if (!one.status.ok()) {
          screen.ShowLost(several ? one.server : last, one.status.error().message);
        } else if (several) {
          screen.ShowOneOf(one.server, *one.status);
        } else {
          last = one.server;
          screen.ShowDaemon(one.server, *one.status);
        }
      }
      next = context.clock.Monotonic() + kWatchInterval;
    }
    if (!asked.valid() && context.clock.Monotonic() >= next) asked = std::async(std::launch::async, ask);
    const Stream::Size size = context.out.TerminalSize();
    std::string frame = screen.Frame(size.columns == 0 ? kColumnsDefault : size.columns,
                                     size.rows == 0 ? kRowsDefault : size.rows);
    if (frame != shown) context.out.Write(frame);
    LEAF_RETURN_IF_ERROR(context.out.Flush());
    shown = std::move(frame);
    const std::string key = terminal->ReadKey(kKeyWait);
    // A terminal that another program has drawn on is drawn anew.
    if (key == "\x0c") shown.clear();
    if (key == "\x1a") {
      // Ctrl-Z, likewise; the shell lets it continue later.
      terminal.reset();
      std::raise(SIGTSTP);
      terminal.emplace(context.stdin_is_terminal());
      shown.clear();
    }
    if (key == "\x03") {
      // Ctrl-C ends it as elsewhere, once the terminal is as it was.
      terminal.reset();
      std::raise(SIGINT);
    }
    if (!key.empty() && !screen.Press(key)) break;
  }
  return {};
}

// For health checks: a daemon that waits for its database is not ready, and to restart it would not help.
// Wherever this configuration lets it listen.
Result<void> TellLive(CommandContext& context, const config::Resolved& resolved,
                      std::chrono::milliseconds timeout) {
  client::DaemonClient daemon(FindOwnDaemon(resolved), timeout, TlsOf(resolved));
  if (auto live = daemon.Live(); !live.ok()) return Unanswered(daemon, std::move(live).error());
  if (context.flags.json) {
    WriteJson(context, {{"server", daemon.answered_by()}, {"live", true}});
  } else {
    context.Report(fmt::format("{} answers", daemon.answered_by()));
  }
  return {};
}

Result<void> RunStatus(CommandContext& context, const StatusOptions& options) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  const std::vector<std::string> servers = FindDaemons(*resolved).servers;
  const std::chrono::milliseconds timeout = context.flags.timeout.value_or(kAskTimeout);
  LEAF_ASSIGN_OR_RETURN(const std::string token, ClientToken(*resolved));
  // Named on the command line, all are meant; configured, each stands for the others.
  const bool several =
      servers.size() > 1 && std::any_of(context.command_values.begin(), context.command_values.end(),
                                        [](const auto& value) { return value.key == "client.servers"; });
  const client::TlsSource tls = TlsOf(*resolved);
  client::DaemonClient daemon(servers, timeout, tls, token);
  if (options.live) return TellLive(context, *resolved, timeout);
  const auto show = [&] {
    return several ? ShowSeveral(context, AskAll(servers, timeout, tls, token)) : ShowOnce(context, daemon);
  };
  if (!options.watch) return show();
  if (context.out.is_terminal() && !context.flags.json && context.Variable("TERM") != "dumb")
    return WatchOnScreen(context, servers, several, timeout, tls, token);
  while (true) {
    const auto shown = show();
    LEAF_RETURN_IF_ERROR(context.out.Flush());
    // A daemon that comes and goes is what one watches for.
    if (!shown.ok()) context.Note(fmt::format("leafctl: {}", shown.error().message));
    context.clock.WaitUntil(context.clock.Monotonic() + kWatchInterval);
  }
}

}  // namespace

Run AddStatus(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<StatusOptions>();
  AddServerFlag(
      app, context,
      "Daemon to ask: http://HOST:PORT, https://HOST:PORT or unix:/PATH; with several, all are asked, a line "
      "each");
  app.add_flag("--watch", options->watch,
               "Refresh every two seconds; on a terminal, a screen with keys to sort and filter");
  app.add_flag("--live", options->live,
               "Only check that a daemon answers, ready or not; for health checks of containers")
      ->excludes("--watch");
  app.footer(
      "WASTED: IDs that were granted and that no caller will get, counted over this daemon and its "
      "earlier runs. Without --server, client.servers are tried in order until one answers. Exit code 10 "
      "if a daemon is not ready or reports a problem, 7 if none answers or a named one does not, 4 if one "
      "asks for a role that the token lacks.\n"
      "--watch on a terminal shows problems first, the rates of the last minutes, and the reserve as a bar: "
      "full "
      "is what the node wants to hold. Keys: q quits, s sorts by another column, r reverses, / filters, j "
      "and k "
      "scroll.\n"
      "Examples:\n"
      "  leafctl status\n"
      "  leafctl status --live --quiet\n"
      "  leafctl status --server http://10.0.0.1:8080 --watch");
  return [options](CommandContext& run_context) { return RunStatus(run_context, *options); };
}

}  // namespace leaf::cmd
