#include "leaf/core/peer_clocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "leaf/base/duration.h"

namespace leaf::core {
namespace {

using std::chrono::milliseconds;

milliseconds Magnitude(milliseconds duration) { return duration < milliseconds{0} ? -duration : duration; }

milliseconds CertainlyAhead(const PeerClock& answer) {
  const milliseconds certain = std::max(Magnitude(answer.ahead) - answer.uncertainty, milliseconds{0});
  return answer.ahead < milliseconds{0} ? -certain : certain;
}

std::vector<milliseconds> Sorted(std::span<const PeerClock> answers) {
  std::vector<milliseconds> ahead;
  ahead.reserve(answers.size());
  for (const PeerClock& answer : answers) ahead.push_back(CertainlyAhead(answer));
  std::sort(ahead.begin(), ahead.end());
  return ahead;
}

Error Disagreement(std::span<const PeerClock> answers, milliseconds ahead, milliseconds threshold) {
  constexpr std::size_t kNamed = 5;
  std::string each;
  for (std::size_t i = 0; i < std::min(kNamed, answers.size()); ++i) {
    const PeerClock& answer = answers[i];
    each += fmt::format("{}{} {}{}", i == 0 ? "" : ", ", answer.address,
                        answer.ahead < milliseconds{0} ? "-" : "+", FormatDuration(Magnitude(answer.ahead)));
  }
  if (answers.size() > kNamed) each += fmt::format(" and {} more", answers.size() - kNamed);
  return {ErrorCode::kClock,
          fmt::format("this clock is {} {} those of its peers, and at most {} are tolerated ({})",
                      FormatDuration(Magnitude(ahead)), ahead < milliseconds{0} ? "ahead of" : "behind",
                      FormatDuration(threshold), each),
          "correct the clock (check NTP on this machine and on the peers), or raise "
          "snowflake.peer_clock_threshold"};
}

}  // namespace

milliseconds MedianAhead(std::span<const PeerClock> answers) {
  if (answers.empty()) return milliseconds{0};
  const std::vector<milliseconds> ahead = Sorted(answers);
  const milliseconds upper = ahead[ahead.size() / 2];
  const milliseconds lower = ahead[(ahead.size() - 1) / 2];
  return Magnitude(lower) < Magnitude(upper) ? lower : upper;
}

Result<void> JudgeAtStart(std::span<const PeerClock> answers, milliseconds threshold) {
  const milliseconds ahead = MedianAhead(answers);
  if (Magnitude(ahead) <= threshold) return {};
  return Disagreement(answers, ahead, threshold);
}

Result<void> JudgeRunning(std::span<const PeerClock> answers, milliseconds threshold) {
  const std::vector<milliseconds> ahead = Sorted(answers);
  const auto beyond = static_cast<std::size_t>(
      std::count_if(ahead.begin(), ahead.end(), [&](milliseconds each) { return each > threshold; }));
  const auto below = static_cast<std::size_t>(
      std::count_if(ahead.begin(), ahead.end(), [&](milliseconds each) { return each < -threshold; }));
  const std::size_t clocks = answers.size() + 1;
  if (const std::size_t most = std::max(beyond, below); most < 2 || most * 2 <= clocks) return {};
  return Disagreement(answers, MedianAhead(answers), threshold);
}

}  // namespace leaf::core
