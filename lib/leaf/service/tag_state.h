// The states of a tag, and the table of what changes them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace leaf::service {

enum class TagState : std::uint8_t {
  kUnconfirmed,  // a name that was asked for; the table has yet to confirm it
  kServing,
  kFrozen,   // the table has less than what was granted before: nothing is issued
  kGone,     // the table holds no such tag (any more)
  kRetired,  // never confirmed, and no request waits for it: to be forgotten
  kStopped,
};
inline constexpr std::size_t kTagStates = 6;

enum class TagEvent : std::uint8_t {
  kGranted,      // a grant has arrived
  kGrantBehind,  // a grant was refused, since the table is behind what was granted before
  kRowBehind,    // the same, seen in the table's row
  kRowFits,      // the row is not behind
  kAbsent,       // the table has no row of it
  kUnwanted,     // no request waits for it, and no grant is on its way
  kStop,
};
inline constexpr std::size_t kTagEvents = 7;

// The state after `event`; nothing if the event has no say in that state. A grant that has no say is dropped:
// what ended the tag's service had a reason that a grant does not remove. No event leads out of kStopped.
constexpr std::optional<TagState> StateAfter(TagState state, TagEvent event) {
  constexpr std::optional<TagState> kNone;
  constexpr auto kUnconfirmed = TagState::kUnconfirmed;
  constexpr auto kServing = TagState::kServing;
  constexpr auto kFrozen = TagState::kFrozen;
  constexpr auto kGone = TagState::kGone;
  constexpr auto kRetired = TagState::kRetired;
  constexpr auto kStopped = TagState::kStopped;
  static_assert(static_cast<std::size_t>(kUnconfirmed) == 0 &&
                static_cast<std::size_t>(kStopped) == kTagStates - 1);
  // clang-format off
  constexpr std::array<std::array<std::optional<TagState>, kTagEvents>, kTagStates> kTable{{
      //               granted   grant behind  row behind  row fits  absent  unwanted  stop
      /*unconfirmed*/ {kServing, kFrozen,      kNone,      kNone,    kGone,  kRetired, kStopped},
      /*serving*/     {kServing, kFrozen,      kFrozen,    kNone,    kGone,  kNone,    kStopped},
      /*frozen*/      {kNone,    kNone,        kNone,      kServing, kGone,  kNone,    kStopped},
      /*gone*/        {kNone,    kNone,        kNone,      kNone,    kNone,  kNone,    kStopped},
      /*retired*/     {kNone,    kNone,        kNone,      kNone,    kGone,  kNone,    kStopped},
      /*stopped*/     {kNone,    kNone,        kNone,      kNone,    kNone,  kNone,    kNone},
  }};
  // clang-format on
  return kTable[static_cast<std::size_t>(state)][static_cast<std::size_t>(event)];
}

// Whether grants are asked for.
constexpr bool MayRefill(TagState state) {
  return state == TagState::kServing || state == TagState::kUnconfirmed;
}
// Whether the table is known to hold the tag.
constexpr bool IsConfirmed(TagState state) {
  return state == TagState::kServing || state == TagState::kFrozen || state == TagState::kStopped;
}

}  // namespace leaf::service
