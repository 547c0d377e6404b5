#include "shell_word.h"

namespace leaf::cmd {
namespace {

// Stands for itself, unquoted. Bytes of other than ASCII characters do so everywhere.
bool IsPlain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
         c == '_' || c == '-' || c == '.' || c == ',' || c == '/' || c == '+' || c == '@' || c == '%' ||
         c == '=';
}

}  // namespace

BashWord ReadBashWord(std::string_view typed, std::string_view word_breaks) {
  BashWord word;
  // One that stands at the end quotes what will follow, and that is quoted anyway.
  if (std::size_t slashes = typed.size() - (typed.find_last_not_of('\\') + 1); slashes % 2 == 1)
    typed.remove_suffix(1);
  std::size_t tail = 0;
  for (std::size_t i = 0; i < typed.size(); ++i) {
    const char c = typed[i];
    const char next = i + 1 < typed.size() ? typed[i + 1] : '\0';
    if (word.quote != '\'' && c == '\\') {
      // In double quotes it quotes these only.
      const bool quotes = word.quote == 0 || std::string_view("$`\"\\").find(next) != std::string_view::npos;
      if (!quotes) word.text += c;
      if (quotes && i + 1 < typed.size()) word.text += typed[++i];
    } else if (word.quote == 0 && (c == '\'' || c == '"')) {
      word.quote = c;
      tail = i + 1;
    } else if (c == word.quote) {
      word.quote = 0;
      // Readline sees the word begin where it began before the quotes.
      tail = 0;
    } else {
      word.text += c;
      if (word.quote == 0 && c != '\'' && c != '"' && word_breaks.find(c) != std::string_view::npos)
        tail = i + 1;
    }
  }
  word.tail = std::string(typed.substr(tail));
  return word;
}

std::vector<std::string> SplitBashLine(std::string_view line) {
  std::vector<std::string> words{""};
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      if (!words.back().empty()) words.emplace_back();
      continue;
    }
    words.back() += c;
    if (c == '\\' && quote != '\'' && i + 1 < line.size()) {
      words.back() += line[++i];
    } else if (c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    }
  }
  return words;
}

std::string BashWord::Completed(std::string_view name) const {
  std::string out = tail;
  for (const char c : name.substr(text.size())) {
    if (quote == '\'') {
      if (c == '\'') {
        out += "'\\''";
        continue;
      }
    } else if (quote == '"') {
      if (c == '$' || c == '`' || c == '"' || c == '\\') out += '\\';
      // History expansion knows double quotes, and no backslash in them.
      if (c == '!') {
        out += "\"'!'\"";
        continue;
      }
    } else if (!IsPlain(c)) {
      out += '\\';
    }
    out += c;
  }
  return out;
}

}  // namespace leaf::cmd
