// What a check of `leafctl doctor` found, whatever it looked at.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace leaf::inspect {

struct Diagnosis {
  enum class Level {
    kOk,
    kWarning,  // works now; the operator should know
    kProblem,  // does not work, or could lead to an ID twice
  };
  std::string check;  // stable: "tag-step"
  Level level = Level::kOk;
  std::string found;      // one line
  std::string cause;      // why it matters; "" if ok
  std::string remedy;     // "" if ok
  std::string subject{};  // as that of a finding

  static Diagnosis Ok(std::string check, std::string found) {
    return {std::move(check), Level::kOk, std::move(found), "", "", ""};
  }
};

using Level = Diagnosis::Level;

// "ok", "warning", "problem".
constexpr std::string_view DiagnosisLevelName(Level level) {
  return level == Level::kOk ? "ok" : level == Level::kWarning ? "warning" : "problem";
}

}  // namespace leaf::inspect
