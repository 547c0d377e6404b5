// The witness of each tag as a persistent node beside Leaf's tree (tree.h), raised by versioned writes: one
// write a grant, none a request.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/core/witness.h"
#include "leaf/zookeeper/client.h"
#include "leaf/zookeeper/membership.h"
#include "leaf/zookeeper/tree.h"

namespace leaf::zookeeper {

// A missing node counts as "nothing granted yet": where one is deleted, its protection is gone, and each
// node's own marks remain.
class ZookeeperWitness final : public core::Witness {
 public:
  // `process`: what raises it, for people. `membership`: null to trust ZooKeeper, as nodes before 0.2 do.
  // Client, clock and membership outlive it.
  ZookeeperWitness(Tree tree, std::string process, Client& client, const Clock& clock,
                   Membership* membership = nullptr);

  Result<core::WitnessState> Load(std::string_view tag) override;
  Result<core::WitnessStates> LoadAll(const std::vector<std::string>& tags) override;
  Result<bool> Raise(std::string_view tag, const core::WitnessState& seen, std::uint64_t end,
                     std::string_view claim) override;
  Result<bool> Claim(std::string_view tag, const core::WitnessState& seen, std::uint64_t end,
                     std::string_view claim) override;
  Result<bool> NoteStrict(std::string_view tag, const core::WitnessState& seen,
                          const std::optional<core::StrictMark>& strict) override;

 private:
  // `checks`: what has to hold besides. Nothing if one of them does not.
  Result<std::optional<bool>> RaiseWith(std::string_view tag, const core::WitnessState& seen,
                                        std::uint64_t end, std::string_view claim,
                                        std::vector<Operation> checks);
  Result<std::optional<bool>> Write(std::string_view tag, const core::WitnessState& seen,
                                    const WitnessRecord& record, std::vector<Operation> checks);

  const Tree tree_;
  const std::string process_;
  Client& client_;
  const Clock& clock_;
  Membership* const membership_;
};

}  // namespace leaf::zookeeper
