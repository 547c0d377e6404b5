// leafctl tag advise
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>

#include "commands.h"
#include "daemons.h"
#include "leaf/base/foreign_json.h"
#include "leaf/base/text.h"
#include "leaf/client/daemon_client.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

struct TagAdviseOptions {
  std::string tag;
};

std::string AdviceText(const Json& json) {
  const auto number = [&](const char* name) -> std::string {
    const Json value = json.value(name, Json());
    return value.is_number() ? fmt::format("{:.1f}", value.get<double>()) : "-";
  };
  const auto whole = [&](const char* name) -> std::string {
    const Json value = json.value(name, Json());
    return value.is_number_integer() ? fmt::format("{}", value.get<std::int64_t>()) : "-";
  };
  return fmt::format(
      "{:<14}{}\n{:<14}{}\n{:<14}{}\n{:<14}{} IDs a second\n{:<14}{} IDs a second\n{:<14}{} IDs, {} s at the "
      "peak\n"
      "{:<14}{}\n",
      "tag:", json.value("tag", ""), "step:", whole("step"), "advised step:", whole("advised_step"),
      "rate:", number("rate"), "peak rate:", number("peak_rate"), "reserve:", whole("reserve"),
      number("reserve_s"), "why:", json.value("why", ""));
}

Result<void> RunTagAdvise(CommandContext& context, const TagAdviseOptions& options) {
  LEAF_RETURN_IF_ERROR(ValidateTag(options.tag));
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  LEAF_ASSIGN_OR_RETURN(const std::string token, ClientToken(*resolved));
  client::DaemonClient daemon(FindDaemons(*resolved).servers, context.flags.timeout.value_or(kAskTimeout),
                              TlsOf(*resolved), token);
  LEAF_ASSIGN_OR_RETURN(const std::string body, daemon.Advice(options.tag));
  const Json json = ParseForeignJson<Json>(body);
  const auto is_step = [](const Json& step) {
    return !step.is_number() || (step.is_number_integer() && step >= Json(1) && step <= Json(kStepMax));
  };
  if (!json.is_object() || json.value("tag", Json()) != Json(options.tag) ||
      !json.value("why", Json("")).is_string() || !is_step(json.value("advised_step", Json()))) {
    return Error{ErrorCode::kInternal,
                 fmt::format("{} sent an answer that is not from leafctl", daemon.answered_by()), ""};
  }
  if (context.flags.json) {
    WriteJson(context, json);
    return {};
  }
  context.out.Write(AdviceText(json));
  const Json advised = json.value("advised_step", Json());
  if (advised.is_number_integer() && advised != json.value("step", Json()))
    context.Note("hint: " +
                 TagCommand("set", options.tag, fmt::format("--step {}", advised.get<std::int64_t>())));
  return {};
}

}  // namespace

Run AddTagAdvise(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<TagAdviseOptions>();
  app.add_option("TAG", options->tag, "The tag")->required();
  AddServerFlag(app, context, kServerMeaning);
  app.footer(
      "A step should last ten minutes at the highest rate (Leaf's rule: 600 times the peak). The rate is "
      "the highest that one daemon has seen since its start, over a second or more. With several daemons, "
      "ask each and take the largest step.\n"
      "Examples:\n"
      "  leafctl tag advise pay");
  return [options](CommandContext& run_context) { return RunTagAdvise(run_context, *options); };
}

}  // namespace leaf::cmd
