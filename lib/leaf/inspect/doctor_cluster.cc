#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "leaf/base/text.h"
#include "leaf/client/clock_probe.h"
#include "leaf/core/java_leaf.h"
#include "leaf/embed/cluster_link.h"
#include "leaf/embed/tls_files.h"
#include "leaf/embed/zookeeper_link.h"
#include "leaf/inspect/doctor_checks.h"
#include "leaf/inspect/worker_source.h"
#include "leaf/inspect/zookeeper_snapshot.h"
#include "leaf/inspect/zookeeper_workers.h"
#include "leaf/java/worker_file.h"
#include "leaf/sys/process_name.h"

namespace leaf::inspect {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPeerClockTimeout{2000};

class ClusterChecks : DoctorChecks {
 public:
  using DoctorChecks::DoctorChecks;

  void Run() {
    CheckWorkers();
    CheckFence();
  }

 private:
  void CheckWorkers() {
    if (!UsesRegistry()) return;
    auto source = WorkerSource::Open(environment_, embed::Store::Access::kExamine);
    if (!source.ok()) return Failed("registry", source.error(), "no worker number can be claimed");
    auto inspection = (*source)->Inspect();
    if (!inspection.ok()) {
      registry_away_ = inspection.error().code == ErrorCode::kUnavailable;
      return Failed("registry", inspection.error(), "no worker number can be claimed");
    }
    GradeFindings(inspection->findings, config_);
    for (const WorkerFinding& finding : inspection->findings) {
      const bool warning = finding.severity == core::Finding::Severity::kWarning;
      Add({finding.code, warning ? Level::kWarning : Level::kProblem,
           fmt::format("{}: {}", Printable(finding.subject), finding.cause), finding.consequence,
           finding.remedy, finding.subject});
    }
    if (inspection->findings.empty()) {
      Ok("registry", fmt::format("{}: {} worker numbers, nothing wrong", (*source)->registry(),
                                 inspection->entries.size()));
    }
    const auto recycled =
        std::count_if(inspection->entries.begin(), inspection->entries.end(), [](const WorkerEntry& entry) {
          return entry.kind == NumberKind::kRecycled && !entry.address.empty();
        });
    if (recycled > 0 && !config_.snowflake.recycle) {
      Warn("number-spaces", fmt::format("{} of the fork's recycled numbers are, or were, in use", recycled),
           "its nodes and leafctl nodes with fixed numbers do not see each other, and two of them may have "
           "one number",
           "stop every node of the fork in mode zk_recycle before a leafctl of this cluster starts");
    }
    if (IsShared() && !config_.snowflake.address.empty()) CheckOwnNumber(**source, *inspection);
    CheckPeers(*inspection);
    if (config_.snowflake.registry == "sql" && resolved_.IsSet("zookeeper.")) CheckForever();
  }

  static std::map<std::string, WallTime> Reports(const WorkerInspection& inspection) {
    std::map<std::string, WallTime> reports;
    for (const WorkerEntry& entry : inspection.entries) {
      if ((!entry.live || entry.java) && entry.reported)
        reports[entry.address] = std::max(reports[entry.address], *entry.reported);
    }
    return reports;
  }

  // A node that reports, but does not say that it is live, is Java Leaf. Only watching tells whether it runs.
  void CheckOwnNumber(WorkerSource& source, const WorkerInspection& inspection) {
    const std::string& address = config_.snowflake.address;
    const WorkerEntry* own = nullptr;
    for (const WorkerEntry& entry : inspection.entries) {
      if (entry.address != address || entry.kind == NumberKind::kRecycled) continue;
      // A lease keeps its last holder's address: one that another state directory has, or had, is not in the
      // way of this node, which leases another number.
      if (entry.kind == NumberKind::kLease && (!shared_.state || entry.owner != shared_.state->node_uuid))
        continue;
      own = &entry;
    }
    const std::map<std::string, WallTime> before = Reports(inspection);
    const WallTime recent = environment_.ClockInUse().Wall() - kLiveReport;
    const bool watch =
        std::any_of(before.begin(), before.end(), [&](const auto& report) { return report.second > recent; });
    std::vector<std::string> moved;
    if (watch) {
      environment_.Detail("leafctl: watching for 4 s which nodes report to the registry");
      const MonotonicTime end = environment_.ClockInUse().Monotonic() + core::kJavaWatch;
      while (environment_.ClockInUse().Monotonic() < end) environment_.ClockInUse().WaitUntil(end);
      if (const auto later = source.Inspect(); later.ok()) {
        for (const auto& [name, reported] : Reports(*later)) {
          const auto found = before.find(name);
          if (found != before.end() && found->second != reported) moved.push_back(name);
        }
      }
    }
    if (!moved.empty()) {
      Ok("java-nodes", fmt::format("running, and not leafctl: {}", fmt::join(moved, ", ")));
      if (shared_.strict_tags > 0) {
        Problem("tag-order", "nodes of Java Leaf run, and there are strict tags",
                "Java Leaf knows nothing of the order: what it is granted of a strict tag is out of order",
                "let no Java Leaf serve these tags");
      }
      if (config_.snowflake.recycle)
        Warn("java-nodes", "this node leases its number while nodes of Java Leaf run",
             "their numbers are never freed, and a node that is cut off continues unseen: leases stay above "
             "all their numbers",
             "nothing to do as long as numbers are left");
    }
    if (own == nullptr) {
      if (!shared_.state && !inspection.entries.empty() && !config_.snowflake.recycle) {
        std::vector<std::string> known;
        for (const WorkerEntry& entry : inspection.entries) known.push_back(entry.address);
        Warn(
            "own-number", fmt::format("{} has no worker number yet", address),
            fmt::format("the first start takes a new one, permanently; known are {}", fmt::join(known, ", ")),
            "if this node is one of them, set snowflake.address to that; else there is nothing to do");
      }
      return;
    }
    if (std::find(moved.begin(), moved.end(), address) != moved.end()) {
      Problem(
          "address-in-use", fmt::format("another process reports as {} (worker {})", address, own->worker),
          "two live processes with one number issue the same IDs; the other one is not leafctl, so no owner "
          "record stops it",
          "stop that Java Leaf before leafctl starts, or give this node another port in snowflake.address");
    }
    if (!own->owner.empty() && (!shared_.state || shared_.state->node_uuid != own->owner)) {
      Problem(
          "own-number",
          fmt::format("worker {} of {} belongs to another state directory{}", own->worker, address,
                      own->host.empty() ? "" : fmt::format(", on {}", own->host)),
          "a start from here is refused: its owner may continue without the registry",
          fmt::format("start with that directory, or, once it is gone for good, leafctl worker release {}",
                      own->worker));
    } else {
      Ok("own-number", fmt::format("{} has worker {}", address, own->worker));
    }
    CheckJavaFile(*own);
  }

  void CheckJavaFile(const WorkerEntry& own) {
    for (const java::JavaWorkerFile& file :
         java::FindJavaWorkerFiles(java::kJavaTmpDir, config_.snowflake.cluster, own.address)) {
      if (file.worker == own.worker) {
        Ok("java-file", fmt::format("{} has number {}, as the registry", file.path, own.worker));
        continue;
      }
      Problem(
          "java-file",
          fmt::format("{} has {}, the registry {}", file.path,
                      file.worker ? fmt::format("number {}", *file.worker) : "no number", own.worker),
          "Java Leaf may have run with either of the two: in a new namespace its first nodes all take 0, "
          "and not the number of their node",
          "decode one of its IDs (leafctl decode) while it runs, and restart it once before it is replaced");
    }
  }

  void CheckPeers(const WorkerInspection& inspection) {
    std::vector<std::string> urls;
    for (const WorkerEntry& entry : inspection.entries) {
      if (entry.live && !entry.url.empty() && entry.address != config_.snowflake.address)
        urls.push_back(entry.url);
    }
    if (urls.empty()) return;
    std::vector<std::string> older;
    const auto readings = client::ReadClocks(urls, environment_.Timeout().value_or(kPeerClockTimeout),
                                             environment_.ClockInUse(), embed::ClientTlsOf(config_.client));
    for (std::size_t i = 0; i < urls.size(); ++i) {
      if (readings[i]) {
        CompareClock("peer-clock", urls[i], readings[i]->ahead, readings[i]->uncertainty);
        if (readings[i]->version.empty()) older.push_back(urls[i]);
      } else {
        Warn("peer-clock", fmt::format("{} does not report its time", urls[i]),
             "this node's clock is compared with those of its peers",
             "check that its snowflake.advertise can be reached");
      }
    }
    if (older.empty()) return;
    Warn("older-nodes",
         fmt::format("{} node{} of a version before 0.2 ha{} a worker number: {}", older.size(),
                     older.size() == 1 ? "" : "s", older.size() == 1 ? "s" : "ve", fmt::join(older, ", ")),
         "if the registry loses data, they do not restore their records: another node may get their numbers",
         "upgrade them; this ends with the last one");
  }

  // Numbers of the same cluster elsewhere.
  void CheckForever() {
    auto tree = zookeeper::Tree::Make(config_.snowflake.cluster);
    if (!tree.ok()) return;
    const auto session = embed::OpenZookeeper(environment_, shared_.log,
                                              environment_.Timeout().value_or(embed::kZookeeperTimeout));
    if (!session.ok()) return;  // said with the fence
    const auto snapshot = ReadSnapshot(**session, *tree);
    if (!snapshot.ok() || snapshot->Children(tree->Forever()).empty()) return;
    Warn("number-spaces",
         fmt::format("{} has {} numbers, and this node takes its own from leaf_workerid_alloc",
                     tree->Forever(), snapshot->Children(tree->Forever()).size()),
         "the two registries are independent: nodes of one cluster that use both repeat IDs",
         "use one registry for each cluster name; stop the nodes that use the other");
  }

  void CheckFence() {
    if (!config_.segment.enabled) return;
    if (!embed::ClusterLink::IsConfigured(resolved_)) {
      if (config_.segment.store != "mysql") return Ok("fence", "node: only this machine uses the database");
      return Warn("fence", "node",
                  "a database that loses committed grants (a restore, a failover) grants them again: this "
                  "node notices only its own ranges",
                  "configure [zookeeper], for segment.fence = \"cluster\"");
    }
    if (registry_away_ && config_.snowflake.registry == "zookeeper") return;  // said once
    auto link = embed::ClusterLink::Open(environment_, shared_.log, sys::ProcessName("doctor"));
    const std::string cause = "no grant is used without the witness, unless segment.witness_fallback is set";
    if (!link.ok()) return Failed("fence", link.error(), cause);
    const auto daemons = (*link)->Daemons();
    if (!daemons.ok()) return Failed("fence", daemons.error(), cause);
    Ok("fence", fmt::format("cluster, {}: {} daemons; ranges that Java Leaf was granted are not in it",
                            (*link)->name(), daemons->size()));
    CheckMembers(**link, *daemons);
    CheckAccess(**link);
    if (config_.segment.witness_fallback)
      Warn("fence", "segment.witness_fallback is set",
           "while ZooKeeper is unreachable, each node notices only its own ranges",
           "unset it if waiting is better");
  }

  // What the nodes have found out about ZooKeeper, and which of them cannot.
  void CheckMembers(embed::ClusterLink& link, const std::vector<zookeeper::DaemonRecord>& daemons) {
    const auto records = link.ReadCluster();
    if (!records.ok()) {
      return Failed("cluster", records.error(), "no range is claimed from a witness that may have lost data");
    }
    std::set<std::string> takes_part;
    for (const auto& node : records->nodes) takes_part.insert(node.record.daemon);
    std::vector<std::string> older;
    for (const zookeeper::DaemonRecord& daemon : daemons) {
      if (!takes_part.contains(daemon.id)) older.push_back(Printable(daemon.process));
    }
    if (!older.empty()) {
      Warn("cluster",
           fmt::format("{} daemon{} of a version before 0.2 claim{} ranges: {}", older.size(),
                       older.size() == 1 ? "" : "s", older.size() == 1 ? "s" : "", fmt::join(older, ", ")),
           "if the database and ZooKeeper lose data together, these and the other nodes may repeat each "
           "other's IDs",
           "upgrade them; this ends with the last one");
    }
    if (!records->incarnation) return;
    const auto missing = records->Missing();
    if (records->incarnation->settled) {
      return Ok("cluster",
                fmt::format("{} nodes, incarnation {}", records->nodes.size(), records->incarnation->number));
    }
    std::vector<std::string> names;
    names.reserve(missing.size());
    for (const auto& node : missing) names.push_back(zookeeper::NodeText(node.id, node.record));
    Problem("cluster", fmt::format("ZooKeeper lost data: {}", Printable(records->incarnation->why)),
            missing.empty() ? "no node claims a range until all have reported their grants"
                            : fmt::format("no node claims a range until these have reported their grants: {}",
                                          fmt::join(names, ", ")),
            fmt::format("start them, or, if they are lost: leafctl cluster recover --confirm {} --beyond IDS",
                        ShellWord(link.cluster())));
  }

  // Where the worker numbers are elsewhere, nothing else looks at this folder.
  void CheckAccess(embed::ClusterLink& link) {
    if (UsesRegistry() && config_.snowflake.registry == "zookeeper") return;  // said with the numbers
    if (!link.session().has_credentials()) return;
    const auto nodes = ReadOpenNodes(link.session(), link.tree());
    if (!nodes.ok())
      return Failed(std::string(kOpenToEveryone), nodes.error(), "its access rules are not known");
    const auto finding = InspectAccess(link.tree(), *nodes);
    if (!finding) return;
    const WorkerFinding& open = *finding;
    Warn(open.code, fmt::format("{}: {}", Printable(open.subject), Printable(open.cause)), open.consequence,
         fmt::format("{} --set snowflake.registry=zookeeper --set snowflake.cluster={}", open.remedy,
                     Printable(link.cluster())));
  }

  bool registry_away_ = false;
};

}  // namespace

void CheckCluster(DoctorChecks::Shared& shared) { ClusterChecks(shared).Run(); }

}  // namespace leaf::inspect
