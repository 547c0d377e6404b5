// leafctl bench
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "commands.h"
#include "daemons.h"
#include "leaf/base/duration.h"
#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/client/daemon_client.h"
#include "leaf/client/load.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

constexpr std::size_t kConnectionsMax = 1000;

struct BenchOptions {
  std::optional<std::string> url;
  std::optional<std::string> tag;
  std::string connections = "16";
  std::string duration = "5s";
  std::string count = "1";
};

double Seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }
double Millis(std::chrono::microseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

double PerSecond(std::uint64_t number, const client::LoadReport& report) {
  const double seconds = Seconds(report.elapsed);
  return seconds > 0 ? static_cast<double>(number) / seconds : 0;
}

Json BenchJson(const client::LoadPlan& plan, std::uint64_t count, const client::LoadReport& report) {
  Json failures = Json::object();
  for (const auto& [code, number] : report.failures) failures[code] = number;
  Json latency = Json::object();
  for (const auto& [name, share] : {std::pair{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}})
    latency[name] = Millis(report.latency.AtShare(share));
  latency["max"] = Millis(report.latency.max());
  return {{"server", plan.server},
          {"connections", plan.connections},
          {"seconds", Seconds(report.elapsed)},
          {"requests", report.answers},
          {"requests_per_second", PerSecond(report.answers, report)},
          {"ids", report.answers * count},
          {"ids_per_second", PerSecond(report.answers * count, report)},
          {"failed", report.failed()},
          {"failures", std::move(failures)},
          {"latency_ms", std::move(latency)}};
}

std::string BenchText(const client::LoadPlan& plan, std::uint64_t count, const client::LoadReport& report) {
  std::string failures;
  for (const auto& [code, number] : report.failures)
    failures += fmt::format("{}{} {}", failures.empty() ? "" : ", ", number, code);
  std::string latency;
  for (const auto& [name, share] : {std::pair{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}})
    latency += fmt::format("{} {:.2f} ms  ", name, Millis(report.latency.AtShare(share)));
  return fmt::format(
      "server:       {}\n"
      "connections:  {}, for {:.1f} s\n"
      "requests:     {}, {:.0f} a second\n"
      "IDs:          {}, {:.0f} a second\n"
      "failed:       {}{}\n"
      "latency:      {}max {:.2f} ms\n",
      plan.server, plan.connections, Seconds(report.elapsed), report.answers,
      PerSecond(report.answers, report), report.answers * count, PerSecond(report.answers * count, report),
      report.failed(), failures.empty() ? "" : fmt::format(" ({})", failures), latency,
      Millis(report.latency.max()));
}

// The first daemon that answers, of those that a command would ask.
Result<std::string> ChooseServer(CommandContext& context, const std::optional<std::string>& url) {
  if (url) context.command_values.push_back({"client.servers", *url, "URL"});
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  const Daemons daemons = FindDaemons(*resolved);
  LEAF_ASSIGN_OR_RETURN(const std::string token, ClientToken(*resolved));
  client::DaemonClient daemon(daemons.servers, context.flags.timeout.value_or(kAskTimeout), TlsOf(*resolved),
                              token);
  LEAF_RETURN_IF_ERROR(daemon.WallClock());
  return daemon.answered_by();
}

Result<void> RunBench(CommandContext& context, const BenchOptions& options) {
  client::LoadPlan plan;
  LEAF_ASSIGN_OR_RETURN(plan.connections,
                        ParseUnsigned("--connections", options.connections, 1, kConnectionsMax));
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t count, ParseUnsigned("--count", options.count, 1, kNextCountMax));
  const auto duration = ParseDuration(options.duration);
  if (!duration.ok() || duration->count() == 0 || *duration > std::chrono::hours{1}) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("bad --duration {}: not a duration up to 1h, such as 5s", Quoted(options.duration)), ""};
  }
  plan.duration = *duration;
  plan.timeout = context.flags.timeout.value_or(kAskTimeout);
  if (options.tag) LEAF_RETURN_IF_ERROR(ValidateTag(*options.tag));
  plan.target = options.tag ? fmt::format("/v1/segment/{}?count={}&form=range",
                                          client::DaemonClient::PathSegment(*options.tag), count)
                            : fmt::format("/v1/snowflake?count={}&form=range", count);
  LEAF_ASSIGN_OR_RETURN(plan.server, ChooseServer(context, options.url));
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  LEAF_ASSIGN_OR_RETURN(plan.token, ClientToken(*resolved));
  plan.tls = TlsOf(*resolved);
  const bool shows_progress = context.TellsOnTerminal() && !context.flags.quiet;
  bool shown = false;
  auto report = client::RunLoad(plan, [&](const client::LoadReport& so_far) {
    if (!shows_progress) return;
    shown = true;
    (void)context.Tell(fmt::format("\r{:.0f} of {:.0f} s: {:.0f} requests a second, {} failed   ",
                                   Seconds(so_far.elapsed), Seconds(plan.duration),
                                   PerSecond(so_far.answers, so_far), so_far.failed()));
  });
  if (shown) (void)context.Tell("\r\x1b[K");
  if (!report.ok()) return std::move(report).error();
  if (context.flags.json) {
    WriteJson(context, BenchJson(plan, count, *report));
  } else {
    context.out.Write(BenchText(plan, count, *report));
  }
  return {};
}

}  // namespace

Run AddBench(CLI::App& app, CommandContext& add_context) {
  const auto options = std::make_shared<BenchOptions>();
  app.add_option("URL", options->url,
                 "Daemon to load: http://HOST:PORT, https://HOST:PORT or unix:/PATH; else client.servers")
      ->check(NotEmpty);
  app.add_option("--tag", options->tag,
                 "Take IDs of this tag, which are then used up, instead of snowflake IDs")
      ->type_name("TAG")
      ->check(NotEmpty);
  app.add_option("-c,--connections", options->connections, "Connections, each with one request at a time")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("-d,--duration", options->duration, "How long")
      ->type_name("DURATION")
      ->capture_default_str();
  app.add_option("-n,--count", options->count, "IDs of a request")->type_name("N")->capture_default_str();
  AddTrustFlags(app, add_context);
  app.footer(
      "A small load from one thread, to see what a node answers and how fast. The load runs on this machine "
      "and "
      "takes its share of it: a dedicated load generator on another machine shows more.\n"
      "Examples:\n"
      "  leafctl bench\n"
      "  leafctl bench http://10.0.0.1:8080 --tag load-test -c 64 -d 30s");
  return [options](CommandContext& context) { return RunBench(context, *options); };
}

}  // namespace leaf::cmd
