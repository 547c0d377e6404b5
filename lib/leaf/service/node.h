// One node: the modes that it serves, started and stopped in the one order in which no ID is lost. The
// daemon, the library, one-shot commands and the simulator put their nodes together through this; only the
// ports differ.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "leaf/core/peer_clocks.h"
#include "leaf/core/peer_directory.h"
#include "leaf/service/peer_clock_watch.h"
#include "leaf/service/segment_service.h"
#include "leaf/service/snowflake_service.h"

namespace leaf::service {

// What segment mode works with. All of it outlives the node.
struct SegmentPorts {
  SegmentOptions options;
  core::SegmentStore& store;
  core::MarkStore& marks;
  Random& random;
  SegmentExecutors executors;
};

// What snowflake mode works with. All of it outlives the node.
struct SnowflakePorts {
  // How this node's clock is compared with those of others; nothing where the registry knows no others.
  struct Peers {
    PeerClockOptions options;
    core::PeerDirectory& directory;
    core::PeerClocks& clocks;
  };
  SnowflakeOptions options;  // but for check_peers and peers_verdict, which the node sets
  core::WorkerRegistry& registry;
  core::StateFile& state_file;
  Random& random;
  SnowflakeExecutors executors;
  Executor& peer_worker;
  std::optional<Peers> peers;
};

// The services it makes are thread-safe. The rest of it is for one thread, but for Halt. Stop it, or stop the
// executors, before it is destroyed.
class Node {
 public:
  // Both outlive it.
  Node(const Clock& clock, Logger& log) : clock_(clock), log_(log) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Make the services, once each. They answer from then on, with the reason why there are no IDs yet.
  void AddSegments(const SegmentPorts& ports);
  void AddSnowflakes(const SnowflakePorts& ports);

  // Null where the mode is not served.
  SegmentService* segment() { return segment_ ? &*segment_ : nullptr; }
  SnowflakeService* snowflake() { return snowflake_ ? &*snowflake_ : nullptr; }
  // Null where the registry knows no other nodes.
  PeerClockWatch* peer_clocks() { return peer_clocks_ ? &*peer_clocks_ : nullptr; }

  // Begins to read the table; returns at once. Requires: AddSegments().
  void StartSegments() { segment_->Start(); }
  // Begins to claim a number, and to look at the other nodes' clocks: see
  // SnowflakeService::StartInBackground. Requires: AddSnowflakes().
  void StartSnowflakes(SnowflakeService::Started started);

  // No mode issues or writes anything from now on, and every answer is `why`. Never blocks. Thread-safe.
  void Halt(const Error& why);
  // Both modes stop issuing, then their executors end, and at last what segment mode had in reserve is
  // written down. Blocks. Idempotent.
  void Stop();

 private:
  const Clock& clock_;
  Logger& log_;
  std::optional<SegmentService> segment_;
  std::optional<PeerClockWatch> peer_clocks_;
  std::optional<SnowflakeService> snowflake_;
  std::vector<Executor*> executors_;
  bool stopped_ = false;
};

}  // namespace leaf::service
