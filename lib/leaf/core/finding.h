// What a check or a daemon finds wrong, in the one form in which every command and route tells it.
#pragma once

#include <string>
#include <string_view>

namespace leaf::core {

struct Finding {
  enum class Severity {
    kProblem,  // does not work, or could lead to an ID twice
    kWarning,  // works now; an operator should know
  };
  std::string code;         // stable: "foreign-child"
  std::string subject;      // what it is about: a path, a row, a number, a tag; "" for the node as a whole
  std::string cause;        // what is wrong
  std::string consequence;  // what that means; may be ""
  std::string remedy;       // the next step; may be ""
  bool repairable = false;  // a step of the plan of `worker repair` mends it
  std::string left{};       // else why that leaves it alone; "" where it has no part in it
  Severity severity = Severity::kProblem;
};

// "problem", "warning".
constexpr std::string_view SeverityName(Finding::Severity severity) {
  return severity == Finding::Severity::kProblem ? "problem" : "warning";
}

}  // namespace leaf::core
