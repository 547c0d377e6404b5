// The files in which a Java Leaf node remembers its worker number, below
// <tmpdir>/<leaf.name>/leafconf/<port>/ (leaf.name is the cluster, the port that of the node's address).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/time.h"

namespace leaf::java {

// java.io.tmpdir on every Linux. A service with a private /tmp sees nothing there.
inline constexpr std::string_view kJavaTmpDir = "/tmp";

struct JavaWorkerFile {
  std::string path;
  std::optional<std::uint64_t> worker;  // nothing if it holds no number
  // When it was last written: IDs had times up to 3 s beyond that, or more if a write failed. Leaf itself
  // writes no time; the best-known fork does.
  std::optional<WallTime> time;
  WallTime written{};  // of the file, by this machine's clock
  friend bool operator==(const JavaWorkerFile&, const JavaWorkerFile&) = default;
};

// workerID.properties (Leaf; the fork's zk_normal adds maxTimestamp) and workerID.json (the fork's local),
// those that are there and can be read. Blocks on the disk.
std::vector<JavaWorkerFile> FindJavaWorkerFiles(std::string_view tmp_dir, std::string_view cluster,
                                                std::string_view address);

}  // namespace leaf::java
