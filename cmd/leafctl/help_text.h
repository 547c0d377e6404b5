// How --help is laid out: like clap's or gh's, wrapped to the terminal.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace leaf::cmd {

// Of what is not written to a terminal, or to one that does not tell its width.
inline constexpr std::size_t kHelpWidth = 80;

// The help of `app`, whose words are `path` ("leafctl tag add"), in lines of at most `width` columns where a
// single word is no longer. An option is shown as "-o, --output FORMAT" with its values and its default
// behind its meaning. Of the footer each line is a paragraph, and one that begins with a blank stays as it
// is. Options and commands of a group without a name are hidden.
std::string HelpText(const CLI::App& app, std::string_view path, std::size_t width);

// "text, json or csv"
std::string Alternatives(const std::vector<std::string>& choices);

// One paragraph in lines of at most `width` columns. Ends with a newline.
std::string WrapText(std::string_view text, std::size_t width);

}  // namespace leaf::cmd
