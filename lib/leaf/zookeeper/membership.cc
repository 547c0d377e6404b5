#include "leaf/zookeeper/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/zookeeper/folders.h"
#include "leaf/zookeeper/registry_options.h"

namespace leaf::zookeeper {
namespace {

// What one Step does at most, one after the other, before the next one goes on.
constexpr int kRoundsMax = 12;

}  // namespace

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
  status_.why = "this node has not reached ZooKeeper yet";
}

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
    others_[id].covered = others_[id].beat = beat;
  }
  for (const auto& [id, beat] : memory_.beats) {
    if (const auto found = others_.find(id); found != others_.end())
      found->second.beat = std::max(found->second.beat, beat);
  }
  const auto away = clock_.Wall() - memory_.at;
  was_forgotten_ = !is_new_ && away >= kNodeForgotten;
  touched_at_ = clock_.Boot();
  // A wall clock that was set back does not tell for how long it was away.
  const BootTime::duration most = kNodeForgotten;
  if (!is_new_) touched_at_ -= away < -kAwayMax ? most : std::clamp<BootTime::duration>(away, {}, most);
  loaded_ = true;
  const MutexLock lock(mutex_);
  id_ = memory_.id;
  return {};
}

Result<Membership::Look> Membership::Read() const {
  std::string id;
  {
    const MutexLock lock(mutex_);
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
  const MutexLock lock(mutex_);
  return {.contributed = contributed,
          .beat = std::max(memory_.beat, look.own ? look.own->beat : 0) + 1,
          .claims = !is_new_ || !left || (look.own && look.own->claims),
          .left = left,
          .daemon = daemon_,
          .host = options_.host,
          .process = options_.process,
          .at = clock_.Wall()};
}

Result<void> Membership::Save(bool opens) {
  // A node that is new, and ends before it has watched, is new once more.
  if (is_new_ && !opens) return {};
  memory_.others.clear();
  memory_.covered.clear();
  memory_.beats.clear();
  for (const auto& [id, other] : others_) {
    if (!other.is_covered()) {
      memory_.others.push_back(id);
      if (other.beat > 0) memory_.beats.emplace_back(id, other.beat);
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
      Close(State::kJoining, "this node has not reached ZooKeeper");
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
        log_.Debug("cannot register this node in {}: {}", tree_.Nodes(), next.error().message);
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
  // Whether or not it could claim before: others may have found out meanwhile, or may be granted more before
  // the servers go back.
  const MonotonicTime now = clock_.Monotonic();
  const bool is_away = begun - touched_at_ > kAwayMax;
  // While it waits, only what it sees all the time is watched.
  if (is_away || (wait_until_ && now - in_touch_at_ > kLostTouch)) BeginToWait();
  in_touch_at_ = now;
  // That something can be read is no heartbeat. While nodes report their grants there is none, and no claim.
  if (is_away || (look.incarnation && !look.incarnation->settled)) touched_at_ = begun;
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
    const MutexLock lock(mutex_);
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

Result<Membership::Next> Membership::Beat(const Look& look, bool waits) {
  const BootTime begun = clock_.Boot();
  const NodeRecord record = OwnRecord(look, look.number(), waits);
  LEAF_ASSIGN_OR_RETURN(
      const WriteOutcome beat,
      client_.Write({Operation::Set(tree_.Node(memory_.id), FormatNode(record), look.own_version),
                     Operation::Check(tree_.Incarnation(), look.incarnation_version)}));
  if (!beat.done()) return Next::kLookAgain;
  // What a command claims is to be seen in the record, too. But where that is a daemon's, and does not say
  // that it has left, the daemon may be there.
  beats_ = beats_ || !options_.one_shot || look.own->left || look.own->daemon.empty();
  touched_at_ = begun;
  {
    const MutexLock lock(mutex_);
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

void Membership::Leave() {
  const bool joined = is_open();
  Close(State::kJoining, "this node has stopped claiming");
  if (!loaded_ || options_.is_passive) return;
  const auto look = Read();
  if (!look.ok() || !look->own) return;
  if (is_new_) {
    // It never claimed, and no node needs to remember it.
    if (!look->own->claims)
      (void)client_.Write({Operation::Delete(tree_.Node(memory_.id), look->own_version)});
    return;
  }
  // Not where another process of this directory goes on, nor where others wait for what this node was
  // granted: a node that has left is not waited for.
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
    log_.Warning("cannot store how far this node has got in {}: {}", tree_.Nodes(), saved.error().message);
}

}  // namespace leaf::zookeeper
