#include "leaf/zookeeper/witness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/text.h"
#include "leaf/zookeeper/folders.h"

namespace leaf::zookeeper {
namespace {

// How many nodes are asked for at a time.
constexpr std::size_t kReadsAtOnce = 1000;

Result<core::WitnessState> StateOf(const std::string& path, const std::optional<NodeData>& node) {
  if (!node) return core::WitnessState{};
  auto record = ParseWitness(node->data);
  if (!record.ok()) {
    return Error{ErrorCode::kRefused,
                 fmt::format("cannot use {} in ZooKeeper: {}", Quoted(path), record.error().message),
                 "find out who wrote it; once it is deleted, it is made anew, above this node's own mark"};
  }
  return core::WitnessState{record->end, node->stat.version, std::move(record->claim), std::move(record->by),
                            record->at};
}

}  // namespace

ZookeeperWitness::ZookeeperWitness(Tree tree, std::string process, Client& client, const Clock& clock)
    : tree_(std::move(tree)), process_(std::move(process)), client_(client), clock_(clock) {}

Result<core::WitnessState> ZookeeperWitness::Load(std::string_view tag) {
  const std::string path = tree_.Witness(tag);
  LEAF_ASSIGN_OR_RETURN(const auto node, client_.Get(path));
  return StateOf(path, node);
}

Result<core::WitnessStates> ZookeeperWitness::LoadAll(const std::vector<std::string>& tags) {
  core::WitnessStates states;
  states.reserve(tags.size());
  for (std::size_t begin = 0; begin < tags.size(); begin += kReadsAtOnce) {
    const std::size_t end = std::min(tags.size(), begin + kReadsAtOnce);
    std::vector<std::string> paths;
    paths.reserve(end - begin);
    for (std::size_t i = begin; i < end; ++i) paths.push_back(tree_.Witness(tags[i]));
    const auto nodes = client_.GetAll(paths);
    if (!nodes.ok() && nodes.error().code != ErrorCode::kPermission) return nodes.error();
    for (std::size_t i = 0; i < paths.size(); ++i) {
      // Some may have access rules of their own: the others are read all the same.
      auto state = nodes.ok() ? StateOf(paths[i], (*nodes)[i]) : Load(tags[begin + i]);
      if (!state.ok() && state.error().code != ErrorCode::kRefused &&
          state.error().code != ErrorCode::kPermission)
        return state.error();
      states.push_back(state.ok() ? std::optional(std::move(*state)) : std::nullopt);
    }
  }
  return states;
}

Result<bool> ZookeeperWitness::Raise(std::string_view tag, const core::WitnessState& seen, std::uint64_t end,
                                     std::string_view claim) {
  LEAF_CHECK(end > seen.end);
  const std::string path = tree_.Witness(tag);
  std::string data = FormatWitness({end, std::string(claim), process_, clock_.Wall()});
  if (seen.version == Operation::kAnyVersion) {
    // After 2^32 grants of one tag. ZooKeeper would take it for "whatever it is".
    return Error{ErrorCode::kRefused, fmt::format("{} in ZooKeeper was written too often", Quoted(path)),
                 "stop the daemons and delete it: it is made anew, above every mark of theirs"};
  }
  if (seen.version) {
    LEAF_ASSIGN_OR_RETURN(const WriteOutcome set,
                          client_.Write({Operation::Set(path, std::move(data), *seen.version)}));
    return set.done();
  }
  LEAF_ASSIGN_OR_RETURN(WriteOutcome made, client_.Write({Operation::CreateOwn(path, data)}));
  if (made.conflict == WriteOutcome::Conflict::kMissing) {
    // The first tag of a cluster.
    LEAF_RETURN_IF_ERROR(EnsureFolders(client_, tree_, tree_.SegmentFolders()));
    LEAF_ASSIGN_OR_RETURN(made, client_.Write({Operation::CreateOwn(path, std::move(data))}));
  }
  return made.done();
}

}  // namespace leaf::zookeeper
