// Which memory orders of the code under test are needed: without one of these, a scenario breaks a promise.
#pragma once

#include <fmt/format.h>

#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/memory_model.h"

namespace leaf::model {

// "PART of SOURCE LINE", as a person finds it; of lines that are the same, the second is "... (2)".
class OrderNames {
 public:
  // `folder`: where the code under test lies.
  explicit OrderNames(std::string folder) : folder_(std::move(folder)) {}
  std::string operator()(const Weakening& order) {
    const std::vector<std::string>& lines = LinesOf(order.file);
    const std::string& line = lines.at(order.line - 1);
    int same = 1;
    for (unsigned i = 0; i + 1 < order.line; ++i) same += lines[i] == line ? 1 : 0;
    return fmt::format("{} of {}{}", ToString(order.part), line, same == 1 ? "" : fmt::format(" ({})", same));
  }

 private:
  const std::vector<std::string>& LinesOf(const std::string& file) {
    std::vector<std::string>& lines = lines_[file];
    if (!lines.empty()) return lines;
    std::ifstream source(folder_ + "/" + file);
    for (std::string line; std::getline(source, line);) {
      const std::size_t begin = line.find_first_not_of(' ');
      lines.push_back(begin == std::string::npos ? "" : line.substr(begin));
    }
    return lines;
  }

  const std::string folder_;
  std::map<std::string, std::vector<std::string>> lines_;
};

// Of each order that one of the scenarios runs: the violation that taking it away leads to, "" if there is
// none.
template <typename World>
std::map<std::string, std::string> ViolationsWithoutOrders(const std::vector<Scenario<World>>& scenarios,
                                                           const std::string& folder) {
  OrderNames name_of(folder);
  std::map<std::string, std::string> violations;
  for (const Scenario<World>& scenario : scenarios) {
    for (const Weakening& order : Explore(scenario).orders) {
      std::string& violation = violations[name_of(order)];
      if (violation.empty()) violation = Explore(scenario, &order).violation;
    }
  }
  return violations;
}

}  // namespace leaf::model
