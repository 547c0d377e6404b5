// How a node stands with the registry of worker numbers, and the table of what changes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace leaf::service {

enum class Standing : std::uint8_t {
  kNone,         // no number since the start of this process
  kUnconfirmed,  // a fixed number out of the state file; the registry could not be asked yet
  kConfirmed,
  kLost,         // another node or program has the number; it is claimed again
  kLostForGood,  // the same, until a restart
};
inline constexpr std::size_t kStandings = 5;

enum class StandingEvent : std::uint8_t {
  kClaimed,       // a term begins with what the registry gave
  kStartedAlone,  // a term begins with what the state file has
  kConfirmed,     // the claim was made up for
  kDisplaced,     // a lease was lost, or another program uses the fixed number for a while
  kTaken,         // the fixed number belongs to another node
  kExchanged,     // the registry gives another number than the one that was lost
};
inline constexpr std::size_t kStandingEvents = 6;

// The standing after `event`; nothing if the event has no say. What is lost for good ends with the process.
constexpr std::optional<Standing> StandingAfter(Standing standing, StandingEvent event) {
  constexpr std::optional<Standing> kNo;
  constexpr auto kAlone = Standing::kUnconfirmed;
  constexpr auto kHeld = Standing::kConfirmed;
  constexpr auto kLost = Standing::kLost;
  constexpr auto kEnd = Standing::kLostForGood;
  static_assert(static_cast<std::size_t>(kEnd) == kStandings - 1);
  // clang-format off
  constexpr std::array<std::array<std::optional<Standing>, kStandingEvents>, kStandings> kTable{{
      //               claimed  started alone  confirmed  displaced  taken  exchanged
      /*none*/        {kHeld,   kAlone,        kNo,       kNo,       kNo,   kNo},
      /*unconfirmed*/ {kNo,     kNo,           kHeld,     kLost,     kEnd,  kNo},
      /*confirmed*/   {kNo,     kNo,           kHeld,     kLost,     kEnd,  kNo},
      /*lost*/        {kHeld,   kNo,           kNo,       kLost,     kEnd,  kEnd},
      /*lost for good*/ {kNo,   kNo,           kNo,       kNo,       kNo,   kNo},
  }};
  // clang-format on
  return kTable[static_cast<std::size_t>(standing)][static_cast<std::size_t>(event)];
}

// Nothing may be issued with the number.
constexpr bool IsLost(Standing standing) {
  return standing == Standing::kLost || standing == Standing::kLostForGood;
}

}  // namespace leaf::service
