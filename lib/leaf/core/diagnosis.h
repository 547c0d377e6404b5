// What a check of `leafctl doctor` found, whatever it looked at.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace leaf::core {

struct Diagnosis {
  enum class Level {
    kOk,
    kWarning,  // works now; somebody should know
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

// "ok", "warning", "problem".
constexpr std::string_view DiagnosisLevelName(Diagnosis::Level level) {
  switch (level) {
    case Diagnosis::Level::kOk:
      return "ok";
    case Diagnosis::Level::kWarning:
      return "warning";
    case Diagnosis::Level::kProblem:
      return "problem";
  }
  return "";
}

}  // namespace leaf::core
