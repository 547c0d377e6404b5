// The registries and the session on the real ZooKeeper that LEAF_ZK_CONNECT names
// (support/with_zookeeper.sh). Time is a fake one for the registries, so that nothing waits for leases;
// sessions have the real one.
#include <arpa/inet.h>
#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#define THREADED  // the library's blocking calls
#include <zookeeper/zookeeper.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "contract/worker_registry_contract.h"
#include "leaf/sys/system_clock.h"
#include "leaf/zookeeper/fixed_registry.h"
#include "leaf/zookeeper/lease_registry.h"
#include "leaf/zookeeper/session.h"
#include "support/zookeeper_fakes.h"

namespace {
// If set, a session gets its password only after it has connected, and after waiting requests could have been
// sent.
std::atomic<bool> connects_before_password{false};
}  // namespace

// The linker puts this in the place of the library's (tests/CMakeLists.txt).
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" int __real_zoo_add_auth(zhandle_t*, const char*, const char*, int, void_completion_t, const void*);
extern "C" int __wrap_zoo_add_auth(zhandle_t* handle, const char* scheme, const char* cert, int size,
                                   void_completion_t completion, const void* data) {
  if (connects_before_password) {
    for (int i = 0; i < 6000 && zoo_state(handle) != ZOO_CONNECTED_STATE; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    std::this_thread::sleep_for(std::chrono::milliseconds{200});
  }
  return __real_zoo_add_auth(handle, scheme, cert, size, completion, data);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace leaf::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using zookeeper::Client;
using zookeeper::FixedRegistry;
using zookeeper::LeaseRegistry;
using zookeeper::NodeData;
using zookeeper::NodeStat;
using zookeeper::Operation;
using zookeeper::RegistryOptions;
using zookeeper::Session;
using zookeeper::SessionOptions;
using zookeeper::Tree;
using zookeeper::WriteOutcome;

constexpr seconds kPatience{120};  // of a slow machine

std::string ServerAddress() {
  const char* const connect = std::getenv("LEAF_ZK_CONNECT");
  if (connect == nullptr) {
    ADD_FAILURE() << "LEAF_ZK_CONNECT is not set: run with support/with_zookeeper.sh";
    return "127.0.0.1:1";
  }
  return connect;
}
int Scaled(int count) {
  const char* const scale = std::getenv("LEAFCTL_TEST_SCALE");
  return std::max(2, static_cast<int>(count * (scale == nullptr ? 1.0 : std::atof(scale))));
}
const sys::SystemClock& RealClock() {
  static const sys::SystemClock clock;
  return clock;
}
RecordingLogger& Log() {
  static RecordingLogger log;
  return log;
}
SessionOptions Options(const std::string& connect) {
  SessionOptions options;
  options.connect = *zookeeper::ParseConnectString(connect);
  options.session_timeout = seconds{10};
  options.operation_timeout = seconds{60};
  return options;
}
std::unique_ptr<Session> OpenSession(const std::string& chroot = "") {
  auto session = Session::Open(Options(ServerAddress() + chroot), RealClock(), Log());
  EXPECT_TRUE(session.ok());
  return std::move(*session);
}
// A part of the tree that no other test uses.
std::string NewRoot() {
  static std::atomic<int> next{0};
  return "/test-" + std::to_string(getpid()) + "-" + std::to_string(next++);
}
template <typename Condition>
bool Eventually(Condition condition) {
  const MonotonicTime deadline = RealClock().Monotonic() + kPatience;
  while (!condition()) {
    if (RealClock().Monotonic() > deadline) return false;
    RealClock().WaitUntil(RealClock().Monotonic() + milliseconds{5});
  }
  return true;
}

// ---- the contract of registries
// ----------------------------------------------------------------------------

// Passes calls on to a session, except when told to fail.
class FaultyClient final : public Client {
 public:
  struct Faults {
    std::atomic<bool> down{false};
    std::atomic<bool> lose_reply{false};
  };
  FaultyClient(Client& inner, Faults& faults) : inner_(inner), faults_(faults) {}

  Result<std::optional<NodeData>> Get(const std::string& path) override {
    if (faults_.down) return Away();
    return inner_.Get(path);
  }
  Result<std::optional<NodeStat>> Exists(const std::string& path) override {
    if (faults_.down) return Away();
    return inner_.Exists(path);
  }
  Result<std::optional<std::vector<std::string>>> Children(const std::string& path) override {
    if (faults_.down) return Away();
    return inner_.Children(path);
  }
  Result<std::vector<std::optional<NodeData>>> GetAll(const std::vector<std::string>& paths) override {
    if (faults_.down) return Away();
    return inner_.GetAll(paths);
  }
  Result<WriteOutcome> Write(const std::vector<Operation>& operations) override {
    if (faults_.down) return Away();
    auto outcome = inner_.Write(operations);
    if (faults_.lose_reply.exchange(false)) return Error{ErrorCode::kOutcomeUnknown, "reply lost", ""};
    return outcome;
  }
  std::int64_t session_id() const override { return inner_.session_id(); }
  std::unique_ptr<Subscription> OnNewSession(std::function<void()> listener) override {
    return inner_.OnNewSession(std::move(listener));
  }

 private:
  static Error Away() { return {ErrorCode::kUnavailable, "ZooKeeper is away", ""}; }
  Client& inner_;
  Faults& faults_;
};

template <typename Registry>
class ZooKeeperWorld final : public RegistryWorld {
 public:
  ZooKeeperWorld() {
    options_.root = NewRoot();
    // Leases stay 8 above Leaf's next number, which is 0 all the time.
    options_.worker_begin = leased() ? zookeeper::kClaimMargin : 0;
    options_.worker_end = options_.worker_begin + capacity();
    // During each wait the other nodes renew, except those that PassLease has silenced.
    clock_.OnWait([this] { RenewLive(); });
  }

  bool leased() const override { return std::is_same_v<Registry, LeaseRegistry>; }
  std::uint64_t capacity() const override { return 8; }
  std::unique_ptr<core::WorkerRegistry> Connect(int) override { return std::make_unique<Connection>(*this); }
  void PassLease() override {
    const std::lock_guard lock(mutex_);
    live_.clear();
  }
  void SetDown(bool down) override { faults_.down = down; }
  void LoseNextReply() override { faults_.lose_reply = true; }

 private:
  class Connection final : public core::WorkerRegistry {
   public:
    explicit Connection(ZooKeeperWorld& world)
        : world_(world),
          session_(OpenSession()),
          client_(*session_, world.faults_),
          registry_(world.options_, client_, world.clock_, Log()) {}
    ~Connection() override { Silence(); }

    std::string_view kind() const override { return registry_.kind(); }
    bool leased() const override { return registry_.leased(); }
    Result<core::WorkerClaim> Claim(const core::NodeIdentity& node,
                                    const core::ClusterProperties& cluster) override {
      Silence();
      auto claim = registry_.Claim(node, cluster);
      if (claim.ok()) SpeakUp(*claim, WallTimeOf(0));
      return claim;
    }
    Result<void> Renew(const core::WorkerClaim& claim, WallTime ceiling) override {
      auto renewed = registry_.Renew(claim, ceiling);
      if (renewed.ok()) SpeakUp(claim, ceiling);
      return renewed;
    }
    Result<void> Release(const core::WorkerClaim& claim, WallTime end) override {
      Silence();
      return registry_.Release(claim, end);
    }

   private:
    friend class ZooKeeperWorld;
    void Silence() {
      const std::lock_guard lock(world_.mutex_);
      world_.live_.erase(this);
    }
    void SpeakUp(const core::WorkerClaim& claim, WallTime ceiling) {
      const std::lock_guard lock(world_.mutex_);
      world_.live_[this] = {claim, ceiling};
    }

    ZooKeeperWorld& world_;
    const std::unique_ptr<Session> session_;
    FaultyClient client_;
    Registry registry_;
  };

  void RenewLive() {
    const std::lock_guard lock(mutex_);
    for (const auto& [connection, renewal] : live_)
      EXPECT_TRUE(connection->registry_.Renew(renewal.first, renewal.second).ok());
  }

  RegistryOptions options_;
  HookedClock clock_;
  FaultyClient::Faults faults_;
  std::mutex mutex_;
  std::map<Connection*, std::pair<core::WorkerClaim, WallTime>> live_;
};

NamedRegistryWorld Fixed() {
  return {"Fixed", [] { return std::make_unique<ZooKeeperWorld<FixedRegistry>>(); }};
}
NamedRegistryWorld Recycling() {
  return {"Recycling", [] { return std::make_unique<ZooKeeperWorld<LeaseRegistry>>(); }};
}

INSTANTIATE_TEST_SUITE_P(ZooKeeperFixed, WorkerRegistryContract, ::testing::Values(Fixed()),
                         RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(ZooKeeperFixed, FixedRegistryContract, ::testing::Values(Fixed()),
                         RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(ZooKeeperFixed, AssigningRegistryContract, ::testing::Values(Fixed()),
                         RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(ZooKeeperFixed, RememberingRegistryContract, ::testing::Values(Fixed()),
                         RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(ZooKeeperFixed, FallibleRegistryContract, ::testing::Values(Fixed()),
                         RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(ZooKeeperRecycling, WorkerRegistryContract, ::testing::Values(Recycling()),
                         RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(ZooKeeperRecycling, LeasedRegistryContract, ::testing::Values(Recycling()),
                         RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(ZooKeeperRecycling, AssigningRegistryContract, ::testing::Values(Recycling()),
                         RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(ZooKeeperRecycling, RememberingRegistryContract, ::testing::Values(Recycling()),
                         RegistryWorldName);
INSTANTIATE_TEST_SUITE_P(ZooKeeperRecycling, FallibleRegistryContract, ::testing::Values(Recycling()),
                         RegistryWorldName);

// ---- many nodes at once
// ------------------------------------------------------------------------------------

// Nodes with sessions of their own, all of which claim at the same moment. Number by address.
template <typename Registry>
std::map<std::string, std::uint64_t> ClaimAtOnce(const RegistryOptions& options, int nodes) {
  struct Node {
    std::unique_ptr<Session> session;
    std::unique_ptr<Registry> registry;
  };
  HookedClock clock;
  std::vector<Node> all(static_cast<std::size_t>(nodes));
  std::map<std::string, std::uint64_t> workers;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int i = 0; i < nodes; ++i) {
    Node& node = all[static_cast<std::size_t>(i)];
    node.session = OpenSession();
    node.registry = std::make_unique<Registry>(options, *node.session, clock, Log());
  }
  for (int i = 0; i < nodes; ++i) {
    threads.emplace_back([&, i] {
      const core::NodeIdentity identity{"127.0.1." + std::to_string(i) + ":80", "uuid-" + std::to_string(i)};
      Registry& registry = *all[static_cast<std::size_t>(i)].registry;
      auto claim = registry.Claim(identity, {"many", "zookeeper", core::IdLayout{}});
      while (!claim.ok() && (claim.error().code == ErrorCode::kUnavailable ||
                             claim.error().code == ErrorCode::kOutcomeUnknown))
        claim = registry.Claim(identity, {"many", "zookeeper", core::IdLayout{}});
      EXPECT_TRUE(claim.ok()) << claim.error().message;
      if (!claim.ok()) return;
      const auto renewed = registry.Renew(*claim, clock.Wall() + seconds{3});
      EXPECT_TRUE(renewed.ok()) << renewed.error().message;
      const std::lock_guard lock(mutex);
      workers[identity.address] = claim->worker;
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto peers = all[0].registry->LivePeers();
  EXPECT_TRUE(peers.ok());
  if (peers.ok()) {
    EXPECT_EQ(peers->size(), static_cast<std::size_t>(nodes) - 1);
  }
  return workers;
}

TEST(ZooKeeperManyTest, SixtyFourNodesOnAVirginNamespaceGetTheNumbersOfTheirNodes) {
  const int nodes = Scaled(64);
  for (int round = 0; round < 3; ++round) {
    RegistryOptions options;
    options.root = NewRoot();
    const auto workers = ClaimAtOnce<FixedRegistry>(options, nodes);
    ASSERT_EQ(workers.size(), static_cast<std::size_t>(nodes));
    const auto session = OpenSession();
    const Tree tree = *Tree::Make("many", options.root);
    const auto children = session->Children(tree.Forever());
    ASSERT_TRUE(children.ok() && *children);
    EXPECT_EQ((*children)->size(), static_cast<std::size_t>(nodes)) << "one node each";
    std::set<std::uint64_t> numbers;
    for (const std::string& child : **children) {
      const auto name = zookeeper::ParseForeverName(child);
      ASSERT_TRUE(name && name->canonical) << child;
      EXPECT_EQ(workers.at(name->address), name->worker);
      numbers.insert(name->worker);
      const auto node = session->Get(tree.ForeverNode(child));
      ASSERT_TRUE(node.ok() && *node);
      const auto data = zookeeper::ParseForeverData((*node)->data);
      ASSERT_TRUE(data.ok());
      EXPECT_EQ((*node)->data, zookeeper::FormatForeverData(name->address, WallTimeOf(data->timestamp_ms)));
      EXPECT_EQ((*node)->stat.ephemeral_owner, 0);
    }
    EXPECT_EQ(numbers.size(), static_cast<std::size_t>(nodes));
  }
}

TEST(ZooKeeperManyTest, SixtyFourLeasesAtOnceAreDifferent) {
  const int nodes = Scaled(64);
  for (int round = 0; round < 3; ++round) {
    RegistryOptions options;
    options.root = NewRoot();
    const auto workers = ClaimAtOnce<LeaseRegistry>(options, nodes);
    std::set<std::uint64_t> numbers;
    for (const auto& [address, worker] : workers) numbers.insert(worker);
    EXPECT_EQ(numbers.size(), static_cast<std::size_t>(nodes));
    EXPECT_EQ(*numbers.rbegin(), 1023U);
    EXPECT_EQ(*numbers.begin(), 1024U - static_cast<std::uint64_t>(nodes)) << "none is left out";
  }
}

// ---- the session
// -------------------------------------------------------------------------------------------

// The password of a session: ZooKeeper derives it from the number (ZooKeeperServer.generatePasswd), with
// java.util.Random.
std::string PasswordOf(std::int64_t id) {
  constexpr std::uint64_t kMask = (std::uint64_t{1} << 48) - 1;
  std::uint64_t state = (static_cast<std::uint64_t>(id) ^ 0xB3415C00U ^ 0x5DEECE66DU) & kMask;
  std::string password;
  while (password.size() < 16) {
    state = (state * 0x5DEECE66DU + 0xBU) & kMask;
    const auto word = static_cast<std::uint32_t>(state >> 16);
    for (int byte = 0; byte < 4; ++byte) password += static_cast<char>(word >> (8 * byte) & 0xFF);
  }
  return password;
}

int ServerPort() {
  const std::string address = ServerAddress();
  return std::atoi(address.substr(address.rfind(':') + 1).c_str());
}

std::string BigEndian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i) & 0xFF);
  return text;
}

// Takes the session over and closes it in one breath: its own client would take it back. True if the server
// says that there is no such session any more.
bool TryExpireSession(std::int64_t id) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(ServerPort()));
  std::string reply;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const std::string open = BigEndian(0, 4) + BigEndian(0, 8) + BigEndian(10000, 4) +
                             BigEndian(static_cast<std::uint64_t>(id), 8) + BigEndian(16, 4) +
                             PasswordOf(id) + BigEndian(0, 1);
    const std::string end = BigEndian(1, 4) + BigEndian(static_cast<std::uint32_t>(-11), 4);
    const std::string both = BigEndian(open.size(), 4) + open + BigEndian(end.size(), 4) + end;
    EXPECT_EQ(send(fd, both.data(), both.size(), MSG_NOSIGNAL), static_cast<ssize_t>(both.size()));
    char buffer[256];
    ssize_t got = 0;
    while ((got = recv(fd, buffer, sizeof buffer, 0)) > 0)
      reply.append(buffer, static_cast<std::size_t>(got));
  }
  close(fd);
  // Length, version, negotiated time-out: 0 for a session that is not there.
  return reply.size() >= 12 && reply.substr(8, 4) == BigEndian(0, 4);
}

// Ends a session, as if it had timed out.
void ExpireSession(std::int64_t id) {
  ASSERT_NE(id, 0) << "there is no session";
  ASSERT_TRUE(Eventually([&] { return TryExpireSession(id); }));
}

// A handle of the library, used directly.
class RawHandle {
 public:
  RawHandle() {
    handle_ = zookeeper_init2(ServerAddress().c_str(), &OnEvent, 10000, nullptr, this, 0, &OnLog);
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return connected_; }));
  }
  ~RawHandle() { zookeeper_close(handle_); }
  RawHandle(const RawHandle&) = delete;
  RawHandle& operator=(const RawHandle&) = delete;
  zhandle_t* get() { return handle_; }

 private:
  static void OnLog(const char*) {}
  static void OnEvent(zhandle_t*, int, int state, const char*, void* context) {
    auto& self = *static_cast<RawHandle*>(context);
    const std::lock_guard lock(self.mutex_);
    self.connected_ = state == ZOO_CONNECTED_STATE;
    self.changed_.notify_all();
  }
  zhandle_t* handle_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool connected_ = false;
};

std::size_t CountEntries(const char* folder) {
  std::size_t count = 0;
  DIR* const dir = opendir(folder);
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

// Cuts every connection of this process to the server.
void CutConnections() {
  const int port = ServerPort();
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && peer.sin_family == AF_INET &&
        ntohs(peer.sin_port) == port)
      shutdown(fd, SHUT_RDWR);
  }
}

TEST(ZooKeeperSessionTest, ATransactionHappensAsAWholeOrNotAtAll) {
  const auto session = OpenSession();
  const std::string root = NewRoot();
  auto made = session->Write({Operation::Create(root, "x"), Operation::CreateSequential(root + "/n-", ""),
                              Operation::Set(root, "y", 0), Operation::Check(root, 1),
                              Operation::CreateEphemeral(root + "/e", "z")});
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_TRUE(made->done());
  EXPECT_EQ(made->parts[1].path, root + "/n-0000000000");
  EXPECT_EQ(made->parts[2].stat->version, 1);
  const auto node = session->Get(root + "/e");
  ASSERT_TRUE(node.ok() && *node);
  EXPECT_EQ((*node)->data, "z");
  EXPECT_EQ((*node)->stat.ephemeral_owner, session->session_id());

  struct Case {
    Operation operation;
    WriteOutcome::Conflict conflict;
  };
  for (const Case& refused : {Case{Operation::Create(root, ""), WriteOutcome::Conflict::kExists},
                              Case{Operation::Create(root + "/a/b", ""), WriteOutcome::Conflict::kMissing},
                              Case{Operation::Check(root, 7), WriteOutcome::Conflict::kVersion},
                              Case{Operation::Set(root, "", 0), WriteOutcome::Conflict::kVersion},
                              Case{Operation::Delete(root, 1), WriteOutcome::Conflict::kNotEmpty}}) {
    const auto outcome = session->Write({Operation::Set(root, "no", 1), Operation::Check(root, 2),
                                         Operation::Create(root + "/never", ""), refused.operation});
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    const auto first = session->Write({refused.operation, Operation::Check(root, 1)});
    // The first operation of this transaction moves the version that some of the cases name.
    EXPECT_FALSE(outcome->done());
    EXPECT_EQ(first->conflict, refused.conflict);
    EXPECT_EQ(first->at, 0U);
    EXPECT_EQ(outcome->at, 3U);
  }
  EXPECT_EQ((*session->Get(root))->data, "y");
  EXPECT_FALSE(session->Exists(root + "/never")->has_value());
  EXPECT_FALSE(session->Children(root + "/never")->has_value());
  const auto stat = session->Exists(root);
  EXPECT_EQ((*stat)->children, 2);
  EXPECT_EQ((*stat)->child_version, 2);
  const auto all = session->GetAll({root, root + "/none", root + "/e"});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ((*all)[0]->data, "y");
  EXPECT_FALSE((*all)[1].has_value());
  EXPECT_EQ((*all)[2]->data, "z");
}

TEST(ZooKeeperSessionTest, AChrootStandsBeforeEveryPath) {
  const auto outside = OpenSession();
  const std::string root = NewRoot();
  const auto inside = OpenSession(root + "/deep");
  EXPECT_EQ(inside->Write({Operation::Create("/a", "")})->conflict, WriteOutcome::Conflict::kMissing);
  ASSERT_TRUE(outside->Write({Operation::Create(root, ""), Operation::Create(root + "/deep", "")})->done());
  const auto made = inside->Write({Operation::Create("/a", "1"), Operation::CreateSequential("/a/n-", "2")});
  ASSERT_TRUE(made->done());
  EXPECT_EQ(made->parts[1].path, "/a/n-0000000000");
  EXPECT_EQ((*inside->Get("/a/n-0000000000"))->data, "2");
  EXPECT_EQ((*outside->Get(root + "/deep/a"))->data, "1");
  EXPECT_EQ(**inside->Children("/a"), std::vector<std::string>{"n-0000000000"});
}

// A node that only leaf:right may use.
std::string MakeProtected() {
  std::string root = NewRoot();
  RawHandle owner;
  EXPECT_EQ(zoo_add_auth(owner.get(), "digest", "leaf:right", 10, nullptr, nullptr), ZOK);
  EXPECT_EQ(zoo_create(owner.get(), root.c_str(), "x", 1, &ZOO_CREATOR_ALL_ACL, 0, nullptr, 0), ZOK);
  return root;
}

TEST(ZooKeeperSessionTest, NothingIsAskedBeforeThePassword) {
  const std::string root = MakeProtected();
  connects_before_password = true;
  SessionOptions options = Options(ServerAddress());
  options.digest_auth = "leaf:right";
  const auto session = Session::Open(options, RealClock(), Log());
  const auto read = (*session)->Get(root);
  connects_before_password = false;
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ((*read)->data, "x");
}

TEST(ZooKeeperSessionTest, WhatIsProtectedNeedsTheRightPassword) {
  const std::string root = MakeProtected();
  const auto code = [&](const std::string& auth) {
    SessionOptions options = Options(ServerAddress());
    options.digest_auth = auth;
    const auto session = Session::Open(options, RealClock(), Log());
    const auto read = (*session)->Get(root);
    const auto written = (*session)->Write({Operation::Set(root, "y", Operation::kAnyVersion)});
    EXPECT_EQ(read.ok(), written.ok());
    if (read.ok()) return ErrorCode::kInternal;
    EXPECT_NE(read.error().message.find(root), std::string::npos);
    EXPECT_EQ(read.error().code, written.error().code);
    return written.error().code;
  };
  EXPECT_EQ(code(""), ErrorCode::kPermission);
  EXPECT_EQ(code("leaf:wrong"), ErrorCode::kPermission);
  EXPECT_EQ(code("leaf:right"), ErrorCode::kInternal);
  SessionOptions options = Options(ServerAddress());
  options.digest_auth = "no-colon";
  const auto refused = Session::Open(options, RealClock(), Log());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kConfig);
  EXPECT_EQ(refused.error().message.find("no-colon"), std::string::npos) << "it is a secret";
}

std::unique_ptr<Session> OpenSessionAs(const std::string& auth) {
  SessionOptions options = Options(ServerAddress());
  options.digest_auth = auth;
  return std::move(Session::Open(std::move(options), RealClock(), Log()).value());
}

std::optional<zookeeper::NodeAccess> AccessOf(Session& session, const std::string& path) {
  auto access = session.GetAccess({path});
  EXPECT_TRUE(access.ok()) << access.error().message;
  return access.ok() ? access->front() : std::nullopt;
}

TEST(ZooKeeperSessionTest, OwnNodesAreForTheirCredentialsAloneAndTheOthersAreOpen) {
  const std::string root = NewRoot();
  const std::string own = root + "/own";
  const auto ours = OpenSessionAs("leaf:right");
  ASSERT_TRUE(ours->Write({Operation::Create(root, ""), Operation::CreateOwn(own, "x"),
                           Operation::CreateEphemeral(own + "/e", ""), Operation::Create(root + "/n", "x")})
                  ->done());
  for (const std::string& path : {own, own + "/e"}) {
    const auto access = AccessOf(*ours, path);
    ASSERT_TRUE(access) << path;
    EXPECT_EQ(access->rules, "digest:leaf:cdrwa, world:anyone:r");
    EXPECT_FALSE(access->open);
  }
  EXPECT_TRUE(AccessOf(*ours, root)->open);
  EXPECT_EQ(AccessOf(*ours, root)->rules, "world:anyone:cdrwa");
  EXPECT_EQ(AccessOf(*ours, own)->stat.children, 1);
  EXPECT_FALSE(AccessOf(*ours, root + "/none"));
  for (const std::string& auth : {std::string(), std::string("leaf:wrong")}) {
    const auto stranger = OpenSessionAs(auth);
    const auto read = stranger->Get(own);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ((*read)->data, "x");
    EXPECT_TRUE(stranger->Write({Operation::Set(root + "/n", "y", Operation::kAnyVersion)})->done());
    for (const Operation& refused : {Operation::Set(own, "y", 0), Operation::CreateOwn(own + "/a", ""),
                                     Operation::Delete(own + "/e", 0)}) {
      // The one that is refused is named, not the first.
      const auto written =
          stranger->Write({Operation::Set(root + "/n", "z", Operation::kAnyVersion), refused});
      ASSERT_FALSE(written.ok());
      EXPECT_EQ(written.error().code, ErrorCode::kPermission);
      EXPECT_NE(written.error().message.find("'" + refused.path + "'"), std::string::npos)
          << written.error().message;
    }
  }
  EXPECT_EQ((*ours->Get(root + "/n"))->data, "y") << "half of a transaction happened";
  EXPECT_TRUE(ours->Write({Operation::Set(own, "z", 0)})->done());
}

TEST(ZooKeeperSessionTest, RulesAreSetOnlyIfTheyAreAsTheyWereSeen) {
  const std::string root = NewRoot();
  const auto stranger = OpenSession();
  ASSERT_TRUE(
      stranger->Write({Operation::CreateOwn(root, "x"), Operation::CreateOwn(root + "/a", "x")})->done());
  EXPECT_TRUE(AccessOf(*stranger, root)->open) << "there are no credentials";
  const auto refused = stranger->Protect({{root, 0}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kPermission);

  const auto ours = OpenSessionAs("leaf:right");
  EXPECT_FALSE(ours->Protect({{root, 1}, {root + "/a", 0}}).value());
  EXPECT_TRUE(AccessOf(*ours, root)->open);
  EXPECT_EQ(AccessOf(*ours, root + "/a")->rules, "digest:leaf:cdrwa, world:anyone:r") << "the rest is done";
  EXPECT_TRUE(ours->Protect({{root, 0}, {root + "/gone", 0}}).value());
  EXPECT_FALSE(AccessOf(*ours, root)->open);
  EXPECT_EQ(AccessOf(*ours, root)->version, 1);
  EXPECT_EQ(stranger->Write({Operation::Set(root, "y", 0)}).error().code, ErrorCode::kPermission);
  EXPECT_TRUE(stranger->Get(root).ok());
  // A node whose rules a stranger may not even see is not open.
  EXPECT_FALSE(AccessOf(*stranger, MakeProtected())->open);
}

// A server that accepts connections and never says a word.
TEST(ZooKeeperSessionTest, ASilentServerHangsNoCall) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 64), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  SessionOptions options = Options("127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
  options.operation_timeout = milliseconds{300};
  auto session = std::move(*Session::Open(options, RealClock(), Log()));
  for (int i = 0; i < 20; ++i) {
    const auto read = session->Get("/");
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, ErrorCode::kUnavailable);
    // Never handed over, so certainly not done.
    const auto written = session->Write({Operation::Create("/a", "")});
    ASSERT_FALSE(written.ok());
    EXPECT_EQ(written.error().code, ErrorCode::kUnavailable);
  }
  // Calls under way when it is closed end with it.
  options.operation_timeout = std::chrono::hours{1};
  auto waiting = std::move(*Session::Open(options, RealClock(), Log()));
  std::thread caller([&] { EXPECT_FALSE(waiting->Get("/").ok()); });
  waiting->Close();
  caller.join();
  EXPECT_FALSE(waiting->Get("/").ok());
  session.reset();
  waiting.reset();
  close(listener);
}

// Connections are cut, and sessions end, while reads are under way: those are made again, with no error.
TEST(ZooKeeperSessionTest, AReadOutlivesItsConnection) {
  const std::string root = NewRoot();
  const std::string child = root + "/child";
  const auto session = OpenSession();
  ASSERT_TRUE(session->Write({Operation::Create(root, ""), Operation::Create(child, "x")})->done());
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> reads{0};
  const auto check = [&](bool as_it_should_be, const auto& read) {
    EXPECT_TRUE(as_it_should_be) << (read.ok() ? "another answer" : read.error().message);
    ++reads;
    return as_it_should_be;
  };
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      bool well = true;
      while (well && !done) {
        const auto node = session->Get(child);
        well = check(node.ok() && *node && (*node)->data == "x", node);
        const auto nodes = session->GetAll({root, child, root + "/none"});
        well = check(nodes.ok() && (*nodes)[0] && (*nodes)[1] && !(*nodes)[2], nodes) && well;
        const auto stat = session->Exists(root + "/none");
        well = check(stat.ok() && !*stat, stat) && well;
        const auto children = session->Children(root);
        well = check(children.ok() && *children && (*children)->size() == 1, children) && well;
        const auto rules = session->GetAccess({child});
        well = check(rules.ok() && (*rules)[0] && (*rules)[0]->open, rules) && well;
      }
    });
  }
  const std::uint64_t sessions = session->sessions();
  const int rounds = Scaled(30);
  for (int round = 0; round < rounds; ++round) {
    const std::int64_t id = session->session_id();
    if (round % 3 == 1 && id != 0) {
      ExpireSession(id);
    } else {
      CutConnections();
    }
    const std::uint64_t before = reads;
    EXPECT_TRUE(Eventually([&] { return reads > before + 20 || HasFailure(); })) << round;
    if (HasFailure()) break;
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_TRUE(Eventually([&] { return session->sessions() > sessions; }));
}

TEST(ZooKeeperSessionTest, AnExpiredSessionIsReplacedAndAnnounced) {
  const auto session = OpenSession();
  const std::string root = NewRoot();
  std::atomic<int> announced{0};
  auto subscription = session->OnNewSession([&] {
    // A listener may make calls. They may fail, as the session may end meanwhile.
    (void)session->Exists(root);
    ++announced;
  });
  ASSERT_TRUE(
      session->Write({Operation::Create(root, ""), Operation::CreateEphemeral(root + "/e", "")})->done());
  const std::int64_t first = session->session_id();
  const int before = announced;
  EXPECT_LE(before, 1);  // the first session, if it came after the subscription
  ExpireSession(first);
  ASSERT_TRUE(Eventually([&] { return session->session_id() != 0 && session->session_id() != first; }));
  ASSERT_TRUE(Eventually([&] { return announced > before; }));
  ASSERT_TRUE(Eventually([&] {
    const auto found = session->Exists(root + "/e");
    return found.ok() && !found->has_value();
  }));
  subscription.reset();
  const int last = announced;
  const std::int64_t second = session->session_id();
  ExpireSession(second);
  ASSERT_TRUE(Eventually([&] { return session->session_id() != 0 && session->session_id() != second; }));
  EXPECT_TRUE(Eventually([&] { return session->Exists(root).ok(); }));
  EXPECT_EQ(announced, last);
}

// The thread that calls a listener is the one that opens the next session.
TEST(ZooKeeperSessionTest, AListenersCallEndsWithItsSession) {
  SessionOptions options = Options(ServerAddress());
  options.operation_timeout = std::chrono::hours{1};
  const auto session = std::move(*Session::Open(options, RealClock(), Log()));
  const std::string root = NewRoot();
  ASSERT_TRUE(session->Write({Operation::Create(root, "")})->done());
  const std::int64_t first = session->session_id();
  std::atomic<int> announced{0};
  const auto subscription = session->OnNewSession([&] {
    if (++announced != 1) return;
    // This may be the first session still, which the test ends at the same time: then there is no ID.
    do {
      const std::int64_t id = session->session_id();
      if (id != 0) (void)TryExpireSession(id);
    } while (session->Exists(root).ok());
  });
  ExpireSession(first);
  EXPECT_TRUE(Eventually([&] { return announced >= 2; }));
  EXPECT_TRUE(session->Exists(root).ok());
}

// Stops the thread that asks for it at its next but one look.
class StoppingClock final : public Clock {
 public:
  WallTime Wall() const override { return RealClock().Wall(); }
  BootTime Boot() const override { return RealClock().Boot(); }
  void WaitUntil(MonotonicTime time) const override { RealClock().WaitUntil(time); }
  MonotonicTime Monotonic() const override {
    if (looks_ > 0 && --looks_ == 0) {
      stopped_ = true;
      while (!go_) std::this_thread::yield();
    }
    return RealClock().Monotonic();
  }

  void StopMe() const { looks_ = 2; }
  bool stopped() const { return stopped_; }
  void Go() { go_ = true; }

 private:
  static thread_local int looks_;
  mutable std::atomic<bool> stopped_{false};
  std::atomic<bool> go_{false};
};
thread_local int StoppingClock::looks_ = 0;

// The library knows that a session has ended before it tells. A transaction that begins in between makes
// zoo_amulti free what is not its own.
TEST(ZooKeeperSessionTest, ATransactionAfterTheEndOfItsSessionIsRefused) {
  class ExpiryLog final : public Logger {
   public:
    void Write(LogLevel level, std::string_view message) override {
      if (level == LogLevel::kDebug && message.find("has expired") != std::string_view::npos) expired = true;
    }
    std::atomic<bool> expired{false};
  };
  StoppingClock clock;
  ExpiryLog log;
  auto opened = Session::Open(Options(ServerAddress()), clock, log);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const std::unique_ptr<Session> session = std::move(*opened);
  const std::string root = NewRoot();
  ASSERT_TRUE(session->Write({Operation::Create(root, "")})->done());
  const std::int64_t id = session->session_id();
  // Stops while it looks whether its reply is there: what the library tells has to wait for that.
  std::thread holder([&] {
    while (!clock.stopped()) {
      clock.StopMe();
      (void)session->Get(root);
    }
  });
  ASSERT_TRUE(Eventually([&] { return clock.stopped(); }));
  const Operation set = Operation::Set(root, "x", Operation::kAnyVersion);
  std::vector<std::thread> writers;
  for (int i = 0; i < 8; ++i) {
    writers.emplace_back([&] {
      const auto written = session->Write({set, set, set});
      EXPECT_TRUE(written.ok() || written.error().code == ErrorCode::kUnavailable) << written.error().message;
    });
  }
  ExpireSession(id);
  EXPECT_TRUE(Eventually([&] { return log.expired.load(); }));
  clock.Go();
  holder.join();
  for (std::thread& writer : writers) writer.join();
  EXPECT_TRUE(Eventually([&] { return session->Write({set, set, set}).ok(); }));
}

// Each round ends, or cuts, the sessions of four nodes: 200 reconnects, half of them with a new session.
TEST(ZooKeeperSessionTest, HundredsOfReconnectsLeakNothing) {
  const int rounds = Scaled(50);
  HookedClock clock;
  struct Node {
    std::string address;
    std::unique_ptr<Session> session;
    std::unique_ptr<FixedRegistry> registry;
    core::WorkerClaim claim;
    std::int64_t session_id = 0;
  };
  RegistryOptions options;
  options.root = NewRoot();
  const Tree tree = *Tree::Make("reconnect", options.root);
  std::vector<Node> nodes;
  for (int i = 0; i < 4; ++i) {
    Node node{"127.0.0." + std::to_string(i) + ":80", OpenSession(), nullptr, {}};
    node.registry = std::make_unique<FixedRegistry>(options, *node.session, clock, Log());
    const auto claim =
        node.registry->Claim({node.address, "u"}, {"reconnect", "zookeeper", core::IdLayout{}});
    ASSERT_TRUE(claim.ok()) << claim.error().message;
    node.claim = *claim;
    nodes.push_back(std::move(node));
  }
  const std::size_t threads = CountEntries("/proc/self/task");
  const std::size_t files = CountEntries("/proc/self/fd");
  for (int round = 0; round < rounds; ++round) {
    const bool expire = round % 2 == 0;
    for (Node& node : nodes) {
      ASSERT_TRUE(Eventually([&] { return (node.session_id = node.session->session_id()) != 0; }));
      if (expire) ExpireSession(node.session_id);
    }
    if (!expire) CutConnections();
    for (const Node& node : nodes) {
      ASSERT_TRUE(Eventually([&] {
        const std::int64_t id = node.session->session_id();
        return id != 0 && (!expire || id != node.session_id);
      })) << round;
      // Whatever is lost meanwhile, the next renewal or the one after it makes up for it.
      ASSERT_TRUE(Eventually([&] {
        const auto renewed = node.registry->Renew(node.claim, clock.Wall() + milliseconds{round});
        EXPECT_TRUE(renewed.ok() || renewed.error().code != ErrorCode::kNotOwner) << renewed.error().message;
        return renewed.ok();
      })) << round;
      // Of the present session.
      ASSERT_TRUE(Eventually([&] {
        const auto temporary = node.session->Get(tree.Temporary(node.address));
        return temporary.ok() && *temporary &&
               (*temporary)->stat.ephemeral_owner == node.session->session_id();
      })) << round;
    }
  }
  for (const Node& node : nodes) EXPECT_GT(node.session->sessions(), static_cast<std::uint64_t>(rounds / 2));
  EXPECT_TRUE(Eventually([&] { return CountEntries("/proc/self/task") <= threads; }))
      << CountEntries("/proc/self/task") << " threads, and there were " << threads;
  EXPECT_TRUE(Eventually([&] { return CountEntries("/proc/self/fd") <= files; }))
      << CountEntries("/proc/self/fd") << " files, and there were " << files;
}

}  // namespace
}  // namespace leaf::testing
