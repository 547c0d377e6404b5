#include "leaf/embed/cluster_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/text.h"
#include "leaf/base/time.h"
#include "leaf/embed/zookeeper_link.h"
#include "leaf/sys/process_name.h"
#include "leaf/zookeeper/registry_options.h"

namespace leaf::embed {
namespace {

// segment.claim_watch, whose "auto" is snowflake.claim_watch, whose "auto" is what nodes need that have to
// find out.
std::chrono::milliseconds SegmentWatchOf(const config::Config& config) {
  // It goes on without the witness: there is nothing to wait for.
  if (config.segment.witness_fallback) return std::chrono::milliseconds{0};
  if (config.segment.claim_watch) return *config.segment.claim_watch;
  return config.snowflake.claim_watch.value_or(zookeeper::kStaleMax + zookeeper::kOwnerMargin);
}

// What a process is called, without the machine: a node's record says that apart.
std::string WithoutHost(std::string process) {
  const std::string suffix = " on " + sys::HostName();
  if (process.ends_with(suffix)) process.resize(process.size() - suffix.size());
  return process;
}

}  // namespace

bool ClusterLink::IsConfigured(const config::Resolved& resolved) {
  const config::Config& config = resolved.config;
  if (config.segment.fence != "auto") return config.segment.fence == "cluster";
  const bool has_zookeeper =
      resolved.IsSet("zookeeper.") || (config.snowflake.enabled && config.snowflake.registry == "zookeeper");
  return config.segment.store == "mysql" && has_zookeeper;
}

Result<std::unique_ptr<ClusterLink>> ClusterLink::Open(Environment& environment, Logger& log,
                                                       const std::string& process) {
  return OpenAs(environment, log, process, nullptr, JoinAs::kCommand);
}

Result<std::unique_ptr<ClusterLink>> ClusterLink::Join(Environment& environment, Logger& log,
                                                       const std::string& process,
                                                       core::ClusterMemoryStore& memory, JoinAs as) {
  return OpenAs(environment, log, process, &memory, as);
}

Result<std::unique_ptr<ClusterLink>> ClusterLink::OpenAs(Environment& environment, Logger& log,
                                                         const std::string& process,
                                                         core::ClusterMemoryStore* memory, JoinAs as) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, environment.Config());
  if (!IsConfigured(*resolved)) return std::unique_ptr<ClusterLink>();
  const config::Config& config = resolved->config;
  // Nodes that issue segments only may have no other name in common than that of their database.
  const std::string& name =
      config.snowflake.cluster.empty() ? config.mysql.database : config.snowflake.cluster;
  LEAF_ASSIGN_OR_RETURN(zookeeper::Tree tree, zookeeper::Tree::Make(name));
  const auto timeout = environment.Timeout().value_or(zookeeper::SessionOptions{}.operation_timeout);
  LEAF_ASSIGN_OR_RETURN(auto session, OpenZookeeper(environment, log, timeout));
  return std::unique_ptr<ClusterLink>(new ClusterLink(
      std::move(session), std::move(tree), process,
      Part{memory,
           {.host = sys::HostName(),
            .process = WithoutHost(process),
            .watch = SegmentWatchOf(config),
            .one_shot = as != JoinAs::kDaemon,
            .is_passive = as == JoinAs::kBesideDaemon}},
      config.segment.witness_fallback, config.zookeeper.connect, timeout, environment.ClockInUse(), log));
}

ClusterLink::ClusterLink(std::shared_ptr<zookeeper::Session> session, zookeeper::Tree tree,
                         const std::string& process, const Part& part, bool fallback, std::string servers,
                         std::chrono::milliseconds operation_timeout, const Clock& clock, Logger& log)
    : process_(process),
      servers_(std::move(servers)),
      operation_timeout_(operation_timeout),
      tree_(std::move(tree)),
      session_(std::move(session)),
      clock_(clock),
      watch_(part.options.watch),
      membership_(part.memory == nullptr
                      ? std::nullopt
                      : std::make_optional<zookeeper::Membership>(tree_, part.options, *session_,
                                                                  *part.memory, clock, random_, log)),
      witness_(tree_, process_, *session_, clock, membership_ ? &*membership_ : nullptr),
      fence_(witness_, fallback, clock, random_, log, membership_ ? &*membership_ : nullptr),
      entry_(tree_, *session_, log) {}

Result<void> ClusterLink::Contribute(core::MarkStore& marks) {
  const auto known = service::KnownFrom(marks);
  LEAF_RETURN_IF_ERROR(known());
  fence_.StepMembership(known);
  fence_.LeaveMembership();
  return {};
}

Result<void> ClusterLink::RaiseWitness(std::string_view tag, std::uint64_t end) {
  LEAF_ASSIGN_OR_RETURN(auto seen, witness_.Load(tag));
  return fence_.CatchUp(tag, std::move(seen), end);
}

service::CommandPart ClusterLink::Command(core::MarkStore& marks) {
  LEAF_CHECK(membership_);
  return {{.fence = fence_, .membership = *membership_, .marks = marks, .clock = clock_}, watch_};
}

std::string ClusterLink::name() const { return fmt::format("{} at {}", tree_.Witnesses(), servers_); }

Result<std::uint64_t> ClusterLink::RaiseMark(core::NewTag& tag) {
  LEAF_ASSIGN_OR_RETURN(const zookeeper::ClusterRecords records, ReadCluster());
  if (records.incarnation && !records.incarnation->settled) {
    return Error{
        ErrorCode::kUnavailable,
        fmt::format(
            "cannot add tag {}: ZooKeeper lost data ({}), and not all nodes have reported their grants yet",
            Quoted(tag.tag), records.incarnation->why),
        fmt::format("retry; if nodes are lost: leafctl cluster recover --confirm {} --beyond IDS",
                    ShellWord(cluster()))};
  }
  LEAF_ASSIGN_OR_RETURN(const auto look, fence_.See(tag.tag));
  if (look.away) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("cannot add tag {}: the witness {} cannot be used, and only it knows what was "
                             "granted under this name",
                             Quoted(tag.tag), name()),
                 "retry when ZooKeeper answers again"};
  }
  tag.mark = std::max(tag.mark, look.state.end);
  return look.state.end;
}

void ClusterLink::Announce(std::vector<std::string> urls) {
  const std::string id = fmt::format("{:016x}{:016x}", random_.Next(), random_.Next());
  if (membership_) membership_->SetDaemon(id);
  entry_.Begin(id, {sys::HostName(), process_, std::move(urls)});
}

Result<std::vector<zookeeper::DaemonRecord>> ClusterLink::Daemons() {
  return zookeeper::ReadDaemonRoster(*session_, tree_);
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
  if (status.membership) {
    dependency.went_back = status.membership->went_back;
    using State = core::MembershipStatus::State;
    const auto ready = membership_->Ready();
    // A node that joins for the first time is no problem; one that cannot is.
    if (!dependency.problem && !ready.ok() &&
        (status.membership->state != State::kJoining || ready.error().code != ErrorCode::kUnavailable))
      dependency.problem = ready.error();
  }
  return dependency;
}

}  // namespace leaf::embed
