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
                 "find out which program wrote it; once it is deleted, it is created again, above this "
                 "node's own mark"};
  }
  return core::WitnessState{record->end,           node->stat.version, std::move(record->claim),
                            std::move(record->by), record->at,         record->strict};
}

}  // namespace

ZookeeperWitness::ZookeeperWitness(Tree tree, std::string process, Client& client, const Clock& clock,
                                   Membership* membership)
    : tree_(std::move(tree)),
      process_(std::move(process)),
      client_(client),
      clock_(clock),
      membership_(membership) {}

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

Result<std::optional<bool>> ZookeeperWitness::RaiseWith(std::string_view tag, const core::WitnessState& seen,
                                                        std::uint64_t end, std::string_view claim,
                                                        std::vector<Operation> checks) {
  LEAF_CHECK(end > seen.end);
  return Write(tag, seen, {end, std::string(claim), process_, clock_.Wall(), seen.strict}, std::move(checks));
}

Result<std::optional<bool>> ZookeeperWitness::Write(std::string_view tag, const core::WitnessState& seen,
                                                    const WitnessRecord& record,
                                                    std::vector<Operation> checks) {
  const std::string path = tree_.Witness(tag);
  std::string data = FormatWitness(record);
  if (seen.version == Operation::kAnyVersion) {
    // After 2^32 grants of one tag. ZooKeeper would take it for "whatever it is".
    return Error{ErrorCode::kRefused, fmt::format("{} in ZooKeeper was written too often", Quoted(path)),
                 "stop the daemons and delete it: it is created again, above all their marks"};
  }
  const std::size_t own = checks.size();
  std::vector<Operation> operations = std::move(checks);
  operations.push_back(seen.version ? Operation::Set(path, std::move(data), *seen.version)
                                    : Operation::CreateOwn(path, std::move(data)));
  LEAF_ASSIGN_OR_RETURN(WriteOutcome written, client_.Write(operations));
  if (!seen.version && written.conflict == WriteOutcome::Conflict::kMissing && written.at == own) {
    // The first tag of a cluster.
    LEAF_RETURN_IF_ERROR(EnsureFolders(client_, tree_, tree_.SegmentFolders()));
    LEAF_ASSIGN_OR_RETURN(written, client_.Write(operations));
  }
  if (!written.done() && written.at < own) return std::optional<bool>();
  return std::optional<bool>(written.done());
}

Result<bool> ZookeeperWitness::Raise(std::string_view tag, const core::WitnessState& seen, std::uint64_t end,
                                     std::string_view claim) {
  LEAF_ASSIGN_OR_RETURN(const auto raised, RaiseWith(tag, seen, end, claim, {}));
  return raised.value_or(false);
}

Result<bool> ZookeeperWitness::NoteStrict(std::string_view tag, const core::WitnessState& seen,
                                          const std::optional<core::StrictMark>& strict) {
  // With its claim: a claim whose reply was lost is still found.
  WitnessRecord record{seen.end, seen.claim, seen.raised_by, seen.raised_at, strict};
  if (!seen.version) {
    record.by = process_;
    record.at = clock_.Wall();
  }
  LEAF_ASSIGN_OR_RETURN(const auto noted, Write(tag, seen, record, {}));
  return noted.value_or(false);
}

Result<bool> ZookeeperWitness::Claim(std::string_view tag, const core::WitnessState& seen, std::uint64_t end,
                                     std::string_view claim) {
  if (membership_ == nullptr) return Raise(tag, seen, end, claim);
  // The second time after a heartbeat of this node that came in between.
  constexpr int kTries = 4;
  for (int i = 0; i < kTries; ++i) {
    LEAF_ASSIGN_OR_RETURN(auto checks, membership_->Checks());
    LEAF_ASSIGN_OR_RETURN(const auto raised, RaiseWith(tag, seen, end, claim, std::move(checks)));
    if (raised) return *raised;
    LEAF_RETURN_IF_ERROR(membership_->LookAgain());
  }
  return Error{ErrorCode::kUnavailable, "the record of this node keeps changing", "retry later"};
}

}  // namespace leaf::zookeeper
