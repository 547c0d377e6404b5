#include "leaf/server/resp/take.h"

#include <algorithm>
#include <array>
#include <list>
#include <utility>
#include <vector>

#include "leaf/base/check.h"
#include "leaf/base/id_text.h"
#include "leaf/base/text.h"
#include "leaf/server/error_meaning.h"
#include "leaf/server/ids_text.h"

namespace leaf::server::resp {
namespace {

std::uint64_t DigitsOf(std::uint64_t id) {
  std::uint64_t digits = 1;
  for (; id >= 10; id /= 10) ++digits;
  return digits;
}

// IDs of so many digits, each as a bulk string.
IdsForm BulkForm(std::uint64_t digits) {
  // "\r\n$19\r\n": between two IDs. Its parts are what stands before the first and behind the last.
  static const auto kForms = [] {
    std::array<std::string, 64> forms;  // longer than any code
    for (std::size_t i = 1; i < forms.size(); ++i) forms[i] = "\r\n$" + std::to_string(i) + "\r\n";
    return forms;
  }();
  const std::string_view separator = kForms.at(digits);
  return {.lead = separator.substr(2), .separator = separator, .tail = separator.substr(0, 2)};
}

// The ranges, cut where IDs become a digit longer: each part is written in one form.
struct Part {
  std::uint64_t digits;
  std::vector<IdRange> ranges;
};
std::vector<Part> PartsOf(std::span<const IdRange> ranges) {
  std::vector<Part> parts;
  for (IdRange rest : ranges) {
    while (!rest.empty()) {
      const std::uint64_t digits = DigitsOf(rest.begin);
      std::uint64_t longer = 1;
      for (std::uint64_t i = 0; i < digits; ++i) longer *= 10;  // 10^19 at most, which 64 bits hold
      const std::uint64_t end = std::min(rest.end, longer);
      if (parts.empty() || parts.back().digits != digits) parts.push_back({digits, {}});
      parts.back().ranges.push_back({rest.begin, end});
      rest.begin = end;
    }
  }
  return parts;
}

// The IDs of a large batch.
class LongIds final : public LongAnswer {
 public:
  LongIds(std::span<const IdRange> ranges, std::shared_ptr<const FixedIdText> text) {
    if (text != nullptr) {
      const IdsForm form = BulkForm(text->width());
      texts_.emplace_back(ranges, form, std::move(text));
      return;
    }
    for (const Part& part : PartsOf(ranges)) texts_.emplace_back(part.ranges, BulkForm(part.digits));
  }

  std::string_view Peek(std::size_t most, std::string& scratch) const override {
    scratch.clear();
    for (const IdsText& text : texts_) {
      if (scratch.size() >= most) break;
      text.Peek(most - scratch.size(), scratch);
    }
    return scratch;
  }

  bool Skip(std::size_t bytes) override {
    while (bytes > 0) {
      IdsText& text = texts_.front();
      const auto of_this = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, text.rest()));
      text.Skip(of_this);
      bytes -= of_this;
      if (text.rest() == 0) texts_.pop_front();
    }
    return !texts_.empty();
  }

  // False if there is no memory left.
  bool Hold(UnreadBytes& unread) {
    std::size_t bytes = sizeof *this;
    for (const IdsText& text : texts_) bytes += text.held_bytes();
    held_ = unread.Hold(bytes);
    return static_cast<bool>(held_);
  }

 private:
  std::list<IdsText> texts_;  // what is not sent
  UnreadBytes::Held held_;
};

}  // namespace

Result<TakeCommand> ReadTake(const RedisBackend& backend, const CommandSpec& command, Words words) {
  const std::chrono::milliseconds patience = backend.options.request_timeout;
  TakeCommand take{.ids = {.patience = {patience, patience}}};
  std::string_view count;
  switch (command.route) {
    case Route::kRedisIncr:
    case Route::kRedisIncrBy:
      take.reply = IdReply::kLast;
      take.ids.contiguous = command.route == Route::kRedisIncrBy;
      break;
    case Route::kRedisRange:
      take.reply = IdReply::kRanges;
      break;
    case Route::kRedisCode:
      take.reply = IdReply::kTexts;
      take.ids.as_code = true;
      break;
    default:
      break;
  }
  if (command.has_key) {
    if (take.ids.as_code && words[1] == codes::kSnowflakeTag) {
      take.ids.source = IdSource::kSnowflake;
      if (const auto disabled = backend.issuer.Disabled(take.ids.source)) return *disabled;
    } else {
      take.ids.tag = words[1];
    }
    if (words.size() > 2) count = words[2];
  } else {
    take.ids.source = IdSource::kSnowflake;
    if (words.size() > 1) count = words[1];
    if (const auto disabled = backend.issuer.Disabled(take.ids.source)) return *disabled;
  }
  if (command.route == Route::kRedisSnowflake && words.size() == 3) {
    const auto form = ParseIdForm(words[2]);
    if (!form || !IdFormatRowOf(*form).has_time)
      return Error{ErrorCode::kInvalidArgument,
                   "bad form " + Quoted(words[2]) + ": none of " + FormNames(true), ""};
    LEAF_ASSIGN_OR_RETURN(const TimedIdText text,
                          TimedIdText::Make(*form, backend.options.layout.TimeSplit()));
    take.text = std::make_shared<const TimedIdText>(text);
    take.reply = IdReply::kTexts;
  } else if (words.size() > (command.has_key ? 3U : 2U)) {
    return Error{ErrorCode::kInvalidArgument,
                 "wrong number of arguments for '" + std::string(command.name) + "' command", ""};
  }
  if (count.data() == nullptr) return take;
  LEAF_ASSIGN_OR_RETURN(take.ids.count, ParseUnsigned("count", count, 1, kIdEnd));
  LEAF_RETURN_IF_ERROR(backend.issuer.CheckCount(take.ids.source, take.ids.count));
  return take;
}

void KnownTake::Keep(std::string_view bytes, const CommandSpec& command, const TakeCommand& take) {
  command_ = nullptr;
  if (bytes.size() > bytes_.size()) return;
  std::copy(bytes.begin(), bytes.end(), bytes_.begin());
  size_ = bytes.size();
  tag_ = take.ids.tag;
  take_ = take;
  take_.ids.tag = tag_;
  command_ = &command;
}

Result<void> CheckTag(const TakeCommand& take) {
  return take.ids.source == IdSource::kSegment ? ValidateTag(take.ids.tag) : Result<void>();
}

std::optional<int> RefuseCaller(const RedisBackend& backend, const TakeCommand& take, const Session& session,
                                ReplyWriter& reply) {
  const auto denied = session.caller->RefuseIds(take.ids.tag, take.ids.count, backend.clock);
  if (!denied) [[likely]]
    return std::nullopt;
  if (denied->code != ErrorCode::kPermission) return Fail(reply, *denied);
  reply.Error("NOPERM " + denied->message);
  return kDenied;
}

std::optional<Error> RefuseTake(const RedisBackend& backend, const TakeCommand& take) {
  if (auto refused = backend.issuer.Refuse(take.ids)) return refused;
  if (!IsLong(take) || !backend.unread.batches.full()) [[likely]]
    return std::nullopt;
  return TooManyUnread();
}

bool IsLong(const TakeCommand& take) {
  return (take.reply == IdReply::kIds || take.reply == IdReply::kTexts) && take.ids.count > kSmallBatch;
}

Result<std::unique_ptr<LongAnswer>> WriteIds(const RedisBackend& backend, const TakeCommand& take,
                                             const IssuedIds& ids, ReplyWriter& reply) {
  using Rest = std::unique_ptr<LongAnswer>;
  std::shared_ptr<const FixedIdText> text = take.text;
  if (take.ids.as_code) text = ids.codes();
  LEAF_CHECK((text != nullptr) == (take.reply == IdReply::kTexts));
  return ids.With([&](std::span<const IdRange> ranges) -> Result<Rest> {
    if (text != nullptr) LEAF_RETURN_IF_ERROR(text->Check(ranges.back().end - 1));
    switch (take.reply) {
      case IdReply::kLast:
        reply.Integer(ranges.back().end - 1);
        break;
      case IdReply::kRanges:
        reply.Array(ranges.size());
        for (const IdRange& range : ranges) {
          reply.Array(2);
          reply.BulkId(range.begin);
          reply.BulkId(range.end);
        }
        break;
      case IdReply::kIds:
      case IdReply::kTexts:
        if (IsLong(take)) {
          auto rest = std::make_unique<LongIds>(ranges, text);
          if (!rest->Hold(backend.unread.batches)) return TooManyUnread();
          reply.Array(take.ids.count);
          return Rest(std::move(rest));
        }
        reply.Array(take.ids.count);
        for (const IdRange& range : ranges) {
          for (std::uint64_t id = range.begin; id < range.end; ++id) {
            if (text == nullptr) {
              reply.BulkId(id);
              continue;
            }
            std::string written;
            text->Append(written, id);
            reply.Bulk(written);
          }
        }
    }
    return Rest();
  });
}

}  // namespace leaf::server::resp
