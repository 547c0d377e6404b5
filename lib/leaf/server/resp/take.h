// Requests for IDs over Redis' protocol: read, and answered.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

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

// One ID of a tag, as an integer. With one ID a run without a gap is no different.
inline bool IsOneOfTag(const TakeCommand& take) {
  return take.reply == IdReply::kLast && take.ids.count == 1 && !take.ids.as_code &&
         take.ids.source == IdSource::kSegment;
}

// A command that a connection has sent, to be known again by its bytes: clients ask for the next ID of the
// same tag again and again, and what was read of it then holds for the same bytes. Whether its caller may ask
// for it, and what it gets, is no part of that. Not thread-safe.
class KnownTake {
 public:
  KnownTake() = default;
  KnownTake(const KnownTake&) = delete;
  KnownTake& operator=(const KnownTake&) = delete;

  // `bytes`: all of the command. Longer ones are not kept.
  void Keep(std::string_view bytes, const CommandSpec& command, const TakeCommand& take);
  // Whether `bytes` begin with that command.
  bool IsNext(std::string_view bytes) const {
    return command_ != nullptr && bytes.starts_with(std::string_view(bytes_.data(), size_));
  }
  std::size_t size() const { return size_; }
  // Requires: something was kept.
  const CommandSpec& command() const { return *command_; }
  const TakeCommand& take() const { return take_; }

 private:
  static constexpr std::size_t kBytesMax = 96;

  std::array<char, kBytesMax> bytes_;
  std::size_t size_ = 0;
  const CommandSpec* command_ = nullptr;
  TakeCommand take_;  // a view of tag_
  std::string tag_;
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
