// leafctl __complete: the names of tags, for the scripts that `leafctl completion` writes. Hidden.
//
// Never fails, never says anything on stderr, never makes a file, waits a second for each server at most.
#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "daemons.h"
#include "leaf/base/text.h"
#include "leaf/client/daemon_client.h"
#include "shell_word.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

constexpr std::chrono::milliseconds kCompleteTimeout{1000};
// More than a user reads.
constexpr std::size_t kNamesMax = 1000;

struct CompleteOptions {
  std::string form = "plain";      // of the answer, and of the words
  std::string word_breaks;         // bash's COMP_WORDBREAKS
  std::vector<std::string> words;  // of the command line, up to the cursor; the last one is completed
};

// Takes from the unfinished command line what decides whose tags are meant. Everything else is none of our
// business: it may be wrong, or not be there yet.
void UseFlagsOf(const std::vector<std::string>& words, CommandContext& context) {
  for (std::size_t i = 1; i + 1 < words.size(); ++i) {
    const std::size_t equals = std::min(words[i].find('='), words[i].size());
    const std::string name = words[i].substr(0, equals);
    if (name != "--config" && name != "--state-dir" && name != "--set" && name != "--server") continue;
    if (equals == words[i].size() && i + 2 >= words.size()) break;
    const std::string value = equals < words[i].size() ? words[i].substr(equals + 1) : words[++i];
    if (name == "--config") context.flags.config_file = value;
    if (name == "--state-dir") context.flags.state_dir = value;
    if (name == "--set") context.flags.sets.push_back(value);
    if (name == "--server") context.command_values.push_back({"client.servers", value, "--server"});
  }
}

Result<std::vector<std::string>> TagsOfStore(CommandContext& context) {
  LEAF_ASSIGN_OR_RETURN(const auto store, Store::Open(context, Store::Access::kExamine));
  LEAF_ASSIGN_OR_RETURN(const auto rows, store->segments().List());
  std::vector<std::string> tags;
  tags.reserve(rows.size());
  for (const core::TagRow& row : rows) tags.push_back(row.tag);
  return tags;
}

Result<std::vector<std::string>> TagsOfDaemon(CommandContext& context) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  client::DaemonClient daemon(FindDaemons(*resolved).servers, *context.flags.timeout);
  LEAF_ASSIGN_OR_RETURN(const std::string body, daemon.Status(client::DaemonClient::StatusTags::kAll));
  const Json json = Json::parse(body, nullptr, false);
  std::vector<std::string> tags;
  if (!json.is_object() || !json.contains("segment") || !json["segment"].contains("tags")) return tags;
  for (const Json& tag : json["segment"]["tags"]) tags.push_back(tag.value("tag", ""));
  return tags;
}

Result<void> RunComplete(CommandContext& context, const CompleteOptions& options) {
  if (options.words.empty()) return {};
  std::vector<std::string> words = options.words;
  std::optional<BashWord> typed;
  if (options.form == "bash") {
    typed = ReadBashWord(words.back(), options.word_breaks);
    for (std::string& word : words) word = ReadBashWord(word, "").text;
  }
  context.flags.quiet = true;
  context.flags.no_input = true;
  context.flags.timeout = kCompleteTimeout;
  UseFlagsOf(words, context);

  // With --server it is that daemon's tags. Else the store knows all of them, if it can be looked at from
  // here.
  std::set<std::string> names;
  const auto add = [&](const Result<std::vector<std::string>>& tags) {
    if (tags.ok()) names.insert(tags->begin(), tags->end());
  };
  const bool named = !context.command_values.empty();
  add(named ? TagsOfDaemon(context) : TagsOfStore(context));
  if (names.empty() && !named) add(TagsOfDaemon(context));

  std::size_t count = 0;
  for (const std::string& name : names) {
    // A line each: a tag that was not added by leafctl may have any name.
    if (!ValidateTag(name).ok() || !name.starts_with(words.back())) continue;
    if (++count > kNamesMax) break;
    context.out.Write((typed ? typed->Completed(name) : name) + "\n");
  }
  return {};
}

}  // namespace

Run AddComplete(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<CompleteOptions>();
  app.group("");
  app.add_option("--form", options->form)->check(CLI::IsMember({"plain", "bash"}));
  app.add_option("--word-breaks", options->word_breaks);
  app.add_option("WORDS", options->words);
  return [options](CommandContext& context) { return RunComplete(context, *options); };
}

}  // namespace leaf::cmd
