#include "help_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "completion_line.h"

namespace leaf::cmd {
namespace {

constexpr std::size_t kWidthMin = 40;
constexpr std::size_t kWidthMax = 100;  // longer lines are hard to read
constexpr std::size_t kIndent = 2;
constexpr std::size_t kGap = 2;
// A name that is longer has its meaning on the next line.
constexpr std::size_t kNameMax = 26;

struct Entry {
  std::string name;
  std::string meaning;
};

// Code points: the help has no wide characters.
std::size_t Columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

// `text` from column `column` on, whose first line has `used` columns already. Ends with a newline.
std::string Wrapped(std::string_view text, std::size_t column, std::size_t used, std::size_t width) {
  std::string out(used < column ? column - used : 0, ' ');
  std::size_t at = std::max(used, column);
  bool line_begins = true;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const std::size_t columns = Columns(word);
    if (!line_begins && at + 1 + columns > width) {
      out += '\n' + std::string(column, ' ');
      at = column;
      line_begins = true;
    }
    if (!line_begins) {
      out += ' ';
      ++at;
    }
    out += word;
    at += columns;
    line_begins = false;
    begin = end + 1;
  }
  return out + '\n';
}

std::string SectionText(std::string_view heading, const std::vector<Entry>& entries, std::size_t width) {
  if (entries.empty()) return "";
  std::size_t longest = 0;
  for (const Entry& entry : entries) {
    const std::size_t columns = Columns(entry.name);
    if (columns <= kNameMax) longest = std::max(longest, columns);
  }
  const std::size_t column = kIndent + longest + kGap;
  std::string text = fmt::format("\n{}:\n", heading);
  for (const Entry& entry : entries) {
    const std::string name = std::string(kIndent, ' ') + entry.name;
    text += name;
    std::size_t used = Columns(name);
    if (used + kGap > column) {
      text += '\n';
      used = 0;
    }
    text += Wrapped(entry.meaning, column, used, width);
  }
  return text;
}

// CLI11 appends what the checks say to it: "FORMAT:{text,json}".
std::string ValueName(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return ChoicesOf(option).empty() ? type : type.substr(0, type.rfind(":{"));
}

std::string Meaning(const CLI::Option& option) {
  std::string text = option.get_description();
  const std::vector<std::string> choices = ChoicesOf(option);
  if (!choices.empty()) text += (text.empty() ? "" : ": ") + Alternatives(choices);
  if (option.get_required() && option.nonpositional()) text += " [required]";
  if (!option.get_default_str().empty()) text += fmt::format(" [default: {}]", option.get_default_str());
  return text;
}

bool IsRepeated(const CLI::Option& option) { return option.get_items_expected_max() > 1; }

// "-n, --count N"
std::string FlagName(const CLI::Option& option) {
  std::string text =
      option.get_snames().empty() ? std::string(4, ' ') : fmt::format("-{}, ", option.get_snames().front());
  text += "--" + option.get_lnames().front();
  if (option.get_items_expected_max() > 0)
    text += " " + ValueName(option) + (IsRepeated(option) ? "..." : "");
  return text;
}

std::string ArgumentName(const CLI::Option& option) {
  return option.get_name() + (IsRepeated(option) ? "..." : "");
}

std::vector<const CLI::Option*> Shown(const CLI::App& app, const std::string& group, bool arguments) {
  std::vector<const CLI::Option*> options;
  for (const CLI::Option* const option : app.get_options()) {
    if (option->get_group() == group && option->get_positional() == arguments) options.push_back(option);
  }
  return options;
}

std::vector<const CLI::App*> CommandsOf(const CLI::App& app, const std::string& group) {
  return app.get_subcommands([&](const CLI::App* command) { return command->get_group() == group; });
}

std::string UsageLine(const CLI::App& app, std::string_view path) {
  std::string usage = fmt::format("Usage: {}", path);
  if (!app.get_subcommands([](const CLI::App*) { return true; }).empty()) return usage + " [OPTIONS] COMMAND";
  for (const CLI::Option* const option : app.get_options()) {
    if (option->get_required() && option->nonpositional())
      usage += fmt::format(" --{} {}", option->get_lnames().front(), ValueName(*option));
  }
  usage += " [OPTIONS]";
  for (const CLI::Option* const option : app.get_options()) {
    if (!option->get_positional()) continue;
    usage += option->get_required() ? fmt::format(" {}", ArgumentName(*option))
                                    : fmt::format(" [{}]", ArgumentName(*option));
  }
  return usage;
}

std::string FooterText(std::string_view footer, std::size_t width) {
  std::string text;
  for (std::size_t begin = 0; begin < footer.size();) {
    const std::size_t end = std::min(footer.find('\n', begin), footer.size());
    const std::string_view line = footer.substr(begin, end - begin);
    if (line == "Examples:" && !text.empty()) text += '\n';
    text += line.starts_with(' ') ? std::string(line) + '\n' : Wrapped(line, 0, 0, width);
    begin = end + 1;
  }
  return text.empty() ? "" : '\n' + text;
}

std::size_t Readable(std::size_t width) { return std::clamp(width, kWidthMin, kWidthMax); }

}  // namespace

std::string Alternatives(const std::vector<std::string>& choices) {
  std::string text;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) text += i + 1 == choices.size() ? " or " : ", ";
    text += choices[i];
  }
  return text;
}

std::string WrapText(std::string_view text, std::size_t width) {
  return Wrapped(text, 0, 0, Readable(width));
}

std::string HelpText(const CLI::App& app, std::string_view path, std::size_t width) {
  width = Readable(width);
  std::string text = Wrapped(app.get_description(), 0, 0, width);
  text += '\n' + Wrapped(UsageLine(app, path), 0, 0, width);
  if (!app.get_aliases().empty()) text += fmt::format("Aliases: {}\n", fmt::join(app.get_aliases(), ", "));

  std::vector<std::string> command_groups;
  for (const CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string& group = command->get_group();
    if (!group.empty() &&
        std::find(command_groups.begin(), command_groups.end(), group) == command_groups.end())
      command_groups.push_back(group);
  }
  for (const std::string& group : command_groups) {
    std::vector<Entry> entries;
    for (const CLI::App* const command : CommandsOf(app, group))
      entries.push_back({command->get_name(), command->get_description()});
    text += SectionText(group, entries, width);
  }

  std::vector<Entry> arguments;
  for (const std::string& group : app.get_groups()) {
    if (group.empty()) continue;
    for (const CLI::Option* const option : Shown(app, group, true))
      arguments.push_back({ArgumentName(*option), Meaning(*option)});
  }
  text += SectionText("Arguments", arguments, width);
  for (const std::string& group : app.get_groups()) {
    if (group.empty()) continue;
    std::vector<Entry> flags;
    for (const CLI::Option* const option : Shown(app, group, false))
      flags.push_back({FlagName(*option), Meaning(*option)});
    text += SectionText(group, flags, width);
  }
  return text + FooterText(app.get_footer(), width);
}

}  // namespace leaf::cmd
