// Requests for IDs over Redis' protocol: read, and answered.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "leaf/base/id_text.h"
#include "leaf/base/result.h"
#include "leaf/server/issue/issuer.h"
#include "leaf/server/net/protocol.h"
#include "leaf/server/resp/commands.h"
#include "leaf/server/resp/reply.h"

namespace leaf::server::resp {

// More IDs than these are written out while they are sent, and are too many for a transaction.
inline constexpr std::uint64_t kSmallBatch = 150;

enum class IdReply : std::uint8_t {
  kLast,    // the last ID, as an integer: INCR and INCRBY
  kIds,     // an array of IDs
  kTexts,   // an array of IDs in a form that is no number: their codes, UUIDs or ULIDs
  kRanges,  // an array of pairs: begin, and end, which is not in the range
};

struct TakeCommand {
  IdRequest ids;
  IdReply reply = IdReply::kIds;
  std::shared_ptr<const FixedIdText> text{};  // of kTexts; null for codes (ids.as_code)
};

// Requires: a command of kTakesIds, with as many words as it takes. The tag is a view of them, and need not
// be one that there can be (CheckTag). Errors: kInvalidArgument, kTooLarge, kDisabled.
Result<TakeCommand> ReadTake(const RedisBackend& backend, const CommandSpec& command, Words words);

// Whether there can be such a tag: to be asked before a request is parked. One that has IDs in reserve is
// known, so that nothing is asked of the name where it would cost each ID. Errors: kInvalidArgument.
Result<void> CheckTag(const TakeCommand& take);

// The status of a request that the session's caller may not make, whose error is written then; nothing if it
// may. Counts it against the caller's limit.
std::optional<int> RefuseCaller(const RedisBackend& backend, const TakeCommand& take, const Session& session,
                                ReplyWriter& reply);

// The error to answer with if the request is not to be served. Counts it against the limits.
std::optional<Error> RefuseTake(const RedisBackend& backend, const TakeCommand& take);

// Whether the reply has one element for each ID, and so many of them that it is a long one.
bool IsLong(const TakeCommand& take);

// Writes IDs as the reply to `take`. Returns what follows the text, if the reply is too long to stand in
// memory; null for nothing. Nothing is written after an error, and the IDs are lost: kUnavailable if too many
// long answers wait for their clients.
Result<std::unique_ptr<LongAnswer>> WriteIds(const RedisBackend& backend, const TakeCommand& take,
                                             const IssuedIds& ids, ReplyWriter& reply);

}  // namespace leaf::server::resp
