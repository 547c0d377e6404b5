// What is known of how far a tag was granted: by this state directory, by the database, by daemons, and by
// the witness of a cluster. A tag that is frozen is repaired above all of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemons.h"
#include "leaf/base/result.h"
#include "leaf/client/daemon_client.h"
#include "leaf/config/loader.h"
#include "leaf/core/ports.h"
#include "leaf/embed/cluster_link.h"
#include "leaf/embed/environment.h"
#include "leaf/sql/segment_store.h"
#include "leaf/zookeeper/daemon_roster.h"
#include "tag_output.h"

namespace leaf::cmd {

// Where a mark is known from, how high it is (0: none there), and what else is known of it; "" where nothing
// is.
struct KnownMark {
  std::string where;
  std::uint64_t end = 0;
  std::string raised_at;
  std::string raised_by;
  std::string frozen_since;
  std::string max_id_seen;
};

// A node that may hold the highest mark of all, and could not be asked.
struct Missing {
  std::string whose;
  Error why;
};

// Everything that is known of a tag's grants.
struct Evidence {
  core::TagRow row;
  std::vector<KnownMark> known;
  std::vector<Missing> missing;

  std::uint64_t highest() const {
    std::uint64_t end = 0;
    for (const KnownMark& mark : known) end = std::max(end, mark.end);
    return end;
  }
  bool IsBelow(std::uint64_t target) const {
    return row.max_id < 0 || static_cast<std::uint64_t>(row.max_id) < target;
  }
};

KnownMark LocalKnownMark(const std::string& state_dir, const core::Mark& mark);
KnownMark DaemonKnownMark(const std::string& name, const client::NodeMark& mark);

// As DaemonClient::Mark. A daemon that says that it is asked too often (its limit is kMissesPerSecondMax) is
// asked again, for up to half a minute.
// `ending`: not any more once it says so.
Result<client::NodeMark> AskForMark(client::DaemonClient& daemon, const std::string& tag, const Clock& clock,
                                    const std::function<bool()>& ending = nullptr);

// Whether it is a socket, a loopback address or a wildcard, with or without TLS: these mean another daemon on
// another machine.
bool IsLocalUrl(const std::string& url);

// All that may hold a mark. Looked up once, then asked tag by tag. Not thread-safe.
class MarkSources {
 public:
  // All of it outlives the sources.
  struct Ports {
    embed::Environment& environment;
    const config::Resolved& resolved;
    sql::SqlSegmentStore& segments;
    std::function<Result<embed::ClusterLink*>()> cluster;  // null for the node fence; called once
    std::chrono::milliseconds ask_timeout;                 // for each daemon
    std::function<void(const std::string&)> warn;          // one line, without an end
    // Whether this process ends: then no other daemon is asked. None: it does not.
    std::function<bool()> ending = nullptr;
  };
  explicit MarkSources(Ports ports) : ports_(std::move(ports)), daemons_(FindDaemons(ports_.resolved)) {}

  // Errors: those of the state directory and of ClusterLink::Open.
  Result<void> Open();
  // What cannot be asked is in `missing`. Errors: those of the database. Requires: Open.
  Result<Evidence> Collect(const core::TagRow& row);

 private:
  void AskCluster(Evidence& evidence);
  void AskRegistered(Evidence& evidence, const zookeeper::DaemonRecord& daemon);
  void Ask(Evidence& evidence, const std::vector<std::string>& urls, const std::string& name,
           bool may_be_absent);
  struct Asked {
    std::vector<std::string> urls;
    std::string token;
  };
  Asked WhomToAsk(const std::vector<std::string>& urls) const;
  std::string NameOf(client::DaemonClient& daemon, const std::string& name) const;

  const Ports ports_;
  const Daemons daemons_;
  std::string token_;
  std::map<std::string, core::Mark> local_;
  embed::ClusterLink* cluster_ = nullptr;
  std::optional<Result<std::vector<zookeeper::DaemonRecord>>> registered_;
  std::map<std::string, Error> silent_;  // by name
  std::set<std::string> asked_;          // of the tag at hand
};

// `row`: as it is now, or would be.
Json RepairJson(const Evidence& evidence, const core::TagRow& row);

std::string MissingText(const Missing& missing);
// Without one of the marks nothing is known to be safe.
Error RefusalOf(const std::string& what, const Missing& missing, const std::string& tag);
// "move tag 'pay' from 1 to 1000".
std::string MoveText(const Evidence& evidence, std::uint64_t target);

}  // namespace leaf::cmd
