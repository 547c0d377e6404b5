// The deadlines of many connections, of which hardly any ever passes.
//
// Each request moves its connection's deadline several times, nearly always to a later one, and a daemon can
// hold ten thousand connections that do nothing: neither may cost anything. So a member of the queue stands
// at some time that is not after its deadline, and is moved only when a deadline comes before that time, or
// when the time has come and the deadline turns out to be later. A busy connection is moved about twice in
// the shortest of its time-outs, an idle one once in its own, and no other is looked at.
//
// Invariant: a member whose deadline is not kNever is in the queue, at a time <= its deadline. Were it moved
// with later deadlines only, a connection that was idle (ten minutes left) and begins a request (ten seconds)
// would be found too slow ten minutes late.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "leaf/base/check.h"
#include "leaf/base/time.h"

namespace leaf::server {

// Not thread-safe: a queue and its members belong to one thread. Outlives its members.
class DeadlineQueue {
 public:
  static constexpr MonotonicTime kNever = MonotonicTime::max();

  // One deadline: kNever at first, and once it was returned by TakeDue.
  class Member {
   public:
    Member(DeadlineQueue& queue, std::uint64_t id) : queue_(queue), id_(id) {}
    ~Member() { queue_.Leave(*this); }
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    MonotonicTime deadline() const { return deadline_; }
    // Costs a comparison, unless `deadline` is before all that were set lately.
    void Set(MonotonicTime deadline) {
      deadline_ = deadline;
      if (deadline < listed_at_) queue_.MoveTo(*this, deadline);
    }

   private:
    friend class DeadlineQueue;

    DeadlineQueue& queue_;
    const std::uint64_t id_;
    MonotonicTime deadline_ = kNever;
    MonotonicTime listed_at_ = kNever;  // kNever: not in the queue
    std::multimap<MonotonicTime, Member*>::iterator place_;
  };

  DeadlineQueue() = default;
  ~DeadlineQueue() { LEAF_CHECK(members_.empty()); }
  DeadlineQueue(const DeadlineQueue&) = delete;
  DeadlineQueue& operator=(const DeadlineQueue&) = delete;

  // The ids of those whose deadline is not after `now`, before kNever: once for each deadline that was set.
  std::vector<std::uint64_t> TakeDue(MonotonicTime now) {
    std::vector<std::uint64_t> due;
    while (!members_.empty() && members_.begin()->first <= now) {
      Member& member = *members_.begin()->second;
      if (member.deadline_ != kNever && member.deadline_ > now) {
        MoveTo(member, member.deadline_);
        continue;
      }
      if (member.deadline_ != kNever) due.push_back(member.id_);
      member.deadline_ = kNever;
      Leave(member);
    }
    return due;
  }

  std::size_t size() const { return members_.size(); }

 private:
  void MoveTo(Member& member, MonotonicTime at) {
    if (member.listed_at_ == kNever) {
      member.place_ = members_.emplace(at, &member);
    } else {
      auto node = members_.extract(member.place_);  // without giving its memory back
      node.key() = at;
      member.place_ = members_.insert(std::move(node));
    }
    member.listed_at_ = at;
  }

  void Leave(Member& member) {
    if (member.listed_at_ == kNever) return;
    members_.erase(member.place_);
    member.listed_at_ = kNever;
  }

  std::multimap<MonotonicTime, Member*> members_;
};

}  // namespace leaf::server
