// leafctl status
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "commands.h"
#include "daemons.h"
#include "leaf/base/duration.h"
#include "leaf/client/daemon_client.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

constexpr std::chrono::milliseconds kTimeoutDefault{5000};
constexpr std::chrono::milliseconds kWatchInterval{2000};

struct Options {
  bool watch = false;
};

std::string Text(const Json& json, const std::string& server) {
  std::string out =
      fmt::format("{}  leafctl {}  up {}  {}  fence: {}\n", server, json.value("version", "?"),
                  FormatDuration(std::chrono::seconds{json.value("uptime_ms", std::int64_t{0}) / 1000}),
                  json.value("ready", false) ? "ready" : "NOT READY", json.value("fence", "?"));
  for (const Json& reason : json.value("reasons", Json::array()))
    out += fmt::format("not ready: {}\n", reason.value("message", ""));
  for (const Json& problem : json.value("problems", Json::array())) {
    out += fmt::format("problem: {}\n", problem.value("message", ""));
    if (const std::string hint = problem.value("hint", ""); !hint.empty())
      out += fmt::format("  hint: {}\n", hint);
  }
  const Json snowflake = json.value("snowflake", Json::object());
  if (snowflake.value("enabled", false)) {
    out += fmt::format("snowflake: worker {} of {}, {}, {} ms ahead of the clock\n",
                       snowflake.value("worker", std::uint64_t{0}), snowflake.value("cluster", "?"),
                       snowflake.value("state", "?"), snowflake.value("lead_ms", std::int64_t{0}));
  }
  const Json segment = json.value("segment", Json::object());
  const Json tags = segment.value("tags", Json::array());
  std::size_t width = 3;
  for (const Json& tag : tags) width = std::max(width, tag.value("tag", "").size());
  out += fmt::format("{:<{}}  {:<7}  {:>12}  {:>10}  {:>10}  {:>12}  {:>10}  {:>8}\n", "TAG", width, "STATE",
                     "RESERVE", "STEP", "PER SECOND", "ISSUED", "WASTED", "WAITING");
  for (const Json& tag : tags) {
    out += fmt::format(
        "{:<{}}  {:<7}  {:>12}  {:>10}  {:>10.0f}  {:>12}  {:>10}  {:>8}\n", tag.value("tag", ""), width,
        tag.value("state", ""), tag.value("reserve", std::uint64_t{0}), tag.value("step", std::int64_t{0}),
        tag.value("rate", 0.0), tag.value("issued", std::uint64_t{0}),
        tag.value("wasted", std::uint64_t{0}) + tag.value("wasted_by_restarts", std::uint64_t{0}),
        tag.value("waiting", std::uint64_t{0}));
  }
  return out;
}

Result<void> ShowOnce(CommandContext& context, client::DaemonClient& daemon) {
  LEAF_ASSIGN_OR_RETURN(const std::string body, daemon.Status());
  const Json json = Json::parse(body, nullptr, false);
  if (!json.is_object())
    return Error{ErrorCode::kInternal,
                 fmt::format("{} gave an answer that is not leafctl's", daemon.answered_by()), ""};
  if (context.flags.json) {
    WriteJson(context, json);
  } else {
    context.out.Write(Text(json, daemon.answered_by()));
  }
  const std::size_t problems = json.value("problems", Json::array()).size();
  const bool ready = json.value("ready", false);
  if (ready && problems == 0) return {};
  return Error{
      ErrorCode::kUnhealthy,
      fmt::format(
          "{} is {}{}", daemon.answered_by(), ready ? "ready" : "not ready",
          problems == 0 ? "" : fmt::format(", with {} problem{}", problems, problems == 1 ? "" : "s")),
      ""};
}

Result<void> RunStatus(CommandContext& context, const Options& options) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  client::DaemonClient daemon(FindDaemons(*resolved).servers,
                              context.flags.timeout.value_or(kTimeoutDefault));
  if (!options.watch) return ShowOnce(context, daemon);
  while (true) {
    if (context.out.is_terminal() && !context.flags.json) context.out.Write("\x1b[H\x1b[2J");
    const auto shown = ShowOnce(context, daemon);
    LEAF_RETURN_IF_ERROR(context.out.Flush());
    // A daemon that comes and goes is what one watches for.
    if (!shown.ok()) context.Note(fmt::format("leafctl: {}", shown.error().message));
    context.clock.WaitUntil(context.clock.Monotonic() + kWatchInterval);
  }
}

}  // namespace

Run AddStatus(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<Options>();
  AddServerFlag(app, context, "Daemon to ask: http://HOST:PORT or unix:/PATH; several are tried in order");
  app.add_flag("--watch", options->watch, "Show again every two seconds, until interrupted");
  app.footer(
      "WASTED: IDs granted that nobody will get, by this daemon and by restarts before it.\n"
      "Exit code 10 if the daemon is not ready or has a problem, 7 if none answers.");
  return [options](CommandContext& run_context) { return RunStatus(run_context, *options); };
}

}  // namespace leaf::cmd
