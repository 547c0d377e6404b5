#include "leaf/embed/cluster_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/text.h"
#include "leaf/base/time.h"
#include "leaf/embed/zookeeper_link.h"
#include "leaf/sys/process_name.h"
#include "leaf/zookeeper/inspection.h"
#include "leaf/zookeeper/snapshot.h"

namespace leaf::embed {

bool ClusterLink::IsConfigured(const config::Resolved& resolved) {
  const config::Config& config = resolved.config;
  if (config.segment.fence != "auto") return config.segment.fence == "cluster";
  const bool has_zookeeper =
      resolved.IsSet("zookeeper.") || (config.snowflake.enabled && config.snowflake.registry == "zookeeper");
  return config.segment.store == "mysql" && has_zookeeper;
}

Result<std::unique_ptr<ClusterLink>> ClusterLink::Open(Setting& setting, Logger& log,
                                                       const std::string& process) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, setting.Config());
  if (!IsConfigured(*resolved)) return std::unique_ptr<ClusterLink>();
  const config::Config& config = resolved->config;
  // Nodes that issue segments only may have no other name in common than that of their database.
  const std::string& name =
      config.snowflake.cluster.empty() ? config.mysql.database : config.snowflake.cluster;
  LEAF_ASSIGN_OR_RETURN(zookeeper::Tree tree, zookeeper::Tree::Make(name));
  const auto timeout = setting.Timeout().value_or(zookeeper::SessionOptions{}.operation_timeout);
  LEAF_ASSIGN_OR_RETURN(auto session, OpenZookeeper(setting, log, timeout));
  return std::unique_ptr<ClusterLink>(
      new ClusterLink(std::move(session), std::move(tree), process, config.segment.witness_fallback,
                      config.zookeeper.connect, timeout, setting.ClockInUse(), log));
}

ClusterLink::ClusterLink(std::unique_ptr<zookeeper::Session> session, zookeeper::Tree tree,
                         const std::string& process, bool fallback, std::string servers,
                         std::chrono::milliseconds operation_timeout, const Clock& clock, Logger& log)
    : process_(process),
      servers_(std::move(servers)),
      operation_timeout_(operation_timeout),
      tree_(std::move(tree)),
      session_(std::move(session)),
      witness_(tree_, process_, *session_, clock),
      fence_(witness_, fallback, clock, random_, log),
      entry_(tree_, *session_, log) {}

std::string ClusterLink::name() const { return fmt::format("{} at {}", tree_.Witnesses(), servers_); }

Result<std::uint64_t> ClusterLink::RaiseMark(core::NewTag& tag) {
  LEAF_ASSIGN_OR_RETURN(const auto look, fence_.See(tag.tag));
  if (look.away) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("cannot add tag {}: the witness {} cannot be used, and only it knows what was "
                             "granted under this name",
                             Quoted(tag.tag), name()),
                 "retry once ZooKeeper is back"};
  }
  tag.mark = std::max(tag.mark, look.state.end);
  return look.state.end;
}

void ClusterLink::Announce(std::vector<std::string> urls) {
  entry_.Begin(fmt::format("{:016x}{:016x}", random_.Next(), random_.Next()),
               {sys::HostName(), process_, std::move(urls)});
}

Result<std::vector<zookeeper::DaemonRecord>> ClusterLink::Daemons() {
  return zookeeper::ReadDaemonRoster(*session_, tree_);
}

Result<std::optional<core::WorkerFinding>> ClusterLink::InspectAccess() {
  if (!session_->has_credentials()) return std::optional<core::WorkerFinding>();
  LEAF_ASSIGN_OR_RETURN(const auto open, zookeeper::ReadOpenNodes(*session_, tree_));
  return zookeeper::InspectAccess(tree_, open);
}

service::Dependency ClusterLink::Dependency() const {
  service::Dependency dependency;
  dependency.name = "witness";
  dependency.kind = "zookeeper";
  dependency.identity = name();
  dependency.connections = session_->sessions();
  dependency.reconnects = dependency.connections > 0 ? dependency.connections - 1 : 0;
  const service::ClusterFenceStatus status = fence_.Status();
  dependency.up = session_->connected() && !status.problem;
  if (status.problem) {
    dependency.problem =
        Error{status.problem->code,
              fmt::format("the witness {} cannot be used since {}: {}; {}", name(),
                          FormatRfc3339(*status.away_since), status.problem->message,
                          fence_.Blocking() ? "grants wait" : "grants are fenced by this node's own marks"),
              status.problem->hint};
  }
  return dependency;
}

}  // namespace leaf::embed
