// The tree of a cluster in ZooKeeper: where each node stands and what is in it. Pure functions, no
// connection.
//
//   <root>/<cluster>/forever/<ip>:<port>-NNNNNNNNNN   Leaf's own: a number for ever, the node's true time
//   <root>/<cluster>/leafctl/                         ours, beside it: Java looks at nothing but `forever`
//       cluster               what all nodes of the cluster agree on
//       owners/<number>       to which state directory a fixed number belongs
//       addresses/<ip:port>   which state directory may claim for an address, and the number it got
//       ceilings/<number>     below what time a fixed number's IDs may have been issued
//       leases/<number>       a recycled number: its generation, holder and ceiling
//       temporary/<ip:port>   ephemeral: which nodes are live, and where they answer
//       witness/<tag>         of segment mode: the highest end granted to any node; whether it is strict
//       daemons/<id>          ephemeral: which daemons issue segments, and where they answer
//       nodes/<id>            which state directories claim ranges, and what they made known (membership.h)
//       incarnation           how often this tree was found to have gone back, and whether all is known again
//   <root>/<cluster>/recycle/{notuse,inuse}/workId:<n>   of Leaf's best-known fork; of it only
//     the number that is leased is removed (fork_numbers.h)
//
// Under `forever` nothing may stand but nodes of that form, with exactly the three JSON keys: anything else
// breaks every Java node that starts (leaf-compat M1, M2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/base/time.h"
#include "leaf/core/tag_orders.h"
#include "leaf/core/worker_ports.h"

namespace leaf::zookeeper {

inline constexpr std::string_view kLeafRoot = "/snowflake";

// Absolute paths of one cluster. Immutable.
class Tree {
 public:
  // `root`: absolute, for tests and several universes in one ensemble; Leaf's by default. Errors: kConfig if
  // the name cannot stand in a path (empty, '/', '.', '..', control characters, not UTF-8).
  static Result<Tree> Make(std::string_view cluster, std::string_view root = kLeafRoot);

  const std::string& cluster() const { return cluster_; }

  std::string Base() const { return base_; }
  std::string Forever() const { return base_ + "/forever"; }
  std::string ForeverNode(std::string_view name) const { return Join(Forever(), name); }
  // What a sequential node of this address is created with.
  std::string ForeverPrefix(std::string_view address) const { return ForeverNode(address) + "-"; }

  std::string Own() const { return base_ + "/leafctl"; }
  // Whether a path is that folder's, or below it: those nodes no Java node needs to change.
  bool IsOwn(std::string_view path) const;
  std::string Properties() const { return Own() + "/cluster"; }
  std::string Owners() const { return Own() + "/owners"; }
  std::string Owner(std::uint64_t worker) const { return Join(Owners(), std::to_string(worker)); }
  std::string Addresses() const { return Own() + "/addresses"; }
  std::string Address(std::string_view address) const { return Join(Addresses(), address); }
  std::string Ceilings() const { return Own() + "/ceilings"; }
  std::string Ceiling(std::uint64_t worker) const { return Join(Ceilings(), std::to_string(worker)); }
  std::string Leases() const { return Own() + "/leases"; }
  std::string Lease(std::uint64_t worker) const { return Join(Leases(), std::to_string(worker)); }
  std::string Temporaries() const { return Own() + "/temporary"; }
  std::string Temporary(std::string_view address) const { return Join(Temporaries(), address); }

  std::string Witnesses() const { return Own() + "/witness"; }
  std::string Witness(std::string_view tag) const;
  std::string Daemons() const { return Own() + "/daemons"; }
  std::string Daemon(std::string_view id) const { return Join(Daemons(), id); }
  std::string Nodes() const { return Own() + "/nodes"; }
  std::string Node(std::string_view id) const { return Join(Nodes(), id); }
  std::string Incarnation() const { return Own() + "/incarnation"; }

  std::string RecycleUnused() const { return base_ + "/recycle/notuse"; }
  std::string RecycleUnused(std::uint64_t worker) const { return RecycleChild(RecycleUnused(), worker); }
  std::string RecycleUsed() const { return base_ + "/recycle/inuse"; }
  std::string RecycleUsed(std::uint64_t worker) const { return RecycleChild(RecycleUsed(), worker); }

  // Every folder that has to be there before a range is claimed, parents first.
  std::vector<std::string> SegmentFolders() const;
  // Every folder that has to be there before a number is claimed, parents first. `forever` comes as early as
  // it can: once it is there, Java nodes that start together no longer all become worker 0 (leaf-compat M8).
  std::vector<std::string> Folders() const;

 private:
  std::vector<std::string> RootFolders() const;
  Tree(std::string cluster, std::string root, std::string base)
      : cluster_(std::move(cluster)), root_(std::move(root)), base_(std::move(base)) {}
  static std::string Join(std::string folder, std::string_view name) {
    return folder.append("/").append(name);
  }
  static std::string RecycleChild(std::string folder, std::uint64_t worker) {
    return folder.append("/workId:").append(std::to_string(worker));
  }

  std::string cluster_;
  std::string root_;
  std::string base_;
};

// ---- names

// An address that can be claimed: "host:port" with a port in 1..65535, no '/', no control character, and no
// '-', which would break every Java node of the cluster. Errors: kConfig that names it.
Result<void> ValidateAddress(std::string_view address);

// A child of `forever`. The address is what stands before the *last* dash.
struct ForeverName {
  std::string address;
  std::uint64_t worker = 0;
  // Exactly what Leaf makes: ten digits, no further dash. A Java node can start beside any other that parses
  // only if there is no further dash.
  bool canonical = false;
  friend bool operator==(const ForeverName&, const ForeverName&) = default;
};
// Nothing if it is no node of Leaf's at all: no dash, or no number (0..2^31-1) after the last one.
std::optional<ForeverName> ParseForeverName(std::string_view name);
// "10.0.0.1:80", 7 → "10.0.0.1:80-0000000007".
std::string FormatForeverName(std::string_view address, std::uint64_t worker);

// A child of owners, ceilings or leases: plain decimal without leading zeros; nothing if it is none.
std::optional<std::uint64_t> ParseNumberName(std::string_view name);
// How a tag is called under witness/: itself where it is of letters, digits, '_', '-' and '.', with every
// other byte (and a leading '.') as %XX; so no two have the same, and none is more than a path allows.
std::string WitnessName(std::string_view tag);
// The tag of such a name; nothing if no tag is called that.
std::optional<std::string> ParseWitnessName(std::string_view name);
// A child of notuse or inuse: "workId:7".
std::optional<std::uint64_t> ParseRecycleName(std::string_view name);

// The number that the next sequential child of `forever` gets, out of its stat: children ever created.
// Deletions are counted by `child_version`, too, and free nothing (leaf-compat §6.1).
constexpr std::uint64_t NextForeverNumber(std::int64_t child_version, std::int64_t children) {
  return static_cast<std::uint64_t>((child_version + children) / 2);
}

// ---- contents
//
// Format… is what we write. Parse… of our own records is strict: every key of ours and no other, once, of the
// right type. Errors: kInvalidArgument that says what is wrong (not where: the caller knows the path).

// Leaf's own. Parsing tolerates what Java tolerates (leaf-compat §6.5): any order, a port that is a number, a
// timestamp that is missing or fractional; and refuses what makes a Java node of this address fail: no JSON,
// no object, an unknown key, empty data.
struct ForeverData {
  std::string ip;
  std::string port;
  std::int64_t timestamp_ms = 0;  // 0 if there is none
  friend bool operator==(const ForeverData&, const ForeverData&) = default;
};
// {"ip":"10.0.0.1","port":"80","timestamp":1795173800515}
std::string FormatForeverData(std::string_view address, WallTime now);
Result<ForeverData> ParseForeverData(std::string_view json);

struct PropertiesRecord {
  core::ClusterProperties cluster;
  bool recycle = false;
};
std::string FormatProperties(const PropertiesRecord& record);
Result<PropertiesRecord> ParseProperties(std::string_view json);
// core::CheckSameCluster, and the kind of numbers. Errors: kRefused.
Result<void> CheckSameProperties(const PropertiesRecord& stored, const PropertiesRecord& configured,
                                 std::string_view where);

struct OwnerRecord {
  std::string uuid;  // of the state directory
  std::string address;
  std::string host;
  WallTime since;
  friend bool operator==(const OwnerRecord&, const OwnerRecord&) = default;
};
std::string FormatOwner(const OwnerRecord& record);
Result<OwnerRecord> ParseOwner(std::string_view json);

struct AddressRecord {
  std::string uuid;                     // of the state directory that may claim
  std::optional<std::uint64_t> worker;  // nothing while its first claim is under way
  friend bool operator==(const AddressRecord&, const AddressRecord&) = default;
};
std::string FormatAddress(const AddressRecord& record);
Result<AddressRecord> ParseAddress(std::string_view json);

// Written in one transaction with every write of ours to the number's node under `forever`: if that one has
// another version or timestamp than this says, another program (Java) has written it since, and the ceiling
// does not cover what that one issued.
struct CeilingRecord {
  std::string uuid;                 // of the state directory that wrote it
  std::uint64_t generation = 0;     // raised by each claim
  std::optional<WallTime> ceiling;  // exclusive; nothing if nothing was issued yet
  std::int32_t leaf_version = 0;    // of the node under `forever`
  std::int64_t leaf_timestamp_ms = 0;
  friend bool operator==(const CeilingRecord&, const CeilingRecord&) = default;
};
std::string FormatCeiling(const CeilingRecord& record);
Result<CeilingRecord> ParseCeiling(std::string_view json);

struct LeaseRecord {
  std::uint64_t generation = 0;     // raised by each claim
  std::string uuid;                 // of the holder; "" once released
  std::string address;              // of the (last) holder
  std::optional<WallTime> ceiling;  // exclusive; nothing if nothing was issued yet
  friend bool operator==(const LeaseRecord&, const LeaseRecord&) = default;
};
std::string FormatLease(const LeaseRecord& record);
Result<LeaseRecord> ParseLease(std::string_view json);

struct TemporaryRecord {
  std::string url;  // where the node answers
  std::uint64_t worker = 0;
  std::string uuid;
  friend bool operator==(const TemporaryRecord&, const TemporaryRecord&) = default;
};
std::string FormatTemporary(const TemporaryRecord& record);
Result<TemporaryRecord> ParseTemporary(std::string_view json);

struct WitnessRecord {
  std::uint64_t end = 0;  // exclusive
  std::string claim;
  std::string by;  // the process, for people
  WallTime at;
  // Of a strict tag. Such a record is refused by versions that do not know it: they keep no order.
  std::optional<core::StrictMark> strict{};
  friend bool operator==(const WitnessRecord&, const WitnessRecord&) = default;
};
std::string FormatWitness(const WitnessRecord& record);
Result<WitnessRecord> ParseWitness(std::string_view json);

struct DaemonRecord {
  std::string host;
  std::string process;            // for people
  std::vector<std::string> urls;  // where it answers; some of them only on that host
  std::string id = "";            // what its node is called; not in the record
  friend bool operator==(const DaemonRecord&, const DaemonRecord&) = default;
};
std::string FormatDaemon(const DaemonRecord& record);
Result<DaemonRecord> ParseDaemon(std::string_view json);

// What a state directory has made known of its grants.
struct NodeRecord {
  std::uint64_t contributed = 0;  // the incarnation up to which its marks are in the witnesses; 0 for none
  // Raised by its owner; put back by other nodes, as far as they saw it. So an older tree has a lower one.
  std::uint64_t beat = 0;
  bool claims = false;  // it could claim once; before that nothing is to be missed
  bool left = false;    // it claims nothing until it has changed this
  std::string daemon;   // its entry among the daemons, or ""
  std::string host;     // these are for people
  std::string process;
  WallTime at;
  friend bool operator==(const NodeRecord&, const NodeRecord&) = default;
};
std::string FormatNode(const NodeRecord& record);
Result<NodeRecord> ParseNode(std::string_view json);

struct IncarnationRecord {
  std::uint64_t number = 0;  // from 1 on
  bool settled = false;      // every node whose grants may be forgotten has contributed
  std::string why;           // these are for people
  std::string by;
  WallTime at;
  friend bool operator==(const IncarnationRecord&, const IncarnationRecord&) = default;
};
std::string FormatIncarnation(const IncarnationRecord& record);
Result<IncarnationRecord> ParseIncarnation(std::string_view json);

// A number in the fork's recycle tree; the fork leaves everything but the number null until first use.
struct RecycleData {
  std::uint64_t worker = 0;
  std::optional<std::string> ip;
  std::optional<std::string> port;
  std::optional<std::int64_t> timestamp_ms;
  friend bool operator==(const RecycleData&, const RecycleData&) = default;
};
Result<RecycleData> ParseRecycleData(std::string_view json);

}  // namespace leaf::zookeeper
