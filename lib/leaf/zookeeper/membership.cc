#include "leaf/zookeeper/membership.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <utility>

#include "leaf/base/duration.h"
#include "leaf/base/text.h"
#include "leaf/base/time.h"
#include "leaf/zookeeper/folders.h"
#include "leaf/zookeeper/registry_options.h"

namespace leaf::zookeeper {
namespace {

// What one Step does at most, one after the other, before the next one goes on.
constexpr int kRoundsMax = 12;
// Records of so many other nodes are read with each heartbeat; of more of them, once a minute.
constexpr std::size_t kOthersEachTime = 64;
constexpr std::size_t kWitnessesAtOnce = 1000;
// A node that waits for others, and sees nothing for so long, begins again.
constexpr std::chrono::seconds kLostTouch{8};

std::string OutOfTouch() {
  return "this node has not been in touch with ZooKeeper for " +
         FormatDuration(std::chrono::milliseconds{kAwayMax});
}

}  // namespace

std::vector<ClusterRecords::Node> ClusterRecords::Missing() const {
  std::vector<Node> missing;
  if (!incarnation || incarnation->settled) return missing;
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(missing), [this](const Node& node) {
    return !node.record.left && node.record.contributed < incarnation->number;
  });
  return missing;
}

Result<ClusterRecords> ReadCluster(Client& client, const Tree& tree) {
  ClusterRecords records;
  LEAF_ASSIGN_OR_RETURN(const auto children, client.Children(tree.Nodes()));
  std::vector<std::string> paths{tree.Incarnation()};
  auto ids = children.value_or(std::vector<std::string>{});
  std::sort(ids.begin(), ids.end());
  for (const std::string& id : ids) paths.push_back(tree.Node(id));
  LEAF_ASSIGN_OR_RETURN(const auto nodes, client.GetAll(paths));
  if (nodes[0]) {
    auto record = ParseIncarnation(nodes[0]->data);
    if (!record.ok()) return UnusableNode(paths[0], record.error());
    records.incarnation = std::move(*record);
    records.incarnation_version = nodes[0]->stat.version;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!nodes[i + 1]) continue;
    auto record = ParseNode(nodes[i + 1]->data);
    if (!record.ok()) return UnusableNode(paths[i + 1], record.error());
    records.nodes.push_back({ids[i], std::move(*record), nodes[i + 1]->stat.version});
  }
  return records;
}

Result<bool> Waive(Client& client, const Tree& tree, const ClusterRecords& records,
                   const std::vector<std::string>& ids, const std::string& by, WallTime now) {
  if (!records.incarnation) return true;
  const std::uint64_t number = records.incarnation->number;
  const Operation same = Operation::Check(tree.Incarnation(), records.incarnation_version);
  const std::set<std::string> waived(ids.begin(), ids.end());
  for (const ClusterRecords::Node& node : records.nodes) {
    if (!waived.contains(node.id)) continue;
    NodeRecord record = node.record;
    record.left = true;
    record.contributed = std::max(record.contributed, number);
    LEAF_ASSIGN_OR_RETURN(
        const WriteOutcome done,
        client.Write({same, Operation::Set(tree.Node(node.id), FormatNode(record), node.version)}));
    if (!done.done()) return false;
  }
  const auto missing = records.Missing();
  IncarnationRecord settled = *records.incarnation;
  if (!settled.settled && std::all_of(missing.begin(), missing.end(),
                                      [&](const auto& node) { return waived.contains(node.id); })) {
    // A node that is waived, and those that had contributed when they were read, may have put others back
    // until then.
    LEAF_ASSIGN_OR_RETURN(const ClusterRecords again, ReadCluster(client, tree));
    if (again.incarnation_version != records.incarnation_version || !again.Missing().empty()) return false;
    settled.settled = true;
  }
  settled.by = by;
  settled.at = now;
  LEAF_ASSIGN_OR_RETURN(const WriteOutcome done,
                        client.Write({Operation::Set(tree.Incarnation(), FormatIncarnation(settled),
                                                     records.incarnation_version)}));
  return done.done();
}

Membership::Membership(Tree tree, MembershipOptions options, Client& client, core::ClusterMemoryStore& store,
                       const Clock& clock, Random& random, Logger& log)
    : tree_(std::move(tree)),
      options_(std::move(options)),
      client_(client),
      store_(store),
      clock_(clock),
      random_(random),
      log_(log),
      next_beat_(clock.Monotonic()) {
  status_.why = "this node has not been in touch with ZooKeeper yet";
}

// ---- what is asked by others
// --------------------------------------------------------------------------------------------------------

Result<void> Membership::Ready() const {
  const std::lock_guard lock(mutex_);
  if (status_.state == State::kOpen) {
    if (clock_.Boot() - beat_at_ <= kAwayMax) return {};
    return Error{ErrorCode::kUnavailable,
                 fmt::format("nothing is claimed from {}: {}", tree_.Witnesses(), OutOfTouch()),
                 "it goes on by itself"};
  }
  return Error{status_.state == State::kJoining ? why_code_ : ErrorCode::kUnavailable,
               fmt::format("nothing is claimed from {}: {}", tree_.Witnesses(), status_.why),
               status_.state == State::kGathering && !status_.waiting_for.empty()
                   ? fmt::format("start the nodes that are missing, or, if they are lost: leafctl cluster "
                                 "recover --confirm {}",
                                 tree_.cluster())
                   : "it goes on by itself"};
}

core::MembershipStatus Membership::Status() const {
  const std::lock_guard lock(mutex_);
  core::MembershipStatus status = status_;
  if (status.state == State::kOpen && clock_.Boot() - beat_at_ > kAwayMax) {
    status.state = State::kJoining;
    status.why = OutOfTouch();
  }
  return status;
}

bool Membership::is_open() const {
  const std::lock_guard lock(mutex_);
  return status_.state == State::kOpen;
}

void Membership::SetDaemon(std::string id) {
  const std::lock_guard lock(mutex_);
  daemon_ = std::move(id);
}

Result<std::vector<Operation>> Membership::Checks() const {
  LEAF_RETURN_IF_ERROR(Ready());
  const std::lock_guard lock(mutex_);
  return std::vector<Operation>{Operation::Check(tree_.Node(id_), own_version_),
                                Operation::Check(tree_.Incarnation(), incarnation_version_)};
}

Result<void> Membership::LookAgain() {
  LEAF_ASSIGN_OR_RETURN(const Look look, Read());
  {
    const std::lock_guard lock(mutex_);
    if (status_.state == State::kOpen) {
      if (IsWhole(look)) {
        // A heartbeat of ours, or of another process of this directory.
        own_version_ = std::max(own_version_, look.own_version);
        own_beat_ = std::max(own_beat_, look.own->beat);
        incarnation_version_ = std::max(incarnation_version_, look.incarnation_version);
        return {};
      }
      CloseLocked(State::kJoining, "what ZooKeeper says of this node has changed");
    }
  }
  return Ready();
}

Error Membership::WitnessWentBack(std::string_view tag, const core::WitnessState& seen, std::uint64_t end) {
  {
    const std::lock_guard lock(mutex_);
    if (status_.state == State::kOpen) {
      suspicion_ = Suspicion{tree_.Witness(tag), seen.version, end};
      CloseLocked(State::kJoining, fmt::format("the witness of tag {} says {}, and this node knows of {}",
                                               Quoted(tag), seen.end, end));
    }
  }
  const auto ready = Ready();
  return ready.ok() ? Error{ErrorCode::kUnavailable, "what ZooKeeper remembers has changed", "retry"}
                    : ready.error();
}

// ---- one step
// ------------------------------------------------------------------------------------------------------------

Result<void> Membership::Load() {
  if (loaded_) return {};
  LEAF_ASSIGN_OR_RETURN(memory_, store_.LoadMemory(tree_.Base()));
  if (memory_.id.empty()) {
    memory_.id = fmt::format("{:016x}{:016x}", random_.Next(), random_.Next());
    LEAF_RETURN_IF_ERROR(store_.SaveMemory(tree_.Base(), memory_));
    // Another process of this directory may have named it meanwhile.
    LEAF_ASSIGN_OR_RETURN(memory_, store_.LoadMemory(tree_.Base()));
  }
  is_new_ = memory_.incarnation == 0;
  for (const std::string& id : memory_.others) others_[id].moved_at = clock_.Monotonic();
  for (const auto& [id, beat] : memory_.covered) {
    others_[id].moved_at = clock_.Monotonic();
    others_[id].covered = beat;
  }
  const auto away = clock_.Wall() - memory_.at;
  was_forgotten_ = !is_new_ && away >= kNodeForgotten;
  if (!is_new_ && (away > kAwayMax || away < -kAwayMax)) BeginToWait();
  loaded_ = true;
  const std::lock_guard lock(mutex_);
  id_ = memory_.id;
  return {};
}

Result<Membership::Look> Membership::Read() const {
  std::string id;
  {
    const std::lock_guard lock(mutex_);
    id = id_;
  }
  const std::vector<std::string> paths{tree_.Node(id), tree_.Incarnation()};
  LEAF_ASSIGN_OR_RETURN(const auto nodes, client_.GetAll(paths));
  Look look;
  if (nodes[0]) {
    auto record = ParseNode(nodes[0]->data);
    if (!record.ok()) return UnusableNode(paths[0], record.error());
    look.own = std::move(*record);
    look.own_version = nodes[0]->stat.version;
  }
  if (nodes[1]) {
    auto record = ParseIncarnation(nodes[1]->data);
    if (!record.ok()) return UnusableNode(paths[1], record.error());
    look.incarnation = std::move(*record);
    look.incarnation_version = nodes[1]->stat.version;
  }
  return look;
}

bool Membership::IsWhole(const Look& look) const {
  return look.own && look.number() == incarnation_ && look.own->beat >= own_beat_ &&
         look.own->contributed == look.number() && look.incarnation->settled && !look.own->left;
}

bool Membership::WentBack(const Look& look) const {
  return look.number() < memory_.incarnation || !look.own ||
         (look.number() == memory_.incarnation && look.own->beat < memory_.beat);
}

void Membership::BeginToWait() {
  in_touch_at_ = clock_.Monotonic();
  wait_until_ = in_touch_at_ + options_.watch;
  // A record that moved unseen may have moved before the servers went back.
  for (auto& [id, other] : others_) other.moved = other.is_watched = false;
}

NodeRecord Membership::OwnRecord(const Look& look, std::uint64_t contributed, bool left) {
  const std::lock_guard lock(mutex_);
  return {.contributed = contributed,
          .beat = std::max(memory_.beat, look.own ? look.own->beat : 0) + 1,
          .claims = !is_new_ || !left || (look.own && look.own->claims),
          .left = left,
          .daemon = daemon_,
          .host = options_.host,
          .process = options_.process,
          .at = clock_.Wall()};
}

void Membership::Close(State state, std::string why, std::vector<std::string> waiting_for) {
  if (std::exchange(told_, why) != why) {
    if (state == State::kJoining) {
      log_.Info("nothing is claimed from {}: {}", tree_.Witnesses(), why);
    } else {
      log_.Warning("nothing is claimed from {}: {}", tree_.Witnesses(), why);
    }
  }
  const std::lock_guard lock(mutex_);
  CloseLocked(state, std::move(why));
  status_.waiting_for = std::move(waiting_for);
}

void Membership::Fail(const Error& why) {
  Close(State::kJoining, why.message);
  const std::lock_guard lock(mutex_);
  if (why.code == ErrorCode::kPermission || why.code == ErrorCode::kConfig || why.code == ErrorCode::kRefused)
    why_code_ = why.code;
}

void Membership::CloseLocked(State state, std::string why) {
  why_code_ = ErrorCode::kUnavailable;
  if (status_.state == State::kOpen) ++era_;
  status_.state = state;
  status_.why = std::move(why);
}

std::uint64_t Membership::Era() const {
  const std::lock_guard lock(mutex_);
  return era_;
}

void Membership::Open(const Look& look, BootTime in_touch) {
  if (!std::exchange(told_, "").empty())
    log_.Info("ranges are claimed from {}, in incarnation {} of the cluster", tree_.Witnesses(),
              look.number());
  has_opened_ = true;
  wait_until_.reset();
  gathering_since_.reset();
  next_beat_ = clock_.Monotonic() + kNodeHeartbeat;
  const auto here = std::count_if(others_.begin(), others_.end(),
                                  [](const auto& other) { return !other.second.record.left; });
  const std::lock_guard lock(mutex_);
  if (suspicion_) return;  // for the next step
  incarnation_ = look.number();
  own_beat_ = look.own->beat;
  beat_at_ = in_touch;
  own_version_ = look.own_version;
  incarnation_version_ = look.incarnation_version;
  status_.state = State::kOpen;
  status_.incarnation = look.number();
  status_.version = look.incarnation_version;
  status_.nodes = static_cast<std::size_t>(here) + 1;
  status_.why.clear();
  status_.waiting_for.clear();
}

Result<void> Membership::Save(bool opens) {
  // A node that is new, and ends before it has watched, is new once more.
  if (is_new_ && !opens) return {};
  memory_.others.clear();
  memory_.covered.clear();
  for (const auto& [id, other] : others_) {
    if (!other.is_covered()) {
      memory_.others.push_back(id);
    } else if (memory_.covered.size() < kCoveredMax) {
      memory_.covered.emplace_back(id, *other.covered);
    }
  }
  return store_.SaveMemory(tree_.Base(), memory_);
}

void Membership::Step(const Contribute& contribute) {
  if (is_open()) {
    // It was cut off, or did not run: others may have found out meanwhile what this node cannot tell.
    if (!Ready().ok()) {
      Close(State::kJoining, "this node has not been in touch with ZooKeeper");
      BeginToWait();
    } else if (clock_.Monotonic() < next_beat_) {
      return;
    }
  }
  for (int round = 0; round < kRoundsMax; ++round) {
    const auto next = StepOnce(contribute);
    if (next.ok() && *next == Next::kLookAgain) continue;
    if (!next.ok()) {
      // This node can still claim, as far as is known: a claim finds out by itself.
      if (is_open()) {
        log_.Debug("cannot tell {} that this node is there: {}", tree_.Nodes(), next.error().message);
      } else if (Status().state == State::kJoining) {
        Fail(next.error());
      }
    }
    break;
  }
  if (is_open()) next_beat_ = std::max(next_beat_, clock_.Monotonic() + kNodeLook);
}

Result<Membership::Next> Membership::StepOnce(const Contribute& contribute) {
  LEAF_RETURN_IF_ERROR(Load());
  const BootTime begun = clock_.Boot();
  // The daemon's goes on; before the look, which must not be older.
  if (options_.is_passive) {
    LEAF_ASSIGN_OR_RETURN(memory_, store_.LoadMemory(tree_.Base()));
  }
  LEAF_ASSIGN_OR_RETURN(const Look look, Read());
  if (options_.is_passive) {
    // The daemon may have been cut off for long, though this command is not.
    const auto away = clock_.Wall() - memory_.at;
    const bool is_away = away > kAwayMax || away < -kAwayMax;
    if (!is_away && look.own && look.incarnation && look.number() == memory_.incarnation && !WentBack(look) &&
        look.own->contributed == look.number() && look.incarnation->settled && !look.own->left) {
      Open(look, begun - std::max<BootTime::duration>(away, BootTime::duration::zero()));
      return Next::kWait;
    }
    Close(State::kJoining, "the daemon of this state directory cannot claim at present");
    return Next::kWait;
  }
  // Its record was removed, since it was away for so long: it is as good as new.
  if (!look.own && was_forgotten_ && look.number() == memory_.incarnation) {
    memory_.incarnation = 0;
    is_new_ = true;
  }
  // A new node has read a record that an earlier process took away as it ended, from a server that was
  // behind.
  if (!look.own && is_new_ && !beats_) memory_.incarnation = 0;
  if (memory_.incarnation == 0) return Join(look);
  // Since this node was here last, another one has found out that the servers went back.
  if (look.number() > memory_.incarnation) return GiveBack(look, contribute);
  if (WentBack(look)) {
    return RaiseIncarnation(
        look,
        look.own ? fmt::format("the record of {} on {} is older than it was", options_.process, options_.host)
                 : fmt::format("the record of {} on {} is gone", options_.process, options_.host),
        {});
  }
  std::optional<Suspicion> suspicion;
  {
    const std::lock_guard lock(mutex_);
    suspicion = std::exchange(suspicion_, std::nullopt);
  }
  if (suspicion) {
    Operation evidence =
        suspicion->version
            ? Operation::Check(suspicion->path, *suspicion->version)
            : Operation::CreateOwn(suspicion->path, FormatWitness({suspicion->end, "put back",
                                                                   options_.process, clock_.Wall()}));
    return RaiseIncarnation(look, fmt::format("{} is lower than it was", suspicion->path),
                            {std::move(evidence)});
  }
  if (look.own->contributed < look.number()) return GiveBack(look, contribute);
  if (!look.incarnation->settled) return Settle(look);
  LEAF_RETURN_IF_ERROR(ReadOthers());
  if (const auto why = Waits()) {
    Close(State::kWatching, *why);
    if (clock_.Monotonic() < next_beat_) return Next::kWait;
    return Beat(look, /*waits=*/true);
  }
  if (options_.one_shot && !beats_ && !look.own->left) {
    // Another process's, which may be there.
    Open(look, begun);
    return Next::kWait;
  }
  return Beat(look, /*waits=*/false);
}

Result<Membership::Next> Membership::Join(const Look& look) {
  if (look.own && look.incarnation) {
    memory_.incarnation = look.number();
    memory_.beat = std::max(memory_.beat, look.own->beat);
    BeginToWait();
    return Next::kLookAgain;
  }
  std::vector<Operation> operations;
  if (!look.incarnation) {
    operations.push_back(
        Operation::CreateOwn(tree_.Incarnation(), FormatIncarnation({.number = 1,
                                                                     .settled = true,
                                                                     .why = "the first node of this cluster",
                                                                     .by = options_.process,
                                                                     .at = clock_.Wall()})));
  }
  // It has left until its first claim: no node has to count on it.
  if (!look.own)
    operations.push_back(Operation::CreateOwn(tree_.Node(memory_.id), FormatNode(OwnRecord(look, 0, true))));
  LEAF_ASSIGN_OR_RETURN(const WriteOutcome made, client_.Write(operations));
  if (made.conflict == WriteOutcome::Conflict::kMissing)
    LEAF_RETURN_IF_ERROR(EnsureFolders(client_, tree_, tree_.SegmentFolders()));
  return Next::kLookAgain;
}

Result<Membership::Next> Membership::RaiseIncarnation(const Look& look, const std::string& why,
                                                      std::vector<Operation> evidence) {
  const std::uint64_t number = std::max(look.number(), memory_.incarnation) + 1;
  const std::string record = FormatNode(OwnRecord(look, 0, false));
  const std::string incarnation = FormatIncarnation(
      {.number = number, .settled = false, .why = why, .by = options_.process, .at = clock_.Wall()});
  std::vector<Operation> operations = std::move(evidence);
  operations.push_back(look.own ? Operation::Set(tree_.Node(memory_.id), record, look.own_version)
                                : Operation::CreateOwn(tree_.Node(memory_.id), record));
  operations.push_back(look.incarnation
                           ? Operation::Set(tree_.Incarnation(), incarnation, look.incarnation_version)
                           : Operation::CreateOwn(tree_.Incarnation(), incarnation));
  Close(State::kJoining, "ZooKeeper may have gone back: " + why);
  LEAF_ASSIGN_OR_RETURN(const WriteOutcome raised, client_.Write(operations));
  if (raised.conflict == WriteOutcome::Conflict::kMissing) {
    LEAF_RETURN_IF_ERROR(EnsureFolders(client_, tree_, tree_.SegmentFolders()));
    return Next::kLookAgain;
  }
  // What was read was old, or another node was faster.
  if (!raised.done()) return Next::kLookAgain;
  log_.Error(
      "ZooKeeper went back: {}. All nodes of the cluster make known again what they were granted "
      "(incarnation "
      "{}); until they have, none claims a range",
      why, number);
  // That this node takes part in it is remembered once it has contributed.
  Close(State::kGathering, "ZooKeeper went back: " + why);
  const std::lock_guard lock(mutex_);
  ++status_.went_back;
  status_.incarnation = number;
  return Next::kLookAgain;
}

Result<Membership::Next> Membership::GiveBack(const Look& look, const Contribute& contribute) {
  if (look.number() > memory_.incarnation) {
    Close(State::kGathering,
          fmt::format("ZooKeeper went back, as another node has found out ({}): all nodes make "
                      "known again what they were granted",
                      look.incarnation->why));
  }
  if (!look.own) {
    LEAF_ASSIGN_OR_RETURN(const WriteOutcome made,
                          client_.Write({Operation::Check(tree_.Incarnation(), look.incarnation_version),
                                         Operation::CreateOwn(tree_.Node(memory_.id),
                                                              FormatNode(OwnRecord(look, 0, is_new_)))}));
    if (made.conflict == WriteOutcome::Conflict::kMissing)
      LEAF_RETURN_IF_ERROR(EnsureFolders(client_, tree_, tree_.SegmentFolders()));
    return Next::kLookAgain;
  }
  if (!look.incarnation->settled) {
    LEAF_ASSIGN_OR_RETURN(const Next put, PutBackOthers(look));
    if (put == Next::kLookAgain) return put;
  }
  LEAF_ASSIGN_OR_RETURN(const bool has_marks, contribute());
  // A state directory of an older version has marks, and no memory.
  if (is_new_ && has_marks && !was_forgotten_) wait_until_.reset();
  const NodeRecord record = OwnRecord(look, look.number(), !has_opened_);
  LEAF_ASSIGN_OR_RETURN(
      const WriteOutcome given,
      client_.Write({Operation::Check(tree_.Incarnation(), look.incarnation_version),
                     Operation::Set(tree_.Node(memory_.id), FormatNode(record), look.own_version)}));
  if (!given.done()) return Next::kLookAgain;
  memory_.incarnation = look.number();
  memory_.beat = record.beat;
  {
    const std::lock_guard lock(mutex_);
    status_.incarnation = look.number();
  }
  LEAF_RETURN_IF_ERROR(Save());
  return Next::kLookAgain;
}

// Nodes that this one knows of, and whose grants it may not know: they have to contribute, too.
Result<Membership::Next> Membership::PutBackOthers(const Look& look) {
  std::vector<std::string> ids;
  std::vector<std::string> paths;
  for (const auto& [id, other] : others_) {
    if (other.is_covered()) continue;
    ids.push_back(id);
    paths.push_back(tree_.Node(id));
  }
  if (ids.empty()) return Next::kWait;
  LEAF_ASSIGN_OR_RETURN(const auto nodes, client_.GetAll(paths));
  Next next = Next::kWait;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    NodeRecord record = others_[ids[i]].record;
    Operation put = Operation::CreateOwn(paths[i], "");
    if (nodes[i]) {
      auto stored = ParseNode(nodes[i]->data);
      if (!stored.ok()) return UnusableNode(paths[i], stored.error());
      if (!stored->left || stored->contributed >= look.number()) continue;
      record = std::move(*stored);
      put = Operation::Set(paths[i], "", nodes[i]->stat.version);
    }
    record.left = false;
    record.contributed = std::min(record.contributed, look.number() - 1);
    put.data = FormatNode(record);
    LEAF_ASSIGN_OR_RETURN(
        const WriteOutcome done,
        client_.Write({Operation::Check(tree_.Incarnation(), look.incarnation_version), std::move(put)}));
    if (!done.done()) next = Next::kLookAgain;
  }
  return next;
}

Result<Membership::Next> Membership::Settle(const Look& look) {
  const auto list = [&]() -> Result<std::vector<std::string>> {
    LEAF_ASSIGN_OR_RETURN(auto children, client_.Children(tree_.Nodes()));
    auto ids = children.value_or(std::vector<std::string>{});
    std::sort(ids.begin(), ids.end());
    return ids;
  };
  LEAF_ASSIGN_OR_RETURN(const std::vector<std::string> ids, list());
  std::vector<std::string> paths;
  paths.reserve(ids.size());
  for (const std::string& id : ids) paths.push_back(tree_.Node(id));
  LEAF_ASSIGN_OR_RETURN(const auto nodes, client_.GetAll(paths));
  if (!gathering_since_ || gathering_ != look.number()) {
    gathering_ = look.number();
    gathering_since_ = clock_.Monotonic();
  }
  std::vector<std::string> waiting_for;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!nodes[i]) return Next::kLookAgain;
    const auto record = ParseNode(nodes[i]->data);
    if (!record.ok()) {
      waiting_for.push_back(UnusableNode(paths[i], record.error()).message);
      continue;
    }
    if (ids[i] != memory_.id && (record->claims || !record->left)) {
      Other& other = Seen(ids[i], *record, nodes[i]->stat.version);
      // What it was granted is among what this node has made known.
      if (!record->left && record->contributed < look.number() && other.is_covered()) {
        NodeRecord left = *record;
        left.left = true;
        LEAF_ASSIGN_OR_RETURN(
            const WriteOutcome done,
            client_.Write({Operation::Check(tree_.Incarnation(), look.incarnation_version),
                           Operation::Set(paths[i], FormatNode(left), nodes[i]->stat.version)}));
        (void)done;
        return Next::kLookAgain;
      }
    }
    if (!record->left && record->contributed < look.number())
      waiting_for.push_back(fmt::format("{} ({} on {}, last there at {})", ids[i], record->process,
                                        record->host, FormatRfc3339(record->at)));
  }
  // A node puts back those that it knows of before it says that it has contributed: a list that is the same
  // after all of them have said so is complete.
  LEAF_ASSIGN_OR_RETURN(const std::vector<std::string> again, list());
  if (again != ids) return Next::kLookAgain;
  LEAF_RETURN_IF_ERROR(Save());
  if (!waiting_for.empty()) {
    Close(State::kGathering,
          fmt::format("ZooKeeper went back ({}), and what was granted to {} is not known yet",
                      look.incarnation->why, fmt::join(waiting_for, ", ")),
          waiting_for);
    return Next::kWait;
  }
  // Each node that is there has found out by then, and said so.
  if (clock_.Monotonic() < *gathering_since_ + options_.watch) {
    Close(State::kGathering,
          fmt::format("ZooKeeper went back ({}): nodes that nobody knows of have {} to show up",
                      look.incarnation->why, FormatDuration(options_.watch)));
    return Next::kWait;
  }
  // The records, too: each was read at a moment of its own, and one that had left may have been put back
  // after that, by a node that had contributed when it was read.
  LEAF_ASSIGN_OR_RETURN(const auto same, client_.GetAll(paths));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!same[i] || same[i]->stat.version != nodes[i]->stat.version) return Next::kLookAgain;
  }
  IncarnationRecord settled = *look.incarnation;
  settled.settled = true;
  settled.by = options_.process;
  settled.at = clock_.Wall();
  LEAF_ASSIGN_OR_RETURN(const WriteOutcome done,
                        client_.Write({Operation::Check(tree_.Node(memory_.id), look.own_version),
                                       Operation::Set(tree_.Incarnation(), FormatIncarnation(settled),
                                                      look.incarnation_version)}));
  if (done.done())
    log_.Info("all nodes of the cluster have made known what they were granted (incarnation {})",
              settled.number);
  return Next::kLookAgain;
}

Result<void> Membership::ReadOthers() {
  LEAF_ASSIGN_OR_RETURN(const auto children, client_.Children(tree_.Nodes()));
  LEAF_ASSIGN_OR_RETURN(const auto daemons, client_.Children(tree_.Daemons()));
  std::vector<std::string> ids;
  std::vector<std::string> paths;
  for (const std::string& id : children.value_or(std::vector<std::string>{})) {
    if (id == memory_.id) continue;
    const auto known = others_.find(id);
    // Of very many, one in twelve each time.
    if (known != others_.end() && others_.size() > kOthersEachTime && !wait_until_ &&
        random_.Below(static_cast<std::uint64_t>(std::chrono::minutes{1} / kNodeHeartbeat)) != 0)
      continue;
    ids.push_back(id);
    paths.push_back(tree_.Node(id));
  }
  LEAF_ASSIGN_OR_RETURN(const auto nodes, client_.GetAll(paths));
  bool changed = false;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!nodes[i]) continue;
    // One that cannot be read has to be waited for if it comes to that.
    const auto record = ParseNode(nodes[i]->data);
    // One that has left, and could never claim, is missed by nobody.
    if (!record.ok() || (record->left && !record->claims)) continue;
    const auto known = others_.find(ids[i]);
    const bool was_known = known != others_.end();
    const bool was_covered = was_known && known->second.is_covered();
    const bool is_covered = Seen(ids[i], *record, nodes[i]->stat.version).is_covered();
    changed = changed || !was_known || is_covered != was_covered;
  }
  std::set<std::string> known;
  for (const auto& [id, other] : others_) known.insert(other.record.daemon);
  {
    const std::lock_guard lock(mutex_);
    known.insert(daemon_);
    const auto all = daemons.value_or(std::vector<std::string>{});
    status_.older_daemons = static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [&](const std::string& id) { return !known.contains(id); }));
  }
  // Before this node's record says that it was here.
  if (changed) LEAF_RETURN_IF_ERROR(Save());
  return {};
}

Membership::Other& Membership::Seen(const std::string& id, const NodeRecord& record, std::int32_t version) {
  const auto [found, added] = others_.try_emplace(id);
  Other& other = found->second;
  if (added) {
    other.moved_at = clock_.Monotonic();
  } else if (other.is_seen && other.record.beat != record.beat) {
    other.moved = other.moved || other.is_watched;
    other.moved_at = clock_.Monotonic();
  }
  other.is_seen = true;
  other.is_watched = true;
  other.record = record;
  other.version = version;
  return other;
}

std::optional<std::string> Membership::Waits() {
  if (!wait_until_) return std::nullopt;
  const MonotonicTime now = clock_.Monotonic();
  // Only what was seen all the time was watched.
  if (now - std::exchange(in_touch_at_, now) > kLostTouch) BeginToWait();
  if (now >= *wait_until_) return std::nullopt;
  if (is_new_) {
    return fmt::format(
        "this node is new, and waits for {} before its first claim: others would have found out by then if "
        "ZooKeeper had gone back",
        FormatDuration(options_.watch));
  }
  std::vector<std::string> unmoved;
  bool knows_others = false;
  bool has_moved = false;
  for (const auto& [id, other] : others_) {
    has_moved = has_moved || other.moved;
    if (other.is_covered()) continue;
    knows_others = true;
    if (!other.record.left && !other.moved)
      unmoved.push_back(fmt::format("{} on {}", other.record.process, other.record.host));
  }
  if (!knows_others || (unmoved.empty() && has_moved)) return std::nullopt;
  return fmt::format("this node was away, and waits for others to show that they are there{}, {} at most",
                     unmoved.empty() ? "" : fmt::format(" ({})", fmt::join(unmoved, ", ")),
                     FormatDuration(options_.watch));
}

Result<Membership::Next> Membership::Beat(const Look& look, bool waits) {
  const BootTime begun = clock_.Boot();
  const NodeRecord record = OwnRecord(look, look.number(), waits);
  LEAF_ASSIGN_OR_RETURN(
      const WriteOutcome beat,
      client_.Write({Operation::Set(tree_.Node(memory_.id), FormatNode(record), look.own_version),
                     Operation::Check(tree_.Incarnation(), look.incarnation_version)}));
  if (!beat.done()) return Next::kLookAgain;
  beats_ = true;
  {
    const std::lock_guard lock(mutex_);
    ++status_.heartbeats;
  }
  Look now = look;
  now.own_version = beat.parts[0].stat ? beat.parts[0].stat->version : look.own_version + 1;
  now.own = record;
  beat_version_ = now.own_version;
  memory_.beat = record.beat;
  if (waits) {
    next_beat_ = clock_.Monotonic() + kNodeHeartbeat;
    LEAF_RETURN_IF_ERROR(Save());
    return Next::kWait;
  }
  memory_.at = clock_.Wall();
  LEAF_RETURN_IF_ERROR(Save(/*opens=*/true));
  is_new_ = false;
  Open(now, begun);
  if (!options_.one_shot) LEAF_RETURN_IF_ERROR(Cover(now));
  return Next::kWait;
}

// A node that is gone for good is not to be missed for ever: what it was granted is remembered here.
Result<void> Membership::Cover(const Look& look) {
  const MonotonicTime now = clock_.Monotonic();
  if (covered_at_ && now - *covered_at_ < kCoverInterval) return {};
  std::vector<std::string> gone;
  for (auto& [id, other] : others_) {
    const bool is_gone =
        other.record.left ? now - other.moved_at >= kNodeLeft : now - other.moved_at >= kNodeGone;
    if (other.is_covered() || !is_gone) continue;
    if (!other.record.left) {
      // It cannot claim after this without changing its record.
      NodeRecord left = other.record;
      left.left = true;
      LEAF_ASSIGN_OR_RETURN(const WriteOutcome done,
                            client_.Write({Operation::Check(tree_.Incarnation(), look.incarnation_version),
                                           Operation::Set(tree_.Node(id), FormatNode(left), other.version)}));
      // No record: its owner has to join before it claims, and finds out that this has been removed.
      const bool removed = done.conflict == WriteOutcome::Conflict::kMissing && done.at == 1;
      if (!done.done() && !removed) continue;
      if (removed) {
        other.record.left = true;
        gone.push_back(id);
        continue;
      }
      log_.Info("{} on {} has not been seen for {}: it is no longer counted on", left.process, left.host,
                FormatDuration(std::chrono::duration_cast<std::chrono::milliseconds>(kNodeGone)));
      other.record = left;
      other.version = done.parts[1].stat ? done.parts[1].stat->version : other.version + 1;
    }
    gone.push_back(id);
  }
  if (!gone.empty()) {
    covered_at_ = now;
    LEAF_RETURN_IF_ERROR(KeepWitnesses());
    for (const std::string& id : gone) others_[id].covered = others_[id].record.beat;
    LEAF_RETURN_IF_ERROR(Save());
  }
  for (auto other = others_.begin(); other != others_.end();) {
    if (!other->second.is_covered() || !other->second.is_seen || !other->second.record.left ||
        clock_.Wall() - other->second.record.at < kNodeForgotten) {
      ++other;
      continue;
    }
    LEAF_ASSIGN_OR_RETURN(
        const WriteOutcome removed,
        client_.Write({Operation::Delete(tree_.Node(other->first), other->second.version)}));
    (void)removed;  // if it has moved, the next look says so
    other = others_.erase(other);
  }
  return {};
}

Result<void> Membership::KeepWitnesses() {
  LEAF_ASSIGN_OR_RETURN(const auto children, client_.Children(tree_.Witnesses()));
  const auto names = children.value_or(std::vector<std::string>{});
  std::vector<std::pair<std::string, std::uint64_t>> ends;
  for (std::size_t begin = 0; begin < names.size(); begin += kWitnessesAtOnce) {
    std::vector<std::string> paths;
    const std::size_t end = std::min(names.size(), begin + kWitnessesAtOnce);
    for (std::size_t i = begin; i < end; ++i) paths.push_back(tree_.Witnesses() + "/" + names[i]);
    LEAF_ASSIGN_OR_RETURN(const auto nodes, client_.GetAll(paths));
    for (std::size_t i = 0; i < paths.size(); ++i) {
      const auto tag = ParseWitnessName(names[begin + i]);
      if (!nodes[i] || !tag) continue;
      // No node can claim from one that cannot be read.
      if (const auto record = ParseWitness(nodes[i]->data); record.ok()) ends.emplace_back(*tag, record->end);
    }
  }
  return store_.RaiseWitnesses(ends);
}

void Membership::Leave() {
  const bool joined = is_open();
  Close(State::kJoining, "this node has stopped claiming");
  if (!loaded_ || options_.is_passive) return;
  const auto look = Read();
  if (!look.ok() || !look->own) return;
  if (is_new_) {
    // It never claimed, and nobody needs to remember it.
    if (!look->own->claims)
      (void)client_.Write({Operation::Delete(tree_.Node(memory_.id), look->own_version)});
    return;
  }
  // Not where another process of this directory goes on, nor where others wait for what this node was
  // granted: who has left is not waited for.
  if (!joined || !beats_ || look->own_version != beat_version_ || look->own->contributed != look->number())
    return;
  const NodeRecord record = OwnRecord(*look, look->own->contributed, true);
  const auto left =
      client_.Write({Operation::Set(tree_.Node(memory_.id), FormatNode(record), look->own_version),
                     Operation::Check(tree_.Incarnation(), look->incarnation_version)});
  if (!left.ok() || !left->done()) return;
  memory_.beat = record.beat;
  memory_.at = clock_.Wall();
  if (const auto saved = Save(); !saved.ok())
    log_.Warning("cannot remember how far this node has got in {}: {}", tree_.Nodes(), saved.error().message);
}

}  // namespace leaf::zookeeper
