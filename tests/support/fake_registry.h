// A worker registry in memory that misbehaves on demand: away, replies lost, slow to believe that a lease has
// run out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "leaf/base/clock.h"
#include "leaf/base/random.h"
#include "leaf/core/worker_ports.h"

namespace leaf::testing {

// What all nodes share. One thread.
struct FakeRegistryRecords {
  struct Record {
    std::string owner;  // uuid; "" for none
    std::string address;
    std::uint64_t generation = 0;
    std::optional<WallTime> ceiling;
    MonotonicTime changed;
  };
  std::map<std::uint64_t, Record> records;
  std::uint64_t capacity = 4;
  std::chrono::milliseconds lease{30'000};
  std::chrono::milliseconds window{3'000};
};

// One node's view of it. One thread.
class FakeRegistry final : public core::WorkerRegistry {
 public:
  FakeRegistry(FakeRegistryRecords& shared, bool leased, const Clock& clock)
      : shared_(shared), leased_(leased), clock_(clock) {}

  bool down = false;        // nothing arrives
  bool lose_reply = false;  // the next write arrives, its reply does not
  int claims = 0;
  int renewals = 0;
  std::string former_uuid;               // what the last claim said
  std::optional<std::uint64_t> again;    // the same
  std::optional<Error> refuse;           // what the next claims are answered
  std::optional<Error> refuse_renewals;  // the same of renewals
  std::optional<Error> refuse_release;
  std::function<void()> after_denial;  // within a claim that has denied the number held
  std::optional<std::uint64_t> held;   // what the last claim said
  bool copied = false;

  std::string_view kind() const override { return "fake"; }
  bool leased() const override { return leased_; }
  bool met_a_copy() const override { return copied; }

  Result<core::WorkerClaim> Claim(const core::NodeIdentity& node, const core::ClusterProperties&) override {
    ++claims;
    former_uuid = node.former_uuid;
    again = node.again;
    held = node.held;
    copied = false;
    if (down) return Away();
    if (refuse) return *refuse;
    std::optional<std::uint64_t> chosen;
    for (std::uint64_t worker = 0; worker < shared_.capacity; ++worker) {
      auto& record = shared_.records[worker];
      if (record.address == node.address && !leased_ && !record.owner.empty() && record.owner != node.uuid &&
          record.owner != node.former_uuid) {
        return Error{ErrorCode::kRefused, "the address is another node's", ""};
      }
      if (record.owner == node.uuid || (record.owner == node.former_uuid && !node.former_uuid.empty())) {
        chosen = worker;
        break;
      }
      if (!leased_ && record.generation > 0 && record.owner.empty() && record.address == node.address) {
        chosen = worker;  // an operator has released it
        break;
      }
      const bool expired = clock_.Monotonic() - record.changed > shared_.lease;
      const bool free = record.generation == 0 || (leased_ && (record.owner.empty() || expired));
      if (free && !chosen) chosen = worker;
    }
    if (!chosen) return Error{ErrorCode::kExhausted, "all numbers are taken", ""};
    if (node.held && chosen != node.held && !leased_) {
      node.TellDenied();
      if (after_denial) after_denial();
    }
    auto& record = shared_.records[*chosen];
    if (!leased_ && record.ceiling && record.owner != node.uuid)
      *record.ceiling += core::UntoldMax(shared_.window);
    record.owner = node.uuid;
    record.address = node.address;
    ++record.generation;
    record.changed = clock_.Monotonic();
    if (std::exchange(lose_reply, false)) return LostReply();
    return core::WorkerClaim{*chosen, record.generation, record.ceiling};
  }
  Result<void> Renew(const core::WorkerClaim& claim, WallTime ceiling) override {
    ++renewals;
    if (refuse_renewals) return *refuse_renewals;
    return Write(claim, [&](auto& record) {
      record.ceiling = std::max(record.ceiling.value_or(ceiling), ceiling);
      record.changed = clock_.Monotonic();
    });
  }
  Result<void> Release(const core::WorkerClaim& claim, WallTime end) override {
    if (refuse_release) return *refuse_release;
    return Write(claim, [&](auto& record) {
      record.ceiling = end;
      if (leased_) record.owner.clear();
    });
  }

 private:
  template <typename Change>
  Result<void> Write(const core::WorkerClaim& claim, Change change) {
    if (down) return Away();
    auto& record = shared_.records[claim.worker];
    if (record.generation != claim.generation || record.owner.empty())
      return Error{ErrorCode::kNotOwner, "the number is another node's", ""};
    change(record);
    return std::exchange(lose_reply, false) ? Result<void>(LostReply()) : Result<void>();
  }
  static Error Away() { return {ErrorCode::kUnavailable, "the registry is away", ""}; }
  static Error LostReply() { return {ErrorCode::kOutcomeUnknown, "the reply was lost", ""}; }

  FakeRegistryRecords& shared_;
  const bool leased_;
  const Clock& clock_;
};

}  // namespace leaf::testing
