// What is counted on of a node of Java Leaf, or of its best-known fork, that had this node's address or
// number before, or has it still.
#pragma once

#include <chrono>

namespace leaf::core {

// It tells the time this often: to its node in ZooKeeper (SnowflakeZookeeperHolder), the fork also to its row
// or its local file. leafctl does the same for it.
inline constexpr std::chrono::milliseconds kJavaReport{3000};
// So this is how long a live one can look dead (PR #56 of Leaf waits as long), and how far its IDs may be
// beyond what it last told.
inline constexpr std::chrono::milliseconds kJavaWatch{4000};
inline constexpr std::chrono::milliseconds kJavaMargin{4000};

}  // namespace leaf::core
