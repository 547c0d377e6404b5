#include "leaf/java/ceiling.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "leaf/core/java_leaf.h"

namespace leaf::java {
namespace {

constexpr std::chrono::milliseconds kLook{200};

}  // namespace

JavaCeilingRegistry::JavaCeilingRegistry(core::WorkerRegistry& registry, std::string tmp_dir,
                                         const Clock& clock, Logger& log)
    : registry_(registry), tmp_dir_(std::move(tmp_dir)), clock_(clock), log_(log) {}

Result<core::WorkerClaim> JavaCeilingRegistry::Claim(const core::NodeIdentity& node,
                                                     const core::ClusterProperties& cluster) {
  auto claimed = registry_.Claim(node, cluster);
  if (!claimed.ok()) {
    LEAF_RETURN_IF_ERROR(CheckHeld(claimed.error(), node, cluster));
    return claimed;
  }
  core::WorkerClaim claim = *std::move(claimed);
  if (node.on_claimed) LEAF_RETURN_IF_ERROR(node.on_claimed(claim));
  Seen seen{cluster.name, node.address, claim.worker, {}};
  seen.files = FilesOf(seen);
  LEAF_RETURN_IF_ERROR(Watch(seen));
  for (const JavaWorkerFile& file : seen.files) {
    if (!file.time) continue;
    log_.Info("Java Leaf's {} says that worker {} issued IDs until {}: none here is below that", file.path,
              claim.worker, FormatRfc3339(*file.time));
    const WallTime ceiling = *file.time + core::kJavaMargin;
    if (!claim.ceiling || *claim.ceiling < ceiling) claim.ceiling = ceiling;
  }
  const MutexLock lock(mutex_);
  seen_ = std::move(seen);
  return claim;
}

Result<void> JavaCeilingRegistry::CheckHeld(const Error& why, const core::NodeIdentity& node,
                                            const core::ClusterProperties& cluster) const {
  const bool away = why.code == ErrorCode::kUnavailable || why.code == ErrorCode::kOutcomeUnknown;
  if (!away || !node.held || !node.former_uuid.empty()) return {};
  Seen seen{cluster.name, node.address, *node.held, {}};
  seen.files = FilesOf(seen);
  LEAF_RETURN_IF_ERROR(Watch(seen));
  const WallTime begin = std::max(clock_.Wall(), node.held_ceiling);
  for (const JavaWorkerFile& file : seen.files) {
    if (!file.time || *file.time + core::kJavaMargin <= begin) continue;
    return Error{
        ErrorCode::kClock,
        fmt::format("Java Leaf's {} says that worker {} issued IDs until {}, which is later than this "
                    "clock's {}; and the registry does not answer: {}",
                    file.path, seen.worker, FormatRfc3339(*file.time), FormatRfc3339(clock_.Wall()),
                    why.message),
        "correct the clock, or start once the registry answers"};
  }
  return {};
}

Result<void> JavaCeilingRegistry::Renew(const core::WorkerClaim& claim, WallTime ceiling) {
  {
    const MutexLock lock(mutex_);
    if (seen_) LEAF_RETURN_IF_ERROR(CheckUnmoved(*seen_));
  }
  return registry_.Renew(claim, ceiling);
}

std::vector<JavaWorkerFile> JavaCeilingRegistry::FilesOf(const Seen& seen) const {
  auto files = FindJavaWorkerFiles(tmp_dir_, seen.cluster, seen.address);
  std::erase_if(files, [&](const JavaWorkerFile& file) { return file.worker != seen.worker; });
  return files;
}

Result<void> JavaCeilingRegistry::CheckUnmoved(const Seen& seen) const {
  for (const JavaWorkerFile& file : FilesOf(seen)) {
    if (std::find(seen.files.begin(), seen.files.end(), file) != seen.files.end()) continue;
    return Error{
        ErrorCode::kRefused,
        fmt::format("a Java Leaf node is running as worker {}: it writes to {}", seen.worker, file.path),
        "stop that node: this one then claims its number again by itself"};
  }
  return {};
}

Result<void> JavaCeilingRegistry::Watch(const Seen& seen) const {
  const WallTime recent = clock_.Wall() - kJavaFileRecent;
  if (std::none_of(seen.files.begin(), seen.files.end(),
                   [&](const JavaWorkerFile& file) { return file.written > recent; }))
    return {};
  log_.Info("watching {} for {} ms: a Java Leaf node has written it recently", seen.files.front().path,
            core::kJavaWatch.count());
  const MonotonicTime end = clock_.Monotonic() + core::kJavaWatch;
  while (clock_.Monotonic() < end) {
    if (interrupted_.load())
      return Error{ErrorCode::kUnavailable, "interrupted while Java's local file was watched", ""};
    clock_.WaitUntil(std::min(end, clock_.Monotonic() + kLook));
    LEAF_RETURN_IF_ERROR(CheckUnmoved(seen));
  }
  return {};
}

}  // namespace leaf::java
