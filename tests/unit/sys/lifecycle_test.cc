// What the daemon's main thread is made of: the service manager's protocols, the heartbeat, the reload.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "leaf/base/limits.h"
#include "leaf/config/keys.h"
#include "leaf/config/loader.h"
#include "leaf/config/reload.h"
#include "leaf/core/peak_rate.h"
#include "leaf/sys/file.h"
#include "leaf/sys/heartbeat.h"
#include "leaf/sys/service_manager.h"
#include "leaf/sys/signals.h"
#include "leaf/sys/system_clock.h"
#include "leaf/sys/thread_pool.h"
#include "support/fakes.h"
#include "support/temp_dir.h"

namespace leaf {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Strings = std::vector<std::string>;

sys::ServiceManager ManagerOf(const std::map<std::string, std::string>& variables) {
  return sys::ServiceManager([&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
  });
}

// The other end of $NOTIFY_SOCKET.
class NotifySocket {
 public:
  explicit NotifySocket(const std::string& name) : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    if (name[0] == '@') address.sun_path[0] = '\0';
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  }
  std::string Receive() const {
    char buffer[4096];
    const ssize_t size = recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    return size < 0 ? "" : std::string(buffer, static_cast<std::size_t>(size));
  }

 private:
  sys::FileHandle socket_;
};

TEST(ServiceManager, SaysItsPiecesInOneDatagramEach) {
  const testing::TempDir dir;
  for (const std::string& name : {dir.path() + "/notify", fmt::format("@leafctl-test-{}", getpid())}) {
    const NotifySocket socket(name);
    const auto manager = ManagerOf({{"NOTIFY_SOCKET", name}});
    EXPECT_TRUE(manager.is_listening());
    manager.Status("waiting\nfor the database");
    EXPECT_EQ(socket.Receive(), "STATUS=waiting for the database\n");
    manager.Ready("ok");
    EXPECT_EQ(socket.Receive(), "READY=1\nSTATUS=ok\n");
    manager.Reloading(MonotonicTime{milliseconds{1234567}});
    EXPECT_EQ(socket.Receive(), "RELOADING=1\nMONOTONIC_USEC=1234567000\n");
    manager.Watchdog();
    EXPECT_EQ(socket.Receive(), "WATCHDOG=1\n");
    manager.Stopping("draining", std::chrono::seconds{3});
    EXPECT_EQ(socket.Receive(), "STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=3000000\n");
    EXPECT_EQ(socket.Receive(), "");
  }
}

TEST(ServiceManager, WithoutAManagerNothingFails) {
  ManagerOf({}).Ready("ok");
  ManagerOf({{"NOTIFY_SOCKET", "/nonexistent/notify"}}).Ready("ok");
  ManagerOf({{"NOTIFY_SOCKET", "relative"}}).Ready("ok");
  ManagerOf({{"NOTIFY_SOCKET", "/" + std::string(500, 'x')}}).Ready("ok");
  EXPECT_FALSE(ManagerOf({}).is_listening());
}

TEST(ServiceManager, TheWatchdogIsOursOrNot) {
  const std::string me = std::to_string(getpid());
  using std::chrono::microseconds;
  EXPECT_EQ(ManagerOf({{"WATCHDOG_USEC", "3000"}}).watchdog_time(), microseconds{3000});
  EXPECT_EQ(ManagerOf({{"WATCHDOG_USEC", "3000"}, {"WATCHDOG_PID", me}}).watchdog_time(), microseconds{3000});
  for (const auto& variables :
       std::vector<std::map<std::string, std::string>>{{},
                                                       {{"WATCHDOG_USEC", "0"}},
                                                       {{"WATCHDOG_USEC", "-1"}},
                                                       {{"WATCHDOG_USEC", "3s"}},
                                                       {{"WATCHDOG_USEC", "3000"}, {"WATCHDOG_PID", "1"}}}) {
    EXPECT_FALSE(ManagerOf(variables).watchdog_time().has_value());
  }
}

// In a child, whose descriptors 3 and up are ours to choose. Returns what `check` returned there.
template <typename Check>
int InChildWithSockets(const Strings& kinds, const Check& check) {
  const pid_t child = fork();
  if (child == 0) {
    int next = 3;
    for (const std::string& kind : kinds) {
      const int family = kind.starts_with("unix") ? AF_UNIX : AF_INET;
      const int made = socket(family, kind == "udp" ? SOCK_DGRAM : SOCK_STREAM, 0);
      if (made != next) dup2(made, next), close(made);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
      if (family == AF_INET && bind(next, generic, sizeof address) != 0) _exit(99);
      const sa_family_t unix_family = AF_UNIX;  // an address without a name: the kernel picks one
      if (family == AF_UNIX &&
          bind(next, reinterpret_cast<const sockaddr*>(&unix_family), sizeof unix_family) != 0)
        _exit(98);
      if (kind != "udp" && kind != "deaf" && listen(next, 1) != 0) _exit(97);
      ++next;
    }
    _exit(check());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::map<std::string, std::string> ListenVariables(int count, const std::string& names) {
  return {{"LISTEN_PID", std::to_string(getpid())},
          {"LISTEN_FDS", std::to_string(count)},
          {"LISTEN_FDNAMES", names}};
}

TEST(ServiceManager, TakesPassedSocketsInAnyOrder) {
  for (const bool unix_first : {false, true}) {
    const Strings kinds = unix_first ? Strings{"unix", "tcp"} : Strings{"tcp", "unix"};
    EXPECT_EQ(InChildWithSockets(kinds,
                                 [&] {
                                   auto manager = ManagerOf(ListenVariables(2, "one:two"));
                                   const auto sockets = manager.TakeSockets();
                                   if (!sockets.ok() || sockets->size() != 2) return 1;
                                   const auto& [first, second] = std::tie((*sockets)[0], (*sockets)[1]);
                                   if (first.is_unix != unix_first || second.is_unix == unix_first) return 2;
                                   if (first.fd != 3 || second.fd != 4) return 3;
                                   if (first.name != "one" || second.name != "two") return 4;
                                   if ((fcntl(3, F_GETFD) & FD_CLOEXEC) == 0) return 5;
                                   if ((fcntl(4, F_GETFL) & O_NONBLOCK) == 0) return 6;
                                   return manager.TakeSockets()->empty() ? 0 : 7;  // once
                                 }),
              0);
  }
}

TEST(ServiceManager, RefusesWhatIsNoListeningStreamSocket) {
  for (const char* kind : {"udp", "deaf"}) {
    EXPECT_EQ(InChildWithSockets({"tcp", kind},
                                 [&] {
                                   const auto sockets = ManagerOf(ListenVariables(2, "a:b")).TakeSockets();
                                   return !sockets.ok() && sockets.error().code == ErrorCode::kConfig &&
                                                  sockets.error().message.find("(b)") != std::string::npos
                                              ? 0
                                              : 1;
                                 }),
              0)
        << kind;
  }
  EXPECT_EQ(
      InChildWithSockets({}, [] { return ManagerOf(ListenVariables(-1, "")).TakeSockets().ok() ? 1 : 0; }),
      0);
}

TEST(ServiceManager, SocketsOfAnotherProcessAreNotOurs) {
  auto variables = ListenVariables(5, "");
  variables["LISTEN_PID"] = "1";
  EXPECT_TRUE(ManagerOf(variables).TakeSockets()->empty());
  EXPECT_TRUE(ManagerOf({{"LISTEN_FDS", "5"}}).TakeSockets()->empty());
  EXPECT_TRUE(ManagerOf({}).TakeSockets()->empty());
}

TEST(ServiceManager, KnowsTheJournalByItsFile) {
  struct stat status {};
  ASSERT_EQ(fstat(STDERR_FILENO, &status), 0);
  EXPECT_TRUE(sys::StderrIsJournal(fmt::format("{}:{}", status.st_dev, status.st_ino)));
  EXPECT_FALSE(sys::StderrIsJournal(fmt::format("{}:{}", status.st_dev, status.st_ino + 1)));
  EXPECT_FALSE(sys::StderrIsJournal(""));
}

TEST(Heartbeat, NamesWhatDoesNotAnswerInTime) {
  testing::FakeClock clock;
  sys::Heartbeat heartbeat(clock);
  std::map<std::string, Executor::Task> asked;
  const auto source = [&](const std::string& name) {
    return [&asked, name](Executor::Task done) { asked[name] = std::move(done); };
  };
  heartbeat.Watch("quick", source("quick"), seconds{1});
  heartbeat.Watch("slow", source("slow"), seconds{10});
  EXPECT_TRUE(heartbeat.Check().empty());
  clock.Advance(seconds{2});
  EXPECT_EQ(heartbeat.Check(), Strings{"quick"});
  clock.Advance(seconds{9});
  EXPECT_EQ(heartbeat.Check(), (Strings{"quick", "slow"}));
  asked["quick"]();
  EXPECT_EQ(heartbeat.Check(), Strings{"slow"});
  // The one that answered was asked again at once.
  clock.Advance(seconds{2});
  EXPECT_EQ(heartbeat.Check(), (Strings{"quick", "slow"}));
  asked["quick"]();
  asked["slow"]();
  EXPECT_TRUE(heartbeat.Check().empty());
}

// Has no deadline of its own: the test run's ends a wait that never does.
void Await(const std::atomic<bool>& flag) {
  while (!flag.load()) std::this_thread::yield();
}

TEST(ThreadPool, AProbeReturnsOnceEveryThreadHasComeRound) {
  const sys::SystemClock clock;
  sys::ThreadPool pool("probe", 3, clock);
  for (int i = 0; i < 100; ++i) {
    std::atomic<bool> done{false};
    pool.Probe([&] { done.store(true); });
    Await(done);
  }
  // One thread hangs: the others answer, and the probe does not.
  std::promise<void> release;
  std::atomic<bool> hangs{false};
  pool.Post([&, released = release.get_future().share()] {
    hangs.store(true);
    released.wait();
  });
  Await(hangs);
  std::atomic<bool> all{false};
  pool.Probe([&] { all.store(true); });
  for (int i = 0; i < 50; ++i) {
    std::atomic<bool> worked{false};
    pool.Post([&] { worked.store(true); });
    Await(worked);
  }
  EXPECT_FALSE(all.load());
  release.set_value();
  Await(all);
}

TEST(Reload, TakesOverWhatItMayAndNamesTheRest) {
  config::LoadInput input;
  input.environment = {{"HOME", "/nonexistent"}};
  const config::Config before = config::Load(input)->config;
  input.flags = {{"log.level", "debug", "test"},
                 {"server.max_requests_per_second", "500", "test"},
                 {"segment.refresh_interval", "5s", "test"},
                 {"server.threads", "7", "test"},
                 {"segment.store", "mysql", "test"}};
  const config::Config after = config::Load(input)->config;
  const config::Reload reload = config::PlanReload(before, after);
  EXPECT_EQ(reload.changed, (Strings{"server.max_requests_per_second = 500",
                                     "segment.refresh_interval = \"5s\"", "log.level = \"debug\""}));
  EXPECT_EQ(reload.restart_for, (Strings{"server.threads", "segment.store"}));
  EXPECT_EQ(reload.config.log.level, "debug");
  EXPECT_EQ(reload.config.server.max_requests_per_second, 500);
  EXPECT_EQ(reload.config.segment.refresh_interval, seconds{5});
  EXPECT_EQ(reload.config.server.threads, before.server.threads);
  EXPECT_EQ(reload.config.segment.store, "sqlite");
  const config::Reload again = config::PlanReload(reload.config, after);
  EXPECT_TRUE(again.changed.empty());
  EXPECT_EQ(again.restart_for.size(), 2U);
}

TEST(Reload, TakesOtherFilesForTlsButDoesNotSwitchIt) {
  const auto with = [](const std::string& certificate, const std::string& key) {
    config::LoadInput input;
    input.environment = {{"HOME", "/nonexistent"}};
    input.flags = {{"server.tls_cert", certificate, "test"}, {"server.tls_key", key, "test"}};
    return config::Load(input)->config;
  };
  const config::Reload other = config::PlanReload(with("/a.pem", "/a.key"), with("/b.pem", "/a.key"));
  EXPECT_EQ(other.changed, Strings{"server.tls_cert = \"/b.pem\""});
  for (const auto& [before, after] : {std::pair{with("", ""), with("/a.pem", "/a.key")},
                                      std::pair{with("/a.pem", "/a.key"), with("", "")}}) {
    const config::Reload reload = config::PlanReload(before, after);
    EXPECT_TRUE(reload.changed.empty());
    EXPECT_EQ(reload.restart_for, (Strings{"server.tls_cert", "server.tls_key"}));
    EXPECT_EQ(reload.config.server.tls_cert, before.server.tls_cert);
  }
}

TEST(Reload, EveryReloadableKeyIsOne) {
  int reloadable = 0;
  for (const config::Key& key : config::Keys()) reloadable += config::IsReloadable(key.name) ? 1 : 0;
  EXPECT_EQ(reloadable, 22);
  EXPECT_FALSE(config::IsReloadable("state_dir"));
}

TEST(PeakRate, IsTheHighestThatLasted) {
  core::PeakRate peak;
  MonotonicTime now{};
  std::uint64_t issued = 0;
  const auto pass = [&](int seconds_of_it, std::uint64_t per_second) {
    for (int i = 0; i < seconds_of_it; ++i) {
      now += seconds{1};
      issued += per_second;
      peak.Observe(issued, now);
    }
  };
  peak.Observe(0, now);
  pass(5, 100);
  EXPECT_DOUBLE_EQ(peak.ids_per_second(), 100);
  pass(1, 50'000);  // one batch
  pass(3, 0);
  EXPECT_DOUBLE_EQ(peak.ids_per_second(), 100);
  pass(3, 700);
  pass(1000, 10);
  EXPECT_DOUBLE_EQ(peak.ids_per_second(), 700);
  EXPECT_EQ(core::AdvisedStep(peak.ids_per_second()), 420'000);
  EXPECT_EQ(core::AdvisedStep(0), 0);
  EXPECT_EQ(core::AdvisedStep(0.0001), 1);
  EXPECT_EQ(core::AdvisedStep(1e12), kStepMax);
}

}  // namespace
}  // namespace leaf
