// What a whole cluster remembers of its tags: per tag the highest end ever granted to any of its nodes. It
// outlives the database: one that came back older (failover that lost commits, restore, two that are writable
// at once) is found out by it before its first ID.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/base/time.h"
#include "leaf/core/tag_orders.h"

namespace leaf::core {

// The witness of one tag.
struct WitnessState {
  std::uint64_t end = 0;                // exclusive; 0 if nothing was ever granted
  std::optional<std::int32_t> version;  // of the record; nothing if there is none
  std::string claim;                    // which claim raised it last; no two claims have the same
  std::string raised_by;                // for people: the process that did
  WallTime raised_at;
  std::optional<StrictMark> strict;  // nothing for a tag that is not, as far as was noted
};

// One each; nothing for a record that cannot be read.
using WitnessStates = std::vector<std::optional<WitnessState>>;

// Port. Thread-safe; blocks up to the adapter's own time-outs. Errors of all: kUnavailable, kPermission,
// kRefused for a record that cannot be read (it is named, and never guessed at).
class Witness {
 public:
  virtual ~Witness() = default;

  // May be older than the latest, as every answer may be by the time it arrives: a caller that relies on it
  // raises.
  virtual Result<WitnessState> Load(std::string_view tag) = 0;
  // Of each, in order.
  virtual Result<WitnessStates> LoadAll(const std::vector<std::string>& tags) = 0;

  // Raises it to `end` if it still is what was `seen`, whose order it keeps. False, and nothing happened, if
  // it is not. Requires: end > seen.end. Further errors: kOutcomeUnknown: it may happen, now or much later;
  // the record's `claim` tells.
  virtual Result<bool> Raise(std::string_view tag, const WitnessState& seen, std::uint64_t end,
                             std::string_view claim) = 0;
  // The same, and only while it is certain that the witness has forgotten nothing (membership.h). Further
  // errors: kUnavailable where it is not.
  virtual Result<bool> Claim(std::string_view tag, const WitnessState& seen, std::uint64_t end,
                             std::string_view claim) = 0;
  // Remembers that the tag is strict, or, with nothing, that it is not any more, if it still is what was
  // `seen`, all of the rest of which it keeps; where there is no record yet, one with end 0 is made. False,
  // and errors, as of Raise.
  virtual Result<bool> NoteStrict(std::string_view tag, const WitnessState& seen,
                                  const std::optional<StrictMark>& strict) = 0;
};

}  // namespace leaf::core
