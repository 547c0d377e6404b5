// The screen of `leafctl status --watch` on a terminal: what it shows of the answers so far, and what keys
// do. Draws text only; the terminal itself is in terminal.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tag_output.h"

namespace leaf::cmd {

// The state of a tag in a status document, for people: a strict tag holds no reserve by intention, which is
// said where all is well.
std::string StateShown(const Json& tag);

class StatusScreen {
 public:
  struct Look {
    bool color = false;
    bool utf8 = false;  // else sparklines and bars are drawn with ASCII
  };
  // `asked`: what is shown until there is an answer.
  StatusScreen(Look look, const std::string& asked) : look_(look), head_("asking " + asked) {}

  // One daemon: what it said (the body of /v1/status), or why it did not. A row is a tag.
  void ShowDaemon(const std::string& server, const Json& status);
  // Several: a row is a daemon, and each call is one of them, after BeginRound.
  void BeginRound();
  void ShowOneOf(const std::string& server, const Json& status);
  // A daemon that does not answer: `why` is a problem, and its rows stay as they were.
  void ShowLost(const std::string& server, std::string_view why);

  // A key, as the terminal sends it. False if it ends the watching.
  bool Press(std::string_view key);

  // All of it, in `rows` lines of at most `columns` characters, to be written from the upper left corner.
  std::string Frame(std::size_t columns, std::size_t rows);

 private:
  enum class Sort { kName, kRate, kReserve, kWaiting, kWasted };
  struct Row {
    std::string name;
    std::string state;
    double rate = 0;
    std::uint64_t reserve = 0;
    std::uint64_t full = 0;  // the reserve that the node wants to hold, or a grant if that is more; 0: no bar
    std::uint64_t issued = 0;
    std::uint64_t wasted = 0;
    std::uint64_t waiting = 0;
  };

  static std::string_view NameOf(Sort sort);
  void AddProblems(const std::string& prefix, const Json& status);
  void AddRow(Row row);
  std::vector<const Row*> Chosen() const;
  std::string Line(const Row* row, std::size_t name_width, std::size_t columns) const;
  std::string Spark(const std::string& name) const;
  std::string Bar(const Row& row) const;
  std::string Colored(std::string_view text, const char* code) const;

  const Look look_;
  std::string head_;
  std::string detail_;  // below the head: the snowflake worker
  std::vector<std::string> problems_;
  std::vector<Row> rows_;
  std::map<std::string, std::deque<double>> rates_;  // by row, the newest last

  Sort sort_ = Sort::kName;
  bool reverse_ = false;
  bool typing_ = false;  // a filter
  std::string filter_;
  std::size_t top_ = 0;  // the first row shown
  std::size_t page_ = 1;
};

}  // namespace leaf::cmd
