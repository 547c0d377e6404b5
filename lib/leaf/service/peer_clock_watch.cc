#include "leaf/service/peer_clock_watch.h"

#include <algorithm>
#include <utility>

namespace leaf::service {
namespace {

// So many are asked; with more peers a sample is as good.
constexpr std::size_t kAskedMax = 16;

}  // namespace

PeerClockWatch::PeerClockWatch(const PeerClockOptions& options, core::PeerDirectory& directory,
                               core::PeerClocks& clocks, const Clock& clock, Executor& timers,
                               Executor& worker, Logger& log)
    : options_(options),
      directory_(directory),
      clocks_(clocks),
      clock_(clock),
      timers_(timers),
      worker_(worker),
      log_(log) {}

std::optional<std::vector<core::PeerClock>> PeerClockWatch::AskAll() {
  auto peers = directory_.LivePeers();
  if (!peers.ok()) {
    log_.Debug("peers' clocks: {}", peers.error().message);
    return std::nullopt;
  }
  if (peers->size() > kAskedMax) peers->resize(kAskedMax);
  std::vector<core::PeerClock> answers = clocks_.Ask(*peers);
  const MutexLock lock(mutex_);
  status_.peers = peers->size();
  status_.answered = answers.size();
  status_.older = static_cast<std::size_t>(
      std::count_if(answers.begin(), answers.end(), [](const auto& answer) { return answer.is_older; }));
  status_.median_ahead = core::MedianAhead(answers);
  return answers;
}

Result<void> PeerClockWatch::CheckAtStart() {
  const auto answers = AskAll();
  if (!answers) {
    log_.Warning("the clock was not compared with those of the peers: the registry does not name them");
    return {};
  }
  if (const PeerClockStatus status = Status(); status.peers > 0 && status.answered == 0) {
    log_.Warning("the clock was not compared with those of the peers: none of {} answers", status.peers);
  }
  return core::JudgeAtStart(*answers, options_.threshold);
}

void PeerClockWatch::Start() {
  timers_.PostAt(clock_.Monotonic() + options_.interval, [this] { worker_.Post([this] { Round(); }); });
}

void PeerClockWatch::Round() {
  if (stopped_.load()) return;
  // An outage of the registry takes no verdict back, and makes none: a clock that was wrong stays wrong.
  if (const auto answers = AskAll()) {
    const Result<void> verdict = core::JudgeRunning(*answers, options_.threshold);
    const MutexLock lock(mutex_);
    if (!verdict.ok() && !status_.problem) log_.Error("{}", verdict.error().message);
    if (verdict.ok() && status_.problem) log_.Info("the clock agrees with those of the peers again");
    status_.problem = verdict.ok() ? std::nullopt : std::optional(verdict.error());
  }
  Start();
}

Result<void> PeerClockWatch::Verdict() const {
  const MutexLock lock(mutex_);
  return status_.problem ? Result<void>(*status_.problem) : Result<void>();
}

PeerClockStatus PeerClockWatch::Status() const {
  const MutexLock lock(mutex_);
  return status_;
}

}  // namespace leaf::service
