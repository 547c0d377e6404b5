// A snapshot of a cluster's namespace, sorted out, and the checks of it: groups of them, each in a file of
// its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/time.h"
#include "leaf/inspect/workers.h"
#include "leaf/inspect/zookeeper_snapshot.h"
#include "leaf/zookeeper/client.h"
#include "leaf/zookeeper/tree.h"

namespace leaf::inspect {

// A node of a kind of ours, parsed.
template <typename Record>
struct Parsed {
  std::string path;
  const zookeeper::NodeData* node = nullptr;
  std::optional<Record> record;
  std::string malformed;  // why there is no record
};

struct Forever : Parsed<zookeeper::ForeverData> {
  std::string name;
  zookeeper::ForeverName parsed;
};

struct Contents {
  explicit Contents(const Snapshot& snapshot);

  // The temporary node of the process that says now that it has this number, or this address.
  const Parsed<zookeeper::TemporaryRecord>* Live(std::uint64_t worker, const std::string& address) const;
  // The same, but not of a process at this address that says that it has another number.
  const Parsed<zookeeper::TemporaryRecord>* Holder(std::uint64_t worker, const std::string& address) const;

  std::vector<std::string> foreign;  // children of `forever` that are not Leaf's
  std::vector<Forever> forever;
  std::multimap<std::uint64_t, std::size_t> by_number;  // into forever
  std::multimap<std::string, std::size_t> by_address;
  std::map<std::uint64_t, Parsed<zookeeper::OwnerRecord>> owners;
  std::map<std::uint64_t, Parsed<zookeeper::CeilingRecord>> ceilings;
  std::map<std::uint64_t, Parsed<zookeeper::LeaseRecord>> leases;
  std::map<std::string, Parsed<zookeeper::AddressRecord>> holds;
  std::map<std::string, Parsed<zookeeper::TemporaryRecord>> temporaries;
  std::multimap<std::uint64_t, Parsed<zookeeper::RecycleData>> recycled;  // used and unused
  std::vector<std::string> bad_names;  // in folders whose children are numbers
};

struct AddressParts {
  std::string_view host;
  std::string_view port;
};
// Nothing if it does not end in a port. The host may be empty: Java's is, if it finds no interface.
std::optional<AddressParts> TakeApart(std::string_view address);

// A time, or a number that is none.
std::string TimeText(std::int64_t unix_millis);

// Changes of a step; of a node as it was read.
RepairChange CreateNode(const std::string& path, std::string data);
RepairChange NodeAbsent(const std::string& path);
RepairChange WriteNode(const std::string& path, const zookeeper::NodeData& node, std::string data);
RepairChange RemoveNode(const std::string& path, const zookeeper::NodeData& node);

// What the groups have in common.
class NamespaceChecks {
 public:
  struct Shared {
    const Snapshot& snapshot;
    const InspectionOptions& options;
    const zookeeper::PropertiesRecord& configured;
    const Contents contents;
    WorkerInspection result{};
    std::set<std::string> made{};                            // folders
    std::map<std::uint64_t, zookeeper::NodeData> planned{};  // ceilings, as the steps so far leave them
  };

  explicit NamespaceChecks(Shared& shared)
      : shared_(shared),
        snapshot_(shared.snapshot),
        tree_(shared.snapshot.tree),
        options_(shared.options),
        contents_(shared.contents),
        result_(shared.result) {}

 protected:
  using Words = WorkerInspection::Words;

  void Leave(std::string code, std::string subject, Words words, std::string why) {
    result_.Leave(std::move(code), std::move(subject), std::move(words), std::move(why));
  }
  void Mend(std::string code, std::string subject, Words words, std::string what,
            std::vector<RepairChange> changes) {
    result_.Mend(std::move(code), std::move(subject), std::move(words), std::move(what), std::move(changes));
  }
  // What is reported beyond that is in the future.
  std::int64_t LatestMillis() const { return UnixMillis(options_.now + options_.ahead_max); }
  // Null if there is none.
  const Parsed<zookeeper::CeilingRecord>* FindCeiling(std::uint64_t worker) const;
  // The change that raises the ceiling of a number to `ceiling` at least, and applies `edit` to its record.
  // Two steps can raise one ceiling: the second builds on what the first leaves. Requires: the stored
  // ceiling, if there is one, is well-formed.
  RepairChange RaiseCeiling(std::uint64_t worker, WallTime ceiling,
                            const std::function<void(zookeeper::CeilingRecord&)>& edit);
  // Where there were Java nodes only, our folders are missing.
  void EnsureFolder(const std::string& folder);

  Shared& shared_;
  const Snapshot& snapshot_;
  const zookeeper::Tree& tree_;
  const InspectionOptions& options_;
  const Contents& contents_;
  WorkerInspection& result_;
};

// In this order.
void CheckForever(NamespaceChecks::Shared& shared);  // and the namespace as a whole
void CheckBesideForever(NamespaceChecks::Shared& shared);

}  // namespace leaf::inspect
