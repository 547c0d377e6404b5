#include "leaf/embed/java_ceiling.h"

#include <utility>

#include "leaf/sys/java_worker_file.h"

namespace leaf::embed {

JavaCeilingRegistry::JavaCeilingRegistry(core::WorkerRegistry& registry, std::string tmp_dir, Logger& log)
    : registry_(registry), tmp_dir_(std::move(tmp_dir)), log_(log) {}

Result<core::WorkerClaim> JavaCeilingRegistry::Claim(const core::NodeIdentity& node,
                                                     const core::ClusterProperties& cluster) {
  LEAF_ASSIGN_OR_RETURN(core::WorkerClaim claim, registry_.Claim(node, cluster));
  for (const sys::JavaWorkerFile& file : sys::FindJavaWorkerFiles(tmp_dir_, cluster.name, node.address)) {
    if (file.worker != claim.worker || !file.time) continue;
    log_.Info("Java Leaf's {} says that worker {} issued IDs until {}: none here is below that", file.path,
              claim.worker, FormatRfc3339(*file.time));
    const WallTime ceiling = *file.time + kJavaFileMargin;
    if (!claim.ceiling || *claim.ceiling < ceiling) claim.ceiling = ceiling;
  }
  return claim;
}

}  // namespace leaf::embed
