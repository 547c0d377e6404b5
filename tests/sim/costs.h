// What a cluster costs its stores: counted over all nodes of a run.
#pragma once

#include <cstdint>

namespace leaf::sim {

struct Costs {
  std::uint64_t statements = 0;  // that database servers were sent
  std::uint64_t rows = 0;        // that came back
  std::uint64_t reads = 0;       // records of ZooKeeper that were asked for
  std::uint64_t lists = 0;       // of children, and how many names they had
  std::uint64_t names = 0;
  std::uint64_t writes = 0;  // transactions
  std::uint64_t grants = 0;

  // What came since `before`.
  Costs Since(const Costs& before) const {
    return {statements - before.statements, rows - before.rows,   reads - before.reads,
            lists - before.lists,           names - before.names, writes - before.writes,
            grants - before.grants};
  }
};

}  // namespace leaf::sim
