#include "status_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include "leaf/base/duration.h"
#include "leaf/base/text.h"
#include "text_width.h"

namespace leaf::cmd {
namespace {

constexpr std::size_t kRatesKept = 60;  // two minutes
constexpr std::size_t kBarCells = 10;
// Of a name that is longer, the end is cut.
constexpr std::size_t kNameWidthMax = 32;
constexpr std::size_t kSparkCells = 20;

constexpr const char* kRed = "31";
constexpr const char* kGreen = "32";
constexpr const char* kYellow = "33";
constexpr const char* kBold = "1";
constexpr const char* kFaint = "2";

constexpr std::array<std::string_view, 8> kSparks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array<std::string_view, 8> kAsciiSparks{"_", ".", ":", "-", "=", "+", "*", "#"};

// What fits in `columns`. Sequences that color take no column.
std::string CutLine(std::string_view text, std::size_t columns) {
  std::string out;
  std::size_t left = columns;
  while (!text.empty()) {
    if (text.front() == '\x1b') {
      const std::size_t end = std::min(text.find('m'), text.size() - 1) + 1;
      out += text.substr(0, end);
      text.remove_prefix(end);
      continue;
    }
    const std::string_view plain = text.substr(0, text.find('\x1b'));
    const std::size_t used = std::min(DisplayColumns(plain), left);
    out += used == left ? FittedTo(plain, used) : std::string(plain);
    left -= used;
    text.remove_prefix(plain.size());
  }
  return out;
}

std::string UpTime(const Json& status) {
  return FormatDuration(std::chrono::seconds{status.value("uptime_ms", std::int64_t{0}) / 1000});
}

}  // namespace

std::string StateShown(const Json& tag) {
  const std::string state = tag.value("state", "");
  const bool calm = state == "active" || state == "idle";
  return calm && tag.value("order", "") == "strict" ? "strict" : Printable(state);
}

std::string_view StatusScreen::NameOf(Sort sort) {
  switch (sort) {
    case Sort::kName:
      return "name";
    case Sort::kRate:
      return "rate";
    case Sort::kReserve:
      return "reserve";
    case Sort::kWaiting:
      return "waiting";
    case Sort::kWasted:
      break;
  }
  return "wasted";
}

std::string StatusScreen::Colored(std::string_view text, const char* code) const {
  return look_.color ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

void StatusScreen::AddProblems(const std::string& prefix, const Json& status) {
  const auto add = [&](std::string_view kind, const Json& list) {
    for (const Json& item : list) {
      problems_.push_back(fmt::format("{}{}: {}", prefix, kind, Printable(item.value("message", ""))));
      if (const std::string hint = item.value("hint", ""); !hint.empty())
        problems_.push_back(fmt::format("  hint: {}", Printable(hint)));
    }
  };
  add("not ready", status.value("reasons", Json::array()));
  add("problem", status.value("problems", Json::array()));
}

void StatusScreen::AddRow(Row row) {
  std::deque<double>& rates = rates_[row.name];
  rates.push_back(row.rate);
  if (rates.size() > kRatesKept) rates.pop_front();
  rows_.push_back(std::move(row));
}

void StatusScreen::ShowDaemon(const std::string& server, const Json& status) {
  problems_.clear();
  rows_.clear();
  const bool ready = status.value("ready", false);
  head_ = fmt::format("{}  leafctl {}  up {}  {}  fence: {}", Printable(server),
                      Printable(status.value("version", "?")), UpTime(status),
                      ready ? Colored("ready", kGreen) : Colored("NOT READY", kRed),
                      Printable(status.value("fence", "?")));
  AddProblems("", status);
  const Json snowflake = status.value("snowflake", Json::object());
  detail_.clear();
  if (snowflake.value("enabled", false)) {
    const std::string source = snowflake.value("worker_source", "");
    const std::string cluster = Printable(snowflake.value("cluster", "?"));
    const std::string state = Printable(snowflake.value("state", "?"));
    detail_ =
        snowflake.contains("worker")
            ? fmt::format("snowflake: worker {}{} of {}, {}, {} ms ahead of the clock",
                          snowflake.value("worker", std::uint64_t{0}),
                          source.starts_with("host name") ? fmt::format(" ({})", Printable(source)) : "",
                          cluster, state, snowflake.value("lead_ms", std::int64_t{0}))
            : fmt::format("snowflake: no worker number of {} yet, {}", cluster, state);
  }
  for (const Json& tag : status.value("segment", Json::object()).value("tags", Json::array())) {
    AddRow(
        {.name = Printable(tag.value("tag", "")),
         .state = StateShown(tag),
         .rate = tag.value("rate", 0.0),
         .reserve = tag.value("reserve", std::uint64_t{0}),
         .full = std::max({tag.value("reserve_target", std::uint64_t{0}), tag.value("step", std::uint64_t{0}),
                           tag.value("table_step", std::uint64_t{0}), std::uint64_t{1}}),
         .issued = tag.value("issued", std::uint64_t{0}),
         .wasted = tag.value("wasted", std::uint64_t{0}) + tag.value("wasted_by_restarts", std::uint64_t{0}),
         .waiting = tag.value("waiting", std::uint64_t{0})});
  }
}

void StatusScreen::BeginRound() {
  problems_.clear();
  rows_.clear();
  head_ = "several daemons";
  detail_.clear();
}

void StatusScreen::ShowOneOf(const std::string& server, const Json& status) {
  AddProblems(server + ": ", status);
  const Json segment = status.value("segment", Json::object());
  const Json totals = segment.value("totals", Json::object());
  AddRow({.name = Printable(server),
          .state = status.value("ready", false) ? "ready" : "NOT READY",
          .rate = totals.value("rate", 0.0),
          .reserve = totals.value("reserve", std::uint64_t{0}),
          .issued = totals.value("issued", std::uint64_t{0}),
          .wasted = totals.value("wasted", std::uint64_t{0}),
          .waiting = totals.value("waiting", std::uint64_t{0})});
}

void StatusScreen::ShowLost(const std::string& server, std::string_view why) {
  if (head_ != "several daemons") {
    problems_.clear();
    head_ = fmt::format("{}  {}", Printable(server), Colored("no answer", kRed));
    if (!rows_.empty()) detail_ = "below: what it said last";
  }
  problems_.push_back(Printable(why));
}

bool StatusScreen::Press(std::string_view key) {
  if (!typing_ && key == "q") return false;
  if (typing_) {
    if (key == "\r" || key == "\n") {
      typing_ = false;
    } else if (key == "\x1b") {
      typing_ = false;
      filter_.clear();
    } else if (key == "\x7f" || key == "\b") {
      while (!filter_.empty() && (static_cast<unsigned char>(filter_.back()) & 0xc0) == 0x80)
        filter_.pop_back();
      if (!filter_.empty()) filter_.pop_back();
    } else if (key.front() != '\x1b' && static_cast<unsigned char>(key.front()) >= ' ') {
      filter_ += key;
    }
    top_ = 0;
    return true;
  }
  if (key == "/") {
    typing_ = true;
    filter_.clear();
  } else if (key == "\x1b") {
    filter_.clear();
  } else if (key == "s") {
    sort_ = static_cast<Sort>((static_cast<int>(sort_) + 1) % (static_cast<int>(Sort::kWasted) + 1));
    // What is largest is looked for, but names are read from A on.
    reverse_ = sort_ != Sort::kName;
  } else if (key == "r") {
    reverse_ = !reverse_;
  } else if (key == "j" || key == "\x1b[B") {
    ++top_;
  } else if (key == "k" || key == "\x1b[A") {
    top_ -= std::min<std::size_t>(top_, 1);
  } else if (key == " " || key == "\x1b[6~") {
    top_ += page_;
  } else if (key == "b" || key == "\x1b[5~") {
    top_ -= std::min(top_, page_);
  }
  return true;
}

std::vector<const StatusScreen::Row*> StatusScreen::Chosen() const {
  std::vector<const Row*> chosen;
  for (const Row& row : rows_) {
    if (row.name.find(filter_) != std::string::npos) chosen.push_back(&row);
  }
  std::sort(chosen.begin(), chosen.end(), [](const Row* a, const Row* b) { return a->name < b->name; });
  const auto value = [this](const Row* row) -> double {
    switch (sort_) {
      case Sort::kName:
        return 0;
      case Sort::kRate:
        return row->rate;
      case Sort::kReserve:
        return static_cast<double>(row->reserve);
      case Sort::kWaiting:
        return static_cast<double>(row->waiting);
      case Sort::kWasted:
        break;
    }
    return static_cast<double>(row->wasted);
  };
  // Equal ones stay in the order of their names, whichever way they are sorted.
  if (sort_ == Sort::kName) {
    if (reverse_) std::reverse(chosen.begin(), chosen.end());
  } else {
    std::stable_sort(chosen.begin(), chosen.end(), [&](const Row* a, const Row* b) {
      return reverse_ ? value(a) > value(b) : value(a) < value(b);
    });
  }
  return chosen;
}

// The rates so far, each as high as its share of the largest of them.
std::string StatusScreen::Spark(const std::string& name) const {
  constexpr std::size_t cells = kSparkCells;
  const auto found = rates_.find(name);
  if (found == rates_.end()) return std::string(cells, ' ');
  const std::deque<double>& rates = found->second;
  const std::size_t shown = std::min(cells, rates.size());
  const auto begin = rates.end() - static_cast<std::ptrdiff_t>(shown);
  const double largest = *std::max_element(begin, rates.end());
  std::string text(cells - shown, ' ');
  for (auto rate = begin; rate != rates.end(); ++rate) {
    const double share = largest > 0 ? std::max(*rate, 0.0) / largest : 0;
    const auto level = std::min<std::size_t>(7, static_cast<std::size_t>(std::lround(share * 7)));
    text += look_.utf8 ? kSparks[level] : kAsciiSparks[level];
  }
  return text;
}

// As on the dashboard: full is what the node wants to hold, and no less than a grant.
std::string StatusScreen::Bar(const Row& row) const {
  if (row.full == 0) return std::string(kBarCells, ' ');
  const double share = static_cast<double>(row.reserve) / static_cast<double>(row.full);
  const auto filled = std::min<std::size_t>(
      kBarCells, static_cast<std::size_t>(std::ceil(share * static_cast<double>(kBarCells))));
  std::string text;
  for (std::size_t cell = 0; cell < kBarCells; ++cell)
    text += cell < filled ? (look_.utf8 ? "█" : "#") : (look_.utf8 ? "░" : ".");
  return Colored(text, filled <= 1 ? kRed : filled <= 3 ? kYellow : kGreen);
}

// A row's cells, or the headings if there is no row, as far as they have a place: a number is shown whole or
// not at all. What is said first stays longest.
std::string StatusScreen::Line(const Row* row, std::size_t name_width, std::size_t columns) const {
  const auto number = [](std::uint64_t value) { return std::to_string(value); };
  const bool calm = row != nullptr && (row->state == "ready" || row->state == "idle" ||
                                       row->state == "active" || row->state == "strict");
  struct Cell {
    int rank;  // which of them is given up last
    std::size_t width;
    std::string text;  // as wide as that
  };
  const auto right = [](std::string_view text, std::size_t width) { return RightIn(text, width); };
  std::vector<Cell> cells{
      {1, 9, row == nullptr ? FittedTo("STATE", 9) : Colored(FittedTo(row->state, 9), calm ? "0" : kYellow)},
      {0, 9, right(row == nullptr ? "A SECOND" : fmt::format("{:.0f}", row->rate), 9)},
      {6, kSparkCells, row == nullptr ? FittedTo("", kSparkCells) : Spark(row->name)},
      {2, 13, right(row == nullptr ? "RESERVE" : number(row->reserve), 13)},
      {3, kBarCells, row == nullptr ? FittedTo("", kBarCells) : Bar(*row)},
      {5, 13, right(row == nullptr ? "ISSUED" : number(row->issued), 13)},
      {7, 11, right(row == nullptr ? "WASTED" : number(row->wasted), 11)},
      {4, 7, right(row == nullptr ? "WAITING" : number(row->waiting), 7)},
  };
  const auto total = [&] {
    std::size_t sum = name_width;
    for (const Cell& cell : cells) sum += 1 + cell.width;
    return sum;
  };
  while (!cells.empty() && total() > columns) {
    cells.erase(std::max_element(cells.begin(), cells.end(),
                                 [](const Cell& a, const Cell& b) { return a.rank < b.rank; }));
  }
  std::string line = FittedTo(row == nullptr ? std::string("NAME") : row->name, name_width);
  for (const Cell& cell : cells) line += ' ' + cell.text;
  return line;
}

std::string StatusScreen::Frame(std::size_t columns, std::size_t rows) {
  const std::vector<const Row*> chosen = Chosen();
  std::size_t width = 4;
  for (const Row* row : chosen) width = std::max(width, std::min(DisplayColumns(row->name), kNameWidthMax));
  std::vector<std::string> lines;
  lines.push_back(Colored(head_, kBold));
  // Never so many that the rows have no place.
  const std::size_t problems_max = std::max<std::size_t>(rows / 2, 1);
  for (std::size_t i = 0; i < problems_.size(); ++i) {
    if (i + 1 == problems_max && problems_.size() > problems_max) {
      lines.push_back(Colored(fmt::format("and {} more", problems_.size() - i), kRed));
      break;
    }
    lines.push_back(Colored(problems_[i], kRed));
  }
  if (!detail_.empty()) lines.push_back(detail_);
  lines.push_back(Colored(Line(nullptr, width, columns), kBold));
  page_ = rows > lines.size() + 2 ? rows - lines.size() - 2 : 1;
  top_ = std::min(top_, chosen.size() > page_ ? chosen.size() - page_ : 0);
  for (std::size_t i = top_; i < std::min(chosen.size(), top_ + page_); ++i)
    lines.push_back(Line(chosen[i], width, columns));
  std::string place = fmt::format("{} of {}", chosen.size(), rows_.size());
  if (chosen.size() > page_) place += fmt::format(", from {} on", top_ + 1);
  while (lines.size() + 1 < rows) lines.emplace_back();
  lines.push_back(
      Colored(typing_ ? fmt::format("filter: {}_   Enter keeps it, Esc removes it", Printable(filter_))
                      : fmt::format("{}  sort: {}{}{}   q quit  s sort  r reverse  / filter  j k scroll",
                                    place, NameOf(sort_), reverse_ ? ", largest first" : "",
                                    filter_.empty() ? "" : fmt::format("  filter: {}", Printable(filter_))),
              kFaint));
  lines.resize(std::min(lines.size(), rows));
  std::string frame = "\x1b[H";
  for (std::size_t i = 0; i < lines.size(); ++i)
    frame += CutLine(lines[i], columns) + "\x1b[K" + (i + 1 < lines.size() ? "\n" : "");
  return frame + "\x1b[J";
}

}  // namespace leaf::cmd
