#include "leaf/client/clock_probe.h"

#include <system_error>
#include <thread>

#include "leaf/client/daemon_client.h"

namespace leaf::client {
namespace {

std::optional<ClockReading> ReadClock(const std::string& url, std::chrono::milliseconds timeout,
                                      const Clock& clock, const TlsSource& tls) {
  using std::chrono::milliseconds;
  DaemonClient client({url}, timeout, tls);
  const WallTime wall = clock.Wall();
  const MonotonicTime asked = clock.Monotonic();
  const auto answer = client.WallClock();
  if (!answer.ok()) return std::nullopt;
  // Somewhere in that time the peer looked at its clock; the wall clock may step meanwhile, the other one
  // does not.
  const auto took = std::chrono::ceil<milliseconds>(clock.Monotonic() - asked);
  return ClockReading{answer->time - (wall + took / 2), took / 2 + milliseconds{1}, answer->version};
}

}  // namespace

std::vector<std::optional<ClockReading>> ReadClocks(const std::vector<std::string>& urls,
                                                    std::chrono::milliseconds timeout, const Clock& clock,
                                                    const TlsSource& tls) {
  std::vector<std::optional<ClockReading>> readings(urls.size());
  std::vector<std::thread> threads;
  threads.reserve(urls.size());
  for (std::size_t i = 0; i < urls.size(); ++i) {
    try {
      threads.emplace_back([&, i] { readings[i] = ReadClock(urls[i], timeout, clock, tls); });
    } catch (const std::system_error&) {
      break;  // no more threads for this process: the rest is not read this time
    }
  }
  for (std::thread& thread : threads) thread.join();
  return readings;
}

}  // namespace leaf::client
