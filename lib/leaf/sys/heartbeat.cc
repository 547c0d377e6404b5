#include "leaf/sys/heartbeat.h"

#include <utility>

namespace leaf::sys {

void Heartbeat::Watch(std::string name, Probe probe, std::chrono::milliseconds patience) {
  sources_.push_back(
      {std::move(name), std::move(probe), patience, std::make_shared<std::atomic<bool>>(true), {}});
}

std::vector<std::string> Heartbeat::Check() {
  std::vector<std::string> stuck;
  const MonotonicTime now = clock_.Monotonic();
  for (Source& source : sources_) {
    if (!source.answered->load()) {
      if (now - source.asked_at > source.patience) stuck.push_back(source.name);
      continue;
    }
    source.asked_at = now;
    source.answered->store(false);
    source.probe([answered = source.answered] { answered->store(true); });
  }
  return stuck;
}

}  // namespace leaf::sys
