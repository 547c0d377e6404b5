// What a daemon's answers say, or those of another program where a daemon should be. Pure functions; nothing
// of a body is believed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/id_range.h"
#include "leaf/base/result.h"
#include "leaf/base/time.h"

namespace leaf::client {

struct NodeMark {
  std::uint64_t end = 0;  // of everything granted; 0 for nothing
  // As the server words them, "" where it says nothing: when it was raised and by which process, since when
  // the tag is frozen there and which max_id it had seen then.
  std::string raised_at;
  std::string raised_by;
  std::string frozen_since;
  std::string max_id_seen;
};

struct NodeClock {
  WallTime time;
  std::string version;  // of the server; "" before 0.2
};

// `server`: what answered, for messages.

// Whether it is one, whole.
bool IsJsonObject(std::string_view body);
// Whether the answer has the code of an error of ours.
bool NamesError(std::string_view body);

// What the server said went wrong. An answer without our code comes from something else, a proxy before a
// daemon that is away, or no daemon at all: kUnavailable or kUnreachable.
Error ErrorOf(std::string_view server, int status, std::string_view body);

// The limit that comes with a 413; 0 if there is none.
std::uint64_t MaxCountOf(std::string_view body);

// `count` IDs as ascending, disjoint ranges. Errors: kInternal for anything else: no ID is printed out of an
// answer in which one could stand twice.
Result<std::vector<IdRange>> RangesOf(std::string_view server, std::string_view body, std::uint64_t count);

// `count` texts that stand for IDs, out of an array `key` ("ids", "codes"): printable, none of them empty,
// and no two the same. Errors: kInternal for anything else.
Result<std::vector<std::string>> TextsOf(std::string_view server, std::string_view body, std::string_view key,
                                         std::uint64_t count);

// The ID that a code stands for. Errors: kInternal if it is none.
Result<std::uint64_t> RevealedOf(std::string_view server, std::string_view body);

// Errors: kInternal if it is no mark.
Result<NodeMark> MarkOf(std::string_view server, std::string_view body);

// Errors: kInternal if it is no time between 1970 and 9999.
Result<NodeClock> ClockOf(std::string_view server, std::string_view body);

}  // namespace leaf::client
