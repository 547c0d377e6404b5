#include "leaf/embed/registries.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "leaf/embed/stores.h"
#include "leaf/embed/zookeeper_link.h"
#include "leaf/java/ceiling.h"
#include "leaf/java/worker_file.h"
#include "leaf/sql/mysql_connector.h"
#include "leaf/sql/mysql_server.h"
#include "leaf/sql/worker_registry.h"
#include "leaf/sys/process_name.h"
#include "leaf/sys/static_registry.h"
#include "leaf/zookeeper/fixed_registry.h"
#include "leaf/zookeeper/lease_registry.h"
#include "leaf/zookeeper/session.h"

namespace leaf::embed {
namespace {

// Beyond the longest transaction: within that an owner reports four times.
constexpr std::chrono::milliseconds kSqlReportMargin{12'000};

sys::StaticRegistry StaticRegistryOf(const config::Config& config) {
  const config::Config::Snowflake& snowflake = config.snowflake;
  if (IsPrivateCluster(config)) {
    const config::WorkerRange numbers = WorkerNumbersOf(config);
    if (numbers.begin < numbers.end) return sys::StaticRegistry::OfPrivateCluster(numbers.begin, numbers.end);
  }
  return {snowflake.worker_id >= 0 ? std::optional(static_cast<std::uint64_t>(snowflake.worker_id))
                                   : std::nullopt,
          snowflake.workers};
}

class StaticLink final : public RegistryLink {
 public:
  explicit StaticLink(const config::Config& config) : registry_(StaticRegistryOf(config)) {}
  core::WorkerRegistry& registry() override { return registry_; }
  core::PeerDirectory* peers() override { return nullptr; }
  service::Dependency Dependency() const override { return {}; }

 private:
  sys::StaticRegistry registry_;
};

class SqlLink final : public RegistryLink {
 public:
  // `shared`: segment mode works over the same connections, and tells how many there are.
  SqlLink(std::unique_ptr<sql::Database> database, bool shared, sql::SqlRegistryOptions options,
          const Clock& clock, Logger& log)
      : database_(std::move(database)),
        shared_(shared),
        registry_(*database_, std::move(options), clock, log) {}
  core::WorkerRegistry& registry() override { return registry_; }
  core::PeerDirectory* peers() override { return &registry_; }
  service::Dependency Dependency() const override {
    service::Dependency dependency = DependencyOf(*database_, "registry");
    // What went wrong there is told by the worker number's own problem.
    dependency.problem.reset();
    dependency.went_back = registry_.times_put_back();
    if (shared_) dependency.open.reset();
    return dependency;
  }

 private:
  // Its own: refills may have all connections but one, which is for this.
  const std::unique_ptr<sql::Database> database_;
  const bool shared_;
  sql::SqlWorkerRegistry registry_;
};

// Whichever of ZooKeeper's registries, and the session under it.
template <typename Registry>
class ZookeeperLink final : public RegistryLink {
 public:
  ZookeeperLink(std::shared_ptr<zookeeper::Session> session, zookeeper::RegistryOptions options,
                const Clock& clock, Logger& log)
      : session_(std::move(session)), registry_(std::move(options), *session_, clock, log) {}
  core::WorkerRegistry& registry() override { return registry_; }
  core::PeerDirectory* peers() override { return &registry_; }
  service::Dependency Dependency() const override {
    service::Dependency dependency;
    dependency.name = "registry";
    dependency.kind = "zookeeper";
    dependency.up = session_->connected();
    dependency.went_back = registry_.times_put_back();
    dependency.connections = session_->sessions();
    dependency.reconnects = dependency.connections > 0 ? dependency.connections - 1 : 0;
    return dependency;
  }

 private:
  const std::shared_ptr<zookeeper::Session> session_;
  Registry registry_;
};

// A registry of fixed numbers where Java Leaf may have run before.
class AfterJavaLink final : public RegistryLink {
 public:
  AfterJavaLink(std::unique_ptr<RegistryLink> link, const Clock& clock, Logger& log)
      : link_(std::move(link)), registry_(link_->registry(), std::string(java::kJavaTmpDir), clock, log) {}
  core::WorkerRegistry& registry() override { return registry_; }
  core::PeerDirectory* peers() override { return link_->peers(); }
  service::Dependency Dependency() const override { return link_->Dependency(); }

 private:
  const std::unique_ptr<RegistryLink> link_;
  java::JavaCeilingRegistry registry_;
};

}  // namespace

config::WorkerRange WorkerNumbersOf(const config::Config& config) {
  config::WorkerRange numbers = config.snowflake.worker_range;
  numbers.end = std::min(numbers.end, config.snowflake.layout.worker_end());
  return numbers;
}

bool IsPrivateCluster(const config::Config& config) {
  const config::Config::Snowflake& snowflake = config.snowflake;
  return snowflake.registry == "static" && snowflake.cluster.empty() && snowflake.worker_id < 0 &&
         snowflake.workers.empty();
}

Result<void> CheckStaticNumber(const config::Config& config) {
  const config::Config::Snowflake& snowflake = config.snowflake;
  if (snowflake.registry != "static") return {};
  if (IsPrivateCluster(config)) {
    // One is drawn from these.
    const config::WorkerRange numbers = WorkerNumbersOf(config);
    if (numbers.begin < numbers.end) return {};
    return core::CheckWorkerNumber(snowflake.worker_range.begin, snowflake.worker_range.begin,
                                   snowflake.worker_range.end, snowflake.layout);
  }
  core::NodeIdentity node;
  node.address = snowflake.address;
  core::ClusterProperties any;
  LEAF_ASSIGN_OR_RETURN(const core::WorkerClaim claim, StaticRegistryOf(config).Claim(node, any));
  return core::CheckWorkerNumber(claim.worker, snowflake.worker_range.begin, snowflake.worker_range.end,
                                 snowflake.layout);
}

Result<std::unique_ptr<RegistryLink>> OpenRegistry(Environment& environment, const config::Config& config,
                                                   Logger& log) {
  const config::Config::Snowflake& snowflake = config.snowflake;
  if (snowflake.registry == "static")
    return std::unique_ptr<RegistryLink>(
        std::make_unique<AfterJavaLink>(std::make_unique<StaticLink>(config), environment.ClockInUse(), log));
  if (snowflake.address.empty()) {
    return Error{ErrorCode::kConfig,
                 fmt::format("registry {} needs an address that identifies this node, and no listen address "
                             "does (all are loopback or wildcard)",
                             snowflake.registry),
                 "set snowflake.address = \"IP:PORT\""};
  }
  const config::WorkerRange numbers = WorkerNumbersOf(config);
  if (snowflake.registry == "zookeeper") {
    const auto timeout = environment.Timeout().value_or(zookeeper::SessionOptions{}.operation_timeout);
    LEAF_ASSIGN_OR_RETURN(auto session, OpenZookeeper(environment, log, timeout));
    zookeeper::RegistryOptions options;
    options.advertise = snowflake.advertise;
    options.host = sys::HostName();
    options.worker_begin = numbers.begin;
    options.worker_end = numbers.end;
    options.lease_time = snowflake.lease_time;
    options.window = snowflake.window;
    options.claim_watch = snowflake.claim_watch;
    if (snowflake.recycle) {
      return std::unique_ptr<RegistryLink>(std::make_unique<ZookeeperLink<zookeeper::LeaseRegistry>>(
          std::move(session), std::move(options), environment.ClockInUse(), log));
    }
    return std::unique_ptr<RegistryLink>(std::make_unique<AfterJavaLink>(
        std::make_unique<ZookeeperLink<zookeeper::FixedRegistry>>(std::move(session), std::move(options),
                                                                  environment.ClockInUse(), log),
        environment.ClockInUse(), log));
  }
  LEAF_ASSIGN_OR_RETURN(std::unique_ptr<sql::Database> database,
                        OpenDatabase(environment, Store::Access::kWrite, &log, sql::Use::kUrgent));
  std::function<Result<void>()> check_one_writer;
  if (const sql::MysqlConnector* const connector = database->connector();
      connector != nullptr && connector->options().endpoints.size() > 1)
    check_one_writer = [options = connector->options()] { return sql::CheckOneWriter(options); };
  return std::unique_ptr<RegistryLink>(std::make_unique<SqlLink>(
      std::move(database), config.segment.enabled,
      sql::SqlRegistryOptions{
          .worker_begin = numbers.begin,
          .worker_end = numbers.end,
          .host = sys::HostName(),
          .url = snowflake.advertise,
          .window = snowflake.window,
          .claim_watch = snowflake.claim_watch.value_or(ReplyTimeout(environment, config) + kSqlReportMargin),
          .check_one_writer = std::move(check_one_writer)},
      environment.ClockInUse(), log));
}

}  // namespace leaf::embed
