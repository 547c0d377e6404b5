// Snowflake mode, live: claims a worker number, keeps the ceiling ahead of what is issued, and parks requests
// that the clock has to catch up with.
//
// The ceiling is extended beside the request path, by one task at a time: check the clock for a jump, make
// the new ceiling durable in the state file (and, for a lease, in the registry), and only then let IDs up to
// it be issued. Whatever fails there, issuing goes on up to the ceiling that is durable, and stops.
//
// A *term* is one claim and the generator that issues with it.
// - A fixed number has one term. Its registry is told of ceilings, but is never waited for. If it cannot be
//   asked at the start, the state file may be enough (see Start); the claim is then made up for as soon as
//   the registry answers, and ends the term for good if the number turns out to be another node's.
// - A lease that is lost ends its term. The next one has another claim, and mostly another number. So does a
//   fixed number that another program used for a while: the next term does what a restart would do, but never
//   without the registry, and only with the same number. Either begins at or above everything that this node
//   issued before, so that order is kept (promise P5).
// Invariant: of two terms of one node, at most one is not closed, and the later one's begin is at or above
// the earlier one's ceiling in the state file.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>

#include "leaf/base/clock.h"
#include "leaf/base/executor.h"
#include "leaf/base/logger.h"
#include "leaf/base/mutex.h"
#include "leaf/base/random.h"
#include "leaf/base/result.h"
#include "leaf/base/thread_counter.h"
#include "leaf/core/clock_guard.h"
#include "leaf/core/snowflake.h"
#include "leaf/core/worker_ports.h"
#include "leaf/service/snowflake_line.h"
#include "leaf/service/standing.h"
#include "leaf/service/tallies.h"

namespace leaf::service {

struct SnowflakeOptions {
  // name "" for a private cluster, local-<uuid of the state directory>; registry is taken from the registry.
  core::ClusterProperties cluster;
  // Nothing is configured that keeps this node's IDs from being another one's: the log says so, always at the
  // start, or only when the state is made.
  bool private_cluster = false;
  bool says_always_that_it_is_private = true;
  std::string address;             // "ip:port" of this node, or ""
  std::string worker_source;       // where its number comes from, for people
  std::uint64_t worker_begin = 0;  // numbers that may be claimed, half-open
  std::uint64_t worker_end = 1024;
  std::chrono::milliseconds window{3000};
  std::chrono::milliseconds start_wait{10'000};
  // Looked at whenever the ceiling is raised: a jump that the ceiling covers already is followed.
  std::chrono::milliseconds clock_jump_max{10'000};
  std::string boot_id;  // of this boot of the machine; "" if not known
  std::string machine;  // and place on it of the state directory: a copy has another; "" if not known
  // How old the registry's last answer may be for a fixed number to start without it.
  std::chrono::milliseconds offline_start_max = std::chrono::hours{24};
  // Compares the clock with those of the peers, which are asked; blocks. Empty: not done. An error is why
  // this clock cannot be trusted.
  std::function<Result<void>()> check_peers;
  // The same, of the last comparison; never blocks. Empty: there is none.
  std::function<Result<void>()> peers_verdict;
  // How many peers are of a version before 0.2, as far as is known; never blocks. Empty: none is asked.
  std::function<std::size_t()> older_peers;
  // What an operator has accepted as right in this boot (ClockGuard::OffsetOf), if anything; may block.
  std::function<std::optional<core::ClockGuard::Offset>()> accepted_offset;
};

struct SnowflakeStatus {
  bool has_worker = false;  // else worker and what follows from it say nothing
  bool leased = false;
  bool registered = false;               // the registry has confirmed this number since the start
  std::optional<WallTime> last_contact;  // when the registry last answered, as far as it is remembered
  // "claiming" (has no worker number), "starting" (waits for the clock to pass what was issued before),
  // "issuing", "stopped".
  std::string_view state;
  bool private_cluster = false;  // the IDs are unique in this state directory only
  core::ClusterProperties cluster;
  std::string node_uuid;
  std::uint64_t worker = 0;
  std::string worker_source;              // SnowflakeOptions::worker_source
  WallTime ceiling;                       // exclusive, durable
  std::chrono::milliseconds lead{};       // of issued IDs over the wall clock
  WallTime exhausted_at;                  // the last millisecond of the layout
  std::optional<Error> problem;           // why the ceiling could not be extended
  std::optional<Error> registry_problem;  // the registry could not be told; a fixed number goes on
  bool exhaustion_near = false;           // less than two years
  std::size_t older_peers = 0;            // SnowflakeOptions::older_peers
};

struct SnowflakeExecutors {
  Executor& timers;
  Executor& ceilings;  // where the ceiling is raised: nothing else may keep it waiting
  Executor& registry;  // where the registry of a fixed number is told, however long that takes
};

// Thread-safe, but for Start. Adapters, clock and executors outlive it; stop the executors before destroying
// it.
class SnowflakeService final : private SnowflakeLine::Source {
 public:
  using NextCallback = SnowflakeLine::Callback;

  SnowflakeService(SnowflakeOptions options, core::WorkerRegistry& registry, core::StateFile& state_file,
                   const Clock& clock, Random& random, const SnowflakeExecutors& executors, Logger& log);

  // Claims a number and makes the first ceiling durable; blocks meanwhile. If the clock has to pass what an
  // earlier process may have issued, that is waited for after the return (see CanIssue). Once, and before
  // anything else.
  // A registry that does not answer is done without if the number is fixed, the state was written on this
  // machine, and the last contact is no older than offline_start_max.
  // Errors: kClock (too far behind or ahead, with the figures, or peers disagree), kOverflow (the layout has
  // ended), kRefused (state or cluster properties do not fit), and those of StateFile and WorkerRegistry.
  Result<void> Start();
  // The same, but never blocks, and what may pass (an outage, a registry with no free lease, a password that
  // is put right) is tried again until it has. `started` is called once, on an executor, with the result of
  // the first attempt: ok, also if it goes on trying. Of an error it returns whether the starter ends with
  // it, and then nothing is tried any more: a starter that waits no longer when a slow attempt ends has no
  // use for its error. Until there is a number every request gets the reason.
  using Started = std::function<bool(const Result<void>&)>;
  void StartInBackground(Started started);
  // Closes, fails everything parked, waits (a window at most) until the wall clock has passed the last ID,
  // and writes the exact end, so that the next start can begin at once. Blocks. Idempotent.
  void Stop();
  // Closes and fails everything parked; nothing is issued or written from now on, not even an end, and every
  // answer is `why`. For a state file that may be another process's by now. Never blocks. Idempotent.
  void Halt(const Error& why);
  // In the child of a fork: nothing is issued or written from now on. Async-signal-safe.
  void Abandon();

  // Takes `count` IDs, or none. Never blocks, never allocates on the way of an ID.
  bool TryNext(std::uint64_t count, core::SnowflakeRun& out) {
    if (line_.busy()) [[unlikely]]
      return false;
    return TakeNow(count, out).outcome == core::Snowflake::Outcome::kTaken;
  }

  // Serves what TryNext turned away: at once if it can be by now, else when the clock or the ceiling has gone
  // on, in order of arrival, else with an error after `wait`. What cannot come in time fails at once. `done`
  // is called exactly once, with no lock held. Returns a ticket for Withdraw if the request is still waiting,
  // else 0. Errors: kTooLarge, kExhausted (the lead over the clock is used up), kClock (with the figures),
  // kOverflow, kNotOwner, kUnavailable (state file or registry, or stopped).
  std::uint64_t Next(std::uint64_t count, std::chrono::milliseconds wait, NextCallback done);
  // The asker has left. Completes with kExhausted on this thread, unless it was completed already.
  void Withdraw(std::uint64_t ticket) { line_.Withdraw(ticket); }

  // Whether an ID can be issued right now. The error says why not.
  Result<void> CanIssue() const;
  SnowflakeStatus Status() const;
  SnowflakeTallies Tallies() const;

  // The largest batch that can be served at all.
  std::uint64_t count_max() const {
    return core::Snowflake::CountMax(options_.cluster.layout, options_.window);
  }
  // Of the current term. Requires: Start() succeeded.
  const core::Snowflake& generator() const { return term_.load()->generator; }

 private:
  struct Term {
    Term(const core::WorkerClaim& its_claim, const core::IdLayout& layout, WallTime its_begin,
         WallTime its_known_end, std::chrono::milliseconds window, std::uint64_t seed)
        : claim(its_claim),
          begin(its_begin),
          known_end(its_known_end),
          generator(layout, its_claim.worker, its_begin, window, seed) {}
    const core::WorkerClaim claim;
    const WallTime begin;      // nothing is issued before the wall clock has reached it
    const WallTime known_end;  // the highest ceiling of this node that was known at the start
    core::Snowflake generator;
    // No ceiling beyond what may have been issued before this term has been made durable yet.
    bool starting() const { return generator.ceiling() <= begin; }
  };
  // How long before its end the exhaustion of a layout is announced.
  static constexpr std::chrono::milliseconds kExhaustionWarning = std::chrono::hours{24 * 730};

  core::Snowflake::TakeResult TakeNow(std::uint64_t count, core::SnowflakeRun& out) override {
    Term* const term = term_.load(std::memory_order_acquire);
    if (term == nullptr) [[unlikely]]
      return {};
    auto result = term->generator.Take(count, clock_.RecentWall(), out);
    // A time of a moment ago can only be too early.
    if (result.outcome != core::Snowflake::Outcome::kTaken) [[unlikely]]
      result = term->generator.Take(count, clock_.Wall(), out);
    if (result.outcome == core::Snowflake::Outcome::kTaken) [[likely]]
      issued_.Add(count);
    if (result.extend_wanted && !extending_.load(std::memory_order_relaxed)) [[unlikely]]
      RequestExtension();
    return result;
  }
  core::Snowflake::TakeResult Probe(std::uint64_t count, WallTime now) const override;
  Error ErrorOf(const core::Snowflake::TakeResult& result, WallTime now) const override;
  Error ErrorOfLocked(const core::Snowflake::TakeResult& result, WallTime now) const LEAF_REQUIRES(mutex_);
  bool MayComeWithin(const core::Snowflake::TakeResult& result, WallTime now,
                     std::chrono::milliseconds wait) const override;
  // By the table of standing.h. False, and nothing changes, if the event has no say.
  bool Enter(StandingEvent event);

  // ---- claims (snowflake_claim.cc)

  Result<void> LoadState() LEAF_REQUIRES(extend_mutex_);
  Result<void> TryToClaim() LEAF_REQUIRES(extend_mutex_);
  Result<core::WorkerClaim> ClaimFromState(const Error& registry_error) const LEAF_REQUIRES(extend_mutex_);
  // The state directory is not where it was written, as far as can be told.
  bool IsElsewhere() const LEAF_REQUIRES(extend_mutex_);
  // The same, and it has a number.
  bool MayBeCopied() const LEAF_REQUIRES(extend_mutex_);
  bool RememberDenial() LEAF_REQUIRES(extend_mutex_);
  void KeepDenial();
  WallTime DurableContact() const;
  Result<void> CheckIsNoCopy(const core::WorkerClaim& claim) const LEAF_REQUIRES(extend_mutex_);
  Result<void> BeginTerm(const core::WorkerClaim& claim, StandingEvent how) LEAF_REQUIRES(extend_mutex_);
  // Whether a start that failed like that is worth another attempt.
  bool MayPass(const Error& error) const;
  void RunClaim();
  // There may be another term: none yet, or the last one was a lease that is lost.
  bool WantsTerm() const;
  // Makes the uuid durable under which a directory that is elsewhere has claimed its number.
  Result<void> KeepNewIdentity(const core::WorkerClaim& claim) LEAF_REQUIRES(extend_mutex_);
  // Another process has this one's: see WorkerRegistry::met_a_copy.
  void TakeNewIdentity() LEAF_REQUIRES(extend_mutex_);

  // ---- ceilings (snowflake_ceiling.cc)

  void RequestExtension();
  void PostExtension();
  void RunExtension();
  Result<void> Extend();
  Result<void> MakeDurable(Term& term, WallTime ceiling) LEAF_REQUIRES(extend_mutex_);
  // What the registry answered of a ceiling or a late claim: ends the term if the number is lost. Returns
  // the error for requests.
  Result<void> Renew(Term& term, WallTime ceiling) LEAF_REQUIRES(extend_mutex_);
  Result<void> KeepLease(Term& term) LEAF_REQUIRES(extend_mutex_);
  Result<void> OnRegistryAnswer(Term& term, const Result<void>& answer);
  // Of an attempt to claim a fixed number again.
  Error StillLost(Error why) const;
  void PostTell();
  void Tell();
  Result<void> Register(const Term& term) LEAF_REQUIRES(registry_mutex_);
  Result<void> CheckClock(WallTime now) LEAF_REQUIRES(extend_mutex_);
  // `done`, and counts if it was an error.
  void CountError(std::size_t slot) override { errors_[slot].fetch_add(1, std::memory_order_relaxed); }
  // In how long the next Tick is due.
  std::chrono::milliseconds NextTick() const;
  // True if this is the first of a row of failures. `what` failed, for the log.
  bool SetProblem(std::string_view what, const Result<void>& result);
  void Tick();

  const SnowflakeOptions options_;
  core::WorkerRegistry& registry_;
  core::StateFile& state_file_;
  const Clock& clock_;
  Random& random_;
  Executor& timers_;
  Executor& workers_;
  Executor& registry_worker_;
  Logger& log_;
  const std::chrono::milliseconds tick_;          // how often the ceiling is looked at
  const std::chrono::milliseconds extend_least_;  // at saturation: by how much it is raised at least
  SnowflakeLine line_;

  // The current term; null before the first. Owned by terms_, and never destroyed before this, since a run
  // may be read after its term has ended.
  std::atomic<Term*> term_{nullptr};

  std::atomic<bool> stopped_{false};
  std::atomic<bool> abandoned_{false};
  // The first attempt failed in a way that does not pass, and the start ended with it.
  std::atomic<bool> given_up_{false};
  std::atomic<Standing> standing_{Standing::kNone};
  std::atomic<bool> denied_{false};             // the registry has refused the fixed number to this node
  std::atomic<bool> extending_{false};          // an extension, or a claim, is on its way
  std::atomic<bool> telling_{false};            // so is a message to the registry
  std::atomic<bool> has_problem_{false};        // problem_ is set
  std::atomic<MonotonicTime> told_at_{};        // when the registry was last asked or told
  std::atomic<WallTime> last_contact_{};        // when it last answered
  std::atomic<MonotonicTime> next_claim_at_{};  // the next attempt

  ThreadCounter issued_;
  std::array<std::atomic<std::uint64_t>, kErrorSlots> errors_{};

  // One extension, claim, or last write, at a time. Held across calls to the outside.
  Mutex extend_mutex_;
  std::list<Term> terms_ LEAF_GUARDED_BY(extend_mutex_);
  core::WorkerState state_ LEAF_GUARDED_BY(extend_mutex_);
  std::string former_uuid_ LEAF_GUARDED_BY(extend_mutex_);                  // see core::NodeIdentity
  std::optional<core::WorkerState> loaded_ LEAF_GUARDED_BY(extend_mutex_);  // what an earlier process left
  std::optional<core::ClockGuard> guard_ LEAF_GUARDED_BY(extend_mutex_);
  std::chrono::milliseconds claim_backoff_ LEAF_GUARDED_BY(extend_mutex_){};
  Started on_first_attempt_ LEAF_GUARDED_BY(extend_mutex_);

  // One call to the registry at a time, where the number is fixed.
  Mutex registry_mutex_;
  core::WorkerClaim claim_ LEAF_GUARDED_BY(registry_mutex_);  // the term's, or the one that made up for it

  mutable Mutex mutex_;
  std::optional<Error> halted_ LEAF_GUARDED_BY(mutex_);
  std::optional<Error> problem_ LEAF_GUARDED_BY(mutex_);
  std::optional<Error> registry_problem_ LEAF_GUARDED_BY(mutex_);
  core::ClusterProperties cluster_ LEAF_GUARDED_BY(mutex_);  // as it is after LoadState
  std::string node_uuid_ LEAF_GUARDED_BY(mutex_);
};

}  // namespace leaf::service
