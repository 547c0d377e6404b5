// The other live nodes of the cluster: those whose clocks are compared with one's own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "leaf/base/result.h"

namespace leaf::core {

struct Peer {
  std::string address;  // "ip:port" that identifies the node
  std::string url;      // where it answers
  std::uint64_t worker = 0;
};

// Port. Thread-safe; blocks up to the adapter's own time-outs.
class PeerDirectory {
 public:
  virtual ~PeerDirectory() = default;
  // The other live nodes of the cluster, without this one, in no order. A node that died is in it until its
  // session has run out. Requires a claim before. Errors: kUnavailable, kPermission.
  virtual Result<std::vector<Peer>> LivePeers() = 0;
};

}  // namespace leaf::core
