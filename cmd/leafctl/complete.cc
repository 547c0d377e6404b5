// leafctl __complete: what the end of a line can be, for the scripts of `leafctl completion`. Hidden.
//
// Never fails, never says anything on stderr, never makes a file, waits a second for each server at most.
//
// The first line is the kind of the answer. Files and directories are for the shell to find, keys get no
// blank after them. Each line more is a candidate; zsh and fish get its meaning, if it has one, after a tab.
// They match in other ways than by the beginning, and get all that may stand there. bash gets what readline
// has to put in. Scripts of the first versions ask for the names of tags alone, and get no kind.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "completion_line.h"
#include "daemons.h"
#include "leaf/base/foreign_json.h"
#include "leaf/base/text.h"
#include "leaf/client/daemon_client.h"
#include "shell_word.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {
namespace {

constexpr std::chrono::milliseconds kCompleteTimeout{1000};
// More than a user reads.
constexpr std::size_t kCandidatesMax = 1000;

struct CompleteOptions {
  std::string shell;               // "": a script of the first versions
  std::string form = "plain";      // what that one says instead: "bash" for bash
  std::string word_breaks;         // bash's COMP_WORDBREAKS
  std::vector<std::string> words;  // of the line, up to the cursor; with --line bash the line itself
  std::optional<BashWord> typed;   // the last word, of bash
  Completion completion;
};

void ReadTypedLine(const CLI::App& root, CompleteOptions& options) {
  std::vector<std::string>& words = options.words;
  if (words.empty()) return;
  if (options.shell == "bash") words = SplitBashLine(words.front());
  if (options.shell == "bash" || options.form == "bash") {
    options.typed = ReadBashWord(words.back(), options.word_breaks);
    for (std::string& word : words) word = ReadBashWord(word, "").text;
  }
  options.completion = options.shell.empty() ? Completion{"tags", {}, ""} : CompleteLine(root, words);
}

// Takes from the unfinished command line what decides whose tags are meant. Everything else is none of our
// business: it may be wrong, or not be there yet.
void UseFlagsOf(const std::vector<std::string>& words, CommandContext& context) {
  for (std::size_t i = 1; i + 1 < words.size(); ++i) {
    const std::size_t equals = std::min(words[i].find('='), words[i].size());
    const std::string name = words[i].substr(0, equals);
    constexpr std::array<std::pair<std::string_view, const char*>, 4> kKeys{{{"--server", "client.servers"},
                                                                             {"--ca", "client.ca"},
                                                                             {"--cert", "client.cert"},
                                                                             {"--key", "client.key"}}};
    const auto* const key =
        std::find_if(kKeys.begin(), kKeys.end(), [&](const auto& known) { return known.first == name; });
    if (name != "--config" && name != "--state-dir" && name != "--set" && key == kKeys.end()) continue;
    if (equals == words[i].size() && i + 2 >= words.size()) break;
    const std::string value = equals < words[i].size() ? words[i].substr(equals + 1) : words[++i];
    if (name == "--config") context.flags.config_file = value;
    if (name == "--state-dir") context.flags.state_dir = value;
    if (name == "--set") context.flags.sets.push_back(value);
    if (key != kKeys.end()) context.command_values.push_back({key->second, value, name});
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
  LEAF_ASSIGN_OR_RETURN(const std::string token, ClientToken(*resolved));
  client::DaemonClient daemon(FindDaemons(*resolved).servers, *context.flags.timeout, TlsOf(*resolved),
                              token);
  LEAF_ASSIGN_OR_RETURN(const std::string body, daemon.Status(client::DaemonClient::StatusTags::kAll));
  const Json json = ParseForeignJson<Json>(body);
  std::vector<std::string> tags;
  try {
    for (const Json& tag : json.at("segment").at("tags")) tags.push_back(tag.value("tag", ""));
  } catch (const Json::exception&) {  // no answer of a daemon, or one without segment mode
    tags.clear();
  }
  return tags;
}

// Those that this line means: with --server that daemon's. Else the store knows all of them, if it can be
// looked at from here.
std::set<std::string> TagNames(const std::vector<std::string>& words, CommandContext& context) {
  context.flags.quiet = true;
  context.flags.no_input = true;
  context.flags.timeout = kCompleteTimeout;
  UseFlagsOf(words, context);
  std::set<std::string> names;
  const auto add = [&](const Result<std::vector<std::string>>& tags) {
    if (tags.ok()) names.insert(tags->begin(), tags->end());
  };
  const bool named = !context.command_values.empty();
  add(named ? TagsOfDaemon(context) : TagsOfStore(context));
  if (names.empty() && !named) add(TagsOfDaemon(context));
  // A line each: a tag that was not added by leafctl may have any name.
  std::erase_if(names, [](const std::string& name) { return !ValidateTag(name).ok(); });
  return names;
}

Result<void> RunComplete(CommandContext& context, const CompleteOptions& options) {
  const auto& [kind, known, before] = options.completion;
  if (options.words.empty()) return {};
  if (!options.shell.empty()) context.out.Write(std::string(kind) + "\n");
  std::vector<Completion::Candidate> candidates = known;
  if (kind == "tags") {
    for (const std::string& name : TagNames(options.words, context)) candidates.push_back({name, ""});
  }
  const bool all = !options.shell.empty() && !options.typed;
  std::size_t count = 0;
  for (const auto& [word, meaning] : candidates) {
    const std::string whole = before + word;
    if (!all && !whole.starts_with(options.words.back())) continue;
    if (++count > kCandidatesMax) break;
    context.out.Write((options.typed ? options.typed->Completed(whole) : whole) +
                      (all && !meaning.empty() ? "\t" + meaning : "") + "\n");
  }
  return {};
}

}  // namespace

Run AddComplete(CLI::App& app, CommandContext&) {
  const auto options = std::make_shared<CompleteOptions>();
  app.group("");
  app.add_option("--line", options->shell)->check(CLI::IsMember({"bash", "zsh", "fish"}));
  app.add_option("--form", options->form)->check(CLI::IsMember({"plain", "bash"}));
  app.add_option("--word-breaks", options->word_breaks);
  app.add_option("WORDS", options->words);
  // Here, as the parser is gone when the command runs.
  app.callback([&app, options] { ReadTypedLine(*app.get_parent(), *options); });
  return [options](CommandContext& context) { return RunComplete(context, *options); };
}

}  // namespace leaf::cmd
