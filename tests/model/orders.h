// Which memory orders of the code under test are needed: without one of these, a scenario breaks a promise.
// Each of the others has to have a reason, in a table that is compared with what the scenarios show.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/memory_model.h"

namespace leaf::model {

// The source of the code under test.
class Sources {
 public:
  // `folder`: where `files` lie.
  Sources(const std::string& folder, const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      std::ifstream source(folder + "/" + file);
      for (std::string line; std::getline(source, line);) lines_[file].push_back(line);
    }
  }

  // "FUNCTION: PART of OPERATION", as in "TakeOne: acquire of limit_.load"; "... (2)" for the second such
  // operation of a function.
  std::string NameOf(const Weakening& order) const {
    const std::vector<std::string>& lines = lines_.at(order.file);
    std::size_t line = order.line - 1;
    const std::size_t open = lines.at(line).find('(', order.column - 1);
    const std::string operation = lines[line].substr(0, open);
    const std::size_t before = operation.find_last_of(" !(");
    const std::string call = operation.substr(before + 1) + "(";
    std::ptrdiff_t nth = 1 + Count(operation, call);
    while (line > 0 && lines[line].find(order.function + "(") == std::string::npos)
      nth += Count(lines[--line], call);
    return fmt::format("{}: {} of {}{}", order.function, ToString(order.part),
                       call.substr(0, call.size() - 1), nth == 1 ? "" : fmt::format(" ({})", nth));
  }

  // The statements with an order that is not among those that were `run`.
  std::vector<std::string> NotRun(const std::vector<Weakening>& run) const {
    std::vector<std::string> statements;
    for (const auto& [file, lines] : lines_) {
      std::string statement;
      unsigned first = 1;
      for (unsigned number = 1; number <= lines.size(); ++number) {
        std::string code = lines[number - 1].substr(0, lines[number - 1].find("//"));
        code.erase(0, code.find_first_not_of(' '));
        statement += code;
        if (code.empty() || std::string_view(";{}").find(code.back()) == std::string_view::npos) continue;
        const auto ran = std::ranges::count_if(run, [&](const Weakening& order) {
          return order.file == file && first <= order.line && order.line <= number;
        });
        if (ran < OrdersIn(statement)) statements.push_back(fmt::format("{}:{}: {}", file, first, statement));
        statement.clear();
        first = number + 1;
      }
    }
    return statements;
  }

 private:
  static std::ptrdiff_t Count(std::string_view text, std::string_view what) {
    std::ptrdiff_t found = 0;
    for (std::size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1))
      ++found;
    return found;
  }
  static std::ptrdiff_t OrdersIn(std::string_view statement) {
    return Count(statement, "memory_order_acquire") + Count(statement, "memory_order_release") +
           2 * Count(statement, "memory_order_acq_rel") + Count(statement, "memory_order_seq_cst");
  }

  std::map<std::string, std::vector<std::string>> lines_;  // of each file
};

// Why an order is there that no scenario needs, by its name.
using Reasons = std::map<std::string, std::string>;

struct OrderFindings {
  std::map<std::string, std::string> needed;   // by its name: the violation that comes without it
  std::map<std::string, Weakening> explained;  // by its name: it has a reason, and no scenario needs it
  std::vector<std::string> wrong;              // sentences; none if all is well
};

// What a scenario shows to be needed though it has a reason, as sentences.
template <typename World>
std::vector<std::string> StaleReasons(const Scenario<World>& scenario,
                                      const std::map<std::string, Weakening>& explained) {
  std::vector<Weakening> all;
  for (const auto& [name, order] : explained) all.push_back(order);
  // All of them at once: this has the runs without each, and shows that no two of them lean on each other.
  const std::string together = Explore(scenario, all).violation;
  if (together.empty()) return {};
  std::vector<std::string> stale;
  for (const auto& [name, order] : explained) {
    const std::string alone = Explore(scenario, {order}).violation;
    if (!alone.empty()) stale.push_back(fmt::format("has a reason, but is needed ({}): {}", alone, name));
  }
  if (stale.empty()) stale.push_back(fmt::format("reasons that do not hold together: {}", together));
  return stale;
}

// Takes away the orders that the scenarios run, one at a time, and those that have a reason all at once.
template <typename World>
OrderFindings CheckOrders(const std::vector<Scenario<World>>& scenarios, const Sources& sources,
                          const Reasons& reasons) {
  OrderFindings findings;
  std::map<std::string, Weakening> orders;
  std::vector<Weakening> run;
  std::map<Weakening, std::vector<const Scenario<World>*>> run_by;
  for (const Scenario<World>& scenario : scenarios) {
    const Report report = Explore(scenario);
    if (!report.violation.empty()) {
      findings.wrong = {
          fmt::format("a promise is broken with all orders: {}\n{}", report.violation, report.trace)};
      return findings;
    }
    for (const Weakening& order : report.orders) {
      const auto& [at, is_new] = orders.try_emplace(sources.NameOf(order), order);
      if (is_new) run.push_back(order);
      if (at->second != order) findings.wrong.push_back("is the name of two orders: " + at->first);
      run_by[order].push_back(&scenario);
    }
  }
  for (const auto& [name, order] : orders) {
    if (reasons.contains(name)) {
      findings.explained.emplace(name, order);
      continue;
    }
    std::string violation;
    for (const Scenario<World>* scenario : run_by[order])
      if (violation.empty()) violation = Explore(*scenario, {order}).violation;
    if (violation.empty()) {
      findings.wrong.push_back("no scenario needs it, and it has no reason: " + name);
    } else {
      findings.needed.emplace(name, violation);
    }
  }
  std::vector<std::string> stale;
  for (const Scenario<World>& scenario : scenarios)
    if (stale.empty()) stale = StaleReasons(scenario, findings.explained);
  findings.wrong.insert(findings.wrong.end(), stale.begin(), stale.end());
  for (const auto& [name, reason] : reasons)
    if (!orders.contains(name)) findings.wrong.push_back("has a reason, but is not there: " + name);
  for (const std::string& statement : sources.NotRun(run))
    findings.wrong.push_back("no scenario runs it: " + statement);
  return findings;
}

}  // namespace leaf::model
