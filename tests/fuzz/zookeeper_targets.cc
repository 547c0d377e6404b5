// Names and contents of znodes, and whole namespaces.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fuzz/expect.h"
#include "fuzz/targets.h"
#include "leaf/base/limits.h"
#include "leaf/inspect/zookeeper_snapshot.h"
#include "leaf/inspect/zookeeper_workers.h"
#include "leaf/zookeeper/connect_string.h"
#include "leaf/zookeeper/tree.h"
#include "leaf/zookeeper/witness.h"
#include "support/zookeeper_fakes.h"

namespace leaf::fuzz {
namespace {

using zookeeper::Operation;
using zookeeper::Tree;

constexpr std::int64_t kNowMillis = 1'795'000'000'000;

template <typename Record>
void ExpectSame(const Record& a, const Record& b) {
  LEAF_CHECK(a == b);
}
void ExpectSame(const zookeeper::PropertiesRecord& a, const zookeeper::PropertiesRecord& b) {
  LEAF_CHECK(zookeeper::CheckSameProperties(a, b, "it").ok());
}

template <typename Record>
void RoundTrip(std::string_view input, Result<Record> (*parse)(std::string_view),
               std::string (*format)(const Record&)) {
  const auto record = parse(input);
  if (!record.ok()) {
    LEAF_CHECK(record.error().code == ErrorCode::kInvalidArgument);
    return ExpectOneLine(record.error().message);
  }
  const std::string text = format(*record);
  const auto again = parse(text);
  LEAF_CHECK(again.ok());
  ExpectSame(*again, *record);
  LEAF_CHECK(format(*again) == text);
}

void Forever(std::string_view text) {
  const auto data = zookeeper::ParseForeverData(text);
  if (!data.ok()) return ExpectOneLine(data.error().message);
  const std::string address = data->ip + ":" + data->port;
  const auto again =
      zookeeper::ParseForeverData(zookeeper::FormatForeverData(address, WallTimeOf(data->timestamp_ms)));
  LEAF_CHECK(again.ok() && again->timestamp_ms == data->timestamp_ms);
  if (data->port.find(':') == std::string::npos) LEAF_CHECK(*again == *data);
}

void Recycle(std::string_view text) {
  const auto data = zookeeper::ParseRecycleData(text);
  if (!data.ok()) return ExpectOneLine(data.error().message);
  if (data->timestamp_ms) LEAF_CHECK(*data->timestamp_ms >= 0);
}

struct Kind {
  std::string_view name;
  void (*run)(std::string_view text);
};
constexpr Kind kKinds[] = {
    {"forever", Forever},
    {"recycle", Recycle},
    {"cluster",
     [](std::string_view s) { RoundTrip(s, zookeeper::ParseProperties, zookeeper::FormatProperties); }},
    {"owner", [](std::string_view s) { RoundTrip(s, zookeeper::ParseOwner, zookeeper::FormatOwner); }},
    {"address", [](std::string_view s) { RoundTrip(s, zookeeper::ParseAddress, zookeeper::FormatAddress); }},
    {"ceiling", [](std::string_view s) { RoundTrip(s, zookeeper::ParseCeiling, zookeeper::FormatCeiling); }},
    {"lease", [](std::string_view s) { RoundTrip(s, zookeeper::ParseLease, zookeeper::FormatLease); }},
    {"temporary",
     [](std::string_view s) { RoundTrip(s, zookeeper::ParseTemporary, zookeeper::FormatTemporary); }},
    {"witness", [](std::string_view s) { RoundTrip(s, zookeeper::ParseWitness, zookeeper::FormatWitness); }},
    {"daemon", [](std::string_view s) { RoundTrip(s, zookeeper::ParseDaemon, zookeeper::FormatDaemon); }},
    {"node", [](std::string_view s) { RoundTrip(s, zookeeper::ParseNode, zookeeper::FormatNode); }},
    {"incarnation",
     [](std::string_view s) { RoundTrip(s, zookeeper::ParseIncarnation, zookeeper::FormatIncarnation); }},
};

// %XX undone, for the names of witnesses.
std::string Unescaped(std::string_view name) {
  std::string text;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '%') {
      text += name[i];
      continue;
    }
    LEAF_CHECK(i + 2 < name.size());
    text += static_cast<char>(std::stoi(std::string(name.substr(i + 1, 2)), nullptr, 16));
    i += 2;
  }
  return text;
}

void ExpectParentsFirst(const std::vector<std::string>& folders) {
  std::set<std::string> made{""};
  for (const std::string& folder : folders) {
    LEAF_CHECK(folder.starts_with('/'));
    LEAF_CHECK(made.count(folder.substr(0, folder.rfind('/'))) > 0);
    made.insert(folder);
  }
}

// A namespace made from the input, as operators, Java nodes, daemons and strangers may have left it: one
// "[~]path data" a line, ~ for a node that a session holds; "java retired" and "moving PATH" are what is
// known about it.
class World {
 public:
  explicit World(std::string_view input) : client(servers), session_(servers.NewSession()) {
    for (const std::string& folder : tree.Folders()) servers.Create(folder, "");
    options.now = WallTimeOf(kNowMillis);
    while (!input.empty()) Read(TakeLine(input));
  }

  inspect::WorkerInspection Inspect() {
    return inspect::Inspect(inspect::ReadSnapshot(client, tree).value(), options, properties);
  }

  const Tree tree = Tree::Make("pay").value();
  const zookeeper::PropertiesRecord properties{{"pay", "zookeeper", core::IdLayout()}, false};
  inspect::InspectionOptions options;
  testing::MemoryZooKeeper servers;
  testing::MemoryClient client;

 private:
  void Read(std::string_view line) {
    if (line == "java retired") {
      options.java_retired = true;
      return;
    }
    const bool held = line.starts_with('~');
    if (held) line.remove_prefix(1);
    const std::size_t space = std::min(line.find(' '), line.size());
    const std::string_view name = line.substr(0, space);
    const std::string_view data = line.substr(std::min(space + 1, line.size()));
    if (name == "moving") {
      options.moving.insert(Path(data));
      return;
    }
    const std::string path = Path(name);
    // What a server would not take.
    if (!Tree::Make("any", path).ok()) return;
    if (path.ends_with('-') && !held) {
      servers.Apply({Operation::CreateSequential(path, std::string(data))}, 0);
    } else {
      servers.Apply({held ? Operation::CreateEphemeral(path, std::string(data))
                          : Operation::Create(path, std::string(data))},
                    session_);
    }
  }
  // Our own folders are found without their parent's name.
  std::string Path(std::string_view name) const {
    const std::string folder(name.substr(0, name.find('/')));
    const bool own = servers.Find(tree.Own() + "/" + folder).has_value() || folder == "cluster";
    return fmt::format("{}/{}", own ? tree.Own() : tree.Base(), name);
  }

  const std::int64_t session_;
};

// An address and a number, however wrong, may be in some machine's local file.
bool MayComeBack(std::string_view name) {
  const auto parsed = zookeeper::ParseForeverName(name);
  if (!parsed) return false;
  const std::string_view address = parsed->address;
  const std::size_t colon = address.rfind(':');
  return colon != std::string_view::npos && colon + 1 < address.size() &&
         address.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
}

// The latest time that is known to bound what a number issued, wherever it stands.
std::map<std::uint64_t, std::int64_t> Bounds(const testing::MemoryZooKeeper::Nodes& nodes, const Tree& tree) {
  std::map<std::uint64_t, std::int64_t> bounds;
  const auto raise = [&](std::optional<std::uint64_t> worker, std::optional<WallTime> time) {
    if (worker && time) bounds[*worker] = std::max(bounds[*worker], UnixMillis(*time));
  };
  for (const auto& [path, node] : nodes) {
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) continue;
    const std::string folder = path.substr(0, slash);
    const std::string name = path.substr(slash + 1);
    if (folder == tree.Ceilings()) {
      if (const auto record = zookeeper::ParseCeiling(node.data); record.ok())
        raise(zookeeper::ParseNumberName(name), record->ceiling);
    } else if (folder == tree.Leases()) {
      if (const auto record = zookeeper::ParseLease(node.data); record.ok())
        raise(zookeeper::ParseNumberName(name), record->ceiling);
    } else if (folder == tree.Forever()) {
      const auto parsed = zookeeper::ParseForeverName(name);
      const auto record = zookeeper::ParseForeverData(node.data);
      if (MayComeBack(name) && record.ok()) raise(parsed->worker, WallTimeOf(record->timestamp_ms));
    }
  }
  return bounds;
}

}  // namespace

void ZnodeNames(std::string_view input) {
  const std::string_view name = TakeLine(input);
  if (const auto forever = zookeeper::ParseForeverName(name)) {
    LEAF_CHECK(forever->worker < (std::uint64_t{1} << 31));
    const bool ours = zookeeper::FormatForeverName(forever->address, forever->worker) == name;
    LEAF_CHECK(forever->canonical == (ours && zookeeper::ValidateAddress(forever->address).ok()));
  }
  if (const auto number = zookeeper::ParseNumberName(name)) LEAF_CHECK(std::to_string(*number) == name);
  if (const auto number = zookeeper::ParseRecycleName(name))
    LEAF_CHECK(fmt::format("workId:{}", *number) == name);

  const std::string witness = zookeeper::WitnessName(name);
  LEAF_CHECK(witness.size() <= name.size() * 3 && !witness.starts_with('.'));
  LEAF_CHECK(witness.find('/') == std::string::npos);
  ExpectOneLine(witness);
  LEAF_CHECK(Unescaped(witness) == name);
  if (!name.empty()) LEAF_CHECK(zookeeper::ParseWitnessName(witness) == name);
  if (const auto tag = zookeeper::ParseWitnessName(name))
    LEAF_CHECK(!tag->empty() && zookeeper::WitnessName(*tag) == name);

  if (const auto address = zookeeper::ValidateAddress(name); address.ok()) {
    const auto again = zookeeper::ParseForeverName(zookeeper::FormatForeverName(name, 7));
    LEAF_CHECK(again && again->canonical && again->address == name && again->worker == 7);
  } else {
    ExpectNames(address.error(), name);
  }
  if (const auto tree = Tree::Make(name); tree.ok()) {
    LEAF_CHECK(tree->cluster() == name && tree->Base() == fmt::format("/snowflake/{}", name));
    ExpectParentsFirst(tree->Folders());
    ExpectParentsFirst(tree->SegmentFolders());
  } else {
    ExpectNames(tree.error(), name);
  }
  if (const auto tree = Tree::Make("pay", name); tree.ok()) {
    LEAF_CHECK(tree->Base() == fmt::format("{}/pay", name));
    ExpectParentsFirst(tree->Folders());
    ExpectParentsFirst(tree->SegmentFolders());
  } else {
    ExpectNames(tree.error(), name);
  }
}

void ZnodeRecords(std::string_view input) {
  const std::string_view name = TakeLine(input);
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return kind.run(input);
  }
}

void ZnodeTree(std::string_view input) {
  World world(input);
  const auto before = world.servers.Snapshot();
  const inspect::WorkerInspection first = world.Inspect();
  for (const inspect::WorkerFinding& finding : first.findings) {
    LEAF_CHECK(!finding.code.empty() && !finding.cause.empty() && !finding.remedy.empty());
    LEAF_CHECK(finding.repairable == finding.left.empty());
  }
  for (const std::uint64_t worker : {0U, 1U, 1023U}) {
    for (const bool leases : {false, true}) {
      const auto plan =
          inspect::PlanRelease(inspect::ReadSnapshot(world.client, world.tree).value(), worker, leases);
      LEAF_CHECK(plan.ok() || plan.error().code == ErrorCode::kNotFound ||
                 plan.error().code == ErrorCode::kRefused);
    }
  }
  for (const inspect::RepairStep& step : first.steps) {
    LEAF_CHECK(!step.changes.empty());
    const auto outcome = world.client.Write(inspect::OperationsOf(world.tree, step));
    LEAF_CHECK(outcome.ok() && outcome->done());
  }
  const auto after = world.servers.Snapshot();
  const auto bounds = Bounds(after, world.tree);
  for (const auto& [worker, bound] : Bounds(before, world.tree)) {
    const auto found = bounds.find(worker);
    LEAF_CHECK(found != bounds.end() && found->second >= bound);  // no ceiling is ever lowered
  }
  for (const auto& [path, node] : before) {
    const auto kept = after.find(path);
    if (world.options.moving.count(path) > 0)
      LEAF_CHECK(kept == after.end() || kept->second.data == node.data);
    if (kept != after.end()) continue;
    LEAF_CHECK(node.stat.ephemeral_owner == 0);
    const std::size_t slash = path.rfind('/');
    if (path.substr(0, slash) == world.tree.Forever()) LEAF_CHECK(!MayComeBack(path.substr(slash + 1)));
  }
  LEAF_CHECK(world.Inspect().steps.empty());
}

void Witness(std::string_view input) {
  const Tree tree = Tree::Make("pay").value();
  testing::MemoryZooKeeper servers;
  testing::MemoryClient client(servers);
  testing::FakeClock clock;
  for (const std::string& folder : tree.SegmentFolders()) servers.Create(folder, "");
  const std::string path = tree.Witness("order");
  servers.Create(path, std::string(input));
  zookeeper::ZookeeperWitness witness(tree, "test", client, clock);
  const auto state = witness.Load("order");
  const auto all = witness.LoadAll({"order", "new"});
  LEAF_CHECK(all.ok() && all->size() == 2 && (*all)[1].has_value());
  LEAF_CHECK((*all)[0].has_value() == state.ok());
  if (!state.ok()) {
    LEAF_CHECK(state.error().code == ErrorCode::kRefused);
    return ExpectNames(state.error(), path);
  }
  LEAF_CHECK(state->end <= kMaxIdLimit);
  if (state->end == kMaxIdLimit) return;
  const auto raised = witness.Raise("order", *state, state->end + 1, "claim");
  LEAF_CHECK(raised.ok() && *raised);
  // What was read before counts no more.
  const auto stale = witness.Raise("order", *state, state->end + 1, "other");
  LEAF_CHECK(stale.ok() && !*stale);
  const auto again = witness.Load("order");
  LEAF_CHECK(again.ok() && again->end == state->end + 1 && again->claim == "claim");
}

void ConnectString(std::string_view input) {
  const auto connect = zookeeper::ParseConnectString(input);
  if (!connect.ok()) {
    LEAF_CHECK(connect.error().code == ErrorCode::kConfig);
    return ExpectNames(connect.error(), input);
  }
  LEAF_CHECK(connect->chroot.empty() ||
             (connect->chroot.starts_with('/') && !connect->chroot.ends_with('/')));
  ExpectOneLine(connect->chroot);
  const auto again = zookeeper::ParseConnectString(connect->hosts + connect->chroot);
  LEAF_CHECK(again.ok() && again->hosts == connect->hosts && again->chroot == connect->chroot);
  std::string_view rest = connect->hosts;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view server = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    // Brackets stand around a host or nowhere.
    const std::string_view host = server.substr(0, server.rfind(':'));
    const std::size_t bracket = host.find_first_of("[]", host.starts_with('[') ? 1 : 0);
    LEAF_CHECK(bracket == (host.starts_with('[') ? host.size() - 1 : std::string_view::npos));
    LEAF_CHECK(!host.starts_with('[') || host.ends_with(']'));
  }
}

}  // namespace leaf::fuzz
