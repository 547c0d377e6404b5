#include "leaf/server/http/take.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/decimal.h"
#include "leaf/server/error_meaning.h"
#include "leaf/server/http/errors.h"
#include "leaf/server/ids_text.h"

namespace leaf::server {
namespace {

// One that outlives its request.
struct ParkedTake {
  explicit ParkedTake(const Take& parked) : tag(parked.ids.tag), raw_path(parked.raw_path), take(parked) {
    take.ids.tag = tag;
    take.raw_path = raw_path;
  }
  ParkedTake(const ParkedTake&) = delete;
  ParkedTake& operator=(const ParkedTake&) = delete;

  const std::string tag;
  const std::string raw_path;
  Take take;
};

void AppendBigEndian(std::string& out, std::uint64_t number) {
  for (int shift = 56; shift >= 0; shift -= 8) out += static_cast<char>(number >> shift & 0xFFU);
}

std::string_view ContentTypeOf(IdsType type) {
  return type == IdsType::kLines ? kPlainText : type == IdsType::kRangeBytes ? kOctetStream : kJson;
}

// `max_count`: as of V1Error.
Response AnswerWithError(const Backend& backend, const Take& take, const Error& error,
                         std::uint64_t max_count = 0) {
  if (take.dialect == Dialect::kV1) return V1Error(backend, error, max_count);
  switch (error.code) {
    case ErrorCode::kLimited:
      return LeafPlainError(backend, 429, error.message, take.raw_path);
    case ErrorCode::kNotFound:
      return LeafError(backend, kLeafUnknownTag, take.raw_path);
    case ErrorCode::kDisabled:
      return LeafError(backend, kLeafDisabled, take.raw_path);
    case ErrorCode::kNotOwner:
      return LeafError(backend, kLeafNotOwner, take.raw_path);
    default:
      return LeafError(backend, kLeafNotReady, take.raw_path);
  }
}

// Of texts other than numbers fewer fit into a small answer.
bool IsLongBatch(const Take& take) {
  constexpr std::size_t kTextBytes = 40;
  const bool is_number = !take.ids.as_code && take.text == nullptr;
  return take.ids.count > (is_number ? kSmallBatch : kSmallAnswerBytes / kTextBytes);
}

const IdsForm& FormOf(const Take& take) {
  return take.dialect == Dialect::kLeaf ? kIdAlone
         : take.type == IdsType::kLines ? kIdsAsText
         : take.ids.as_code             ? kCodesAsJson
                                        : kIdsAsJson;
}

// Whether the answer is small for any IDs. A request gets at most as many ranges as IDs, and a range takes 60
// bytes at most.
bool IsSmall(const Take& take) {
  constexpr std::uint64_t kRangesMax = kSmallAnswerBytes / 64;
  if (take.ids.as_code || take.text != nullptr) return false;
  return take.as_ranges ? take.ids.source == IdSource::kSegment || take.ids.count <= kRangesMax
                        : !IsLongBatch(take);
}
static_assert(kSpansMax < kSmallAnswerBytes / 64, "a batch of a tag's IDs is of that many ranges at most");

Response AnswerWith(const Backend& backend, const Take& take, const IssuedIds& ids) {
  std::shared_ptr<const FixedIdText> text = take.text;
  if (take.ids.as_code) {
    text = ids.codes();
    LEAF_CHECK(text != nullptr);
  }
  return ids.With([&](std::span<const IdRange> ranges) {
    Response response;
    response.content_type = ContentTypeOf(take.type);
    if (take.as_ranges) {
      AppendRanges(ranges, take.type, response.body);
      return response;
    }
    if (text != nullptr) [[unlikely]] {
      if (const auto fits = text->Check(ranges.back().end - 1); !fits.ok())
        return AnswerWithError(backend, take, fits.error());
    }
    const IdsForm& form = FormOf(take);
    if (IsLongBatch(take)) {
      response.ids = std::make_unique<IdsText>(ranges, form, std::move(text));
      return response;
    }
    // An ID alone, Leaf's, nearly always fits without an allocation.
    if (take.dialect == Dialect::kV1)
      response.body.reserve(48 + take.ids.count * (text == nullptr ? 23 : text->width() + 3));
    AppendIds(ranges, form, response.body, text.get());
    return response;
  });
}

// The error to answer a batch with that would have to wait in memory until the client reads it.
std::optional<Error> OverMemory(const Backend& backend, const Take& take) {
  if (take.as_ranges || !IsLongBatch(take) || !backend.unread.batches.full()) [[likely]]
    return std::nullopt;
  return TooManyUnread();
}

Withdraw LookAtIds(const Backend& backend, const Take& take, Respond respond) {
  const auto asked = std::make_shared<const ParkedTake>(take);
  backend.issuer.Look(take.ids, [&backend, asked, respond = std::move(respond)](const Result<void>& can) {
    if (!can.ok()) return respond(AnswerWithError(backend, asked->take, can.error()));
    Response response;
    response.content_type = ContentTypeOf(asked->take.type);
    respond(std::move(response));
  });
  return nullptr;
}

}  // namespace

void AppendRanges(std::span<const IdRange> ranges, IdsType type, std::string& out) {
  if (type == IdsType::kRangeBytes) {
    for (const IdRange& range : ranges) {
      AppendBigEndian(out, range.begin);
      AppendBigEndian(out, range.end);
    }
    return;
  }
  const bool as_text = type == IdsType::kLines;
  if (!as_text) out += R"({"ranges":[)";
  bool first = true;
  for (const IdRange& range : ranges) {
    const Decimal begin(range.begin);
    const Decimal end(range.end);
    if (!as_text) out += first ? R"({"begin":")" : R"(,{"begin":")";
    out += begin.text();
    out += as_text ? " " : R"(","end":")";
    out += end.text();
    out += as_text ? "\n" : R"("})";
    first = false;
  }
  if (!as_text) out += "]}";
}

Withdraw ServeTake(const Backend& backend, const Take& take, const Request& request, Respond respond) {
  const access::Caller& caller = *request.caller;
  const bool is_look = request.method == "HEAD";
  // A look counts for nothing.
  if (auto denied = caller.RefuseIds(take.ids.tag, is_look ? 0 : take.ids.count, backend.clock))
      [[unlikely]] {
    // The same code of a store is the server's trouble (error_meaning.h), not the caller's.
    const bool has_no_right = denied->code == ErrorCode::kPermission;
    if (has_no_right && take.dialect == Dialect::kLeaf)
      return AtOnce(respond, LeafPlainError(backend, 403, denied->message, take.raw_path));
    Response response =
        AnswerWithError(backend, take, *denied, caller.limit ? caller.limit->per_second() : 0);
    if (has_no_right) response.status = 403;
    return AtOnce(respond, std::move(response));
  }
  if (is_look) return LookAtIds(backend, take, std::move(respond));
  std::optional<Error> refused;
  if (!request.is_counted) refused = backend.issuer.Refuse(take.ids);
  if (!refused) [[likely]]
    refused = OverMemory(backend, take);
  if (refused) return AtOnce(respond, AnswerWithError(backend, take, *refused));
  IssuedIds ids;
  if (backend.issuer.TryTake(take.ids, ids)) [[likely]] {
    if (request.small_take != nullptr && IsSmall(take)) {
      *request.small_take = {.source = take.ids.source,
                             .tag = std::string(take.ids.tag),
                             .count = take.ids.count,
                             .contiguous = take.ids.contiguous,
                             .as_ranges = take.as_ranges,
                             .type = take.type,
                             .form = &FormOf(take),
                             .content_type = ContentTypeOf(take.type)};
    }
    return AtOnce(respond, AnswerWith(backend, take, ids));
  }
  const auto waiting = std::make_shared<const ParkedTake>(take);
  return backend.issuer.Park(
      take.ids, [&backend, waiting, respond = std::move(respond)](const Result<IssuedIds>& result) {
        respond(result.ok() ? AnswerWith(backend, waiting->take, *result)
                            : AnswerWithError(backend, waiting->take, result.error()));
      });
}

}  // namespace leaf::server
