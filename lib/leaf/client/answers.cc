#include "leaf/client/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"

namespace leaf::client {
namespace {

using Json = nlohmann::json;

Error NotOurs(std::string_view server) {
  return {ErrorCode::kInternal, fmt::format("{} sent an answer that is not from leafctl", server), ""};
}

bool IsLetterOrDigit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

Json Parse(std::string_view body) { return Json::parse(body.begin(), body.end(), nullptr, false); }

// Null if there is none. Not a copy: copying goes as deep as the sender has nested, and the stack does not.
const Json* Member(const Json& json, std::string_view key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(key);
  return found == json.end() ? nullptr : &*found;
}

// "" if there is none, or it is no text.
std::string TextOf(const Json& json, std::string_view key) {
  const Json* const member = Member(json, key);
  return member != nullptr && member->is_string() ? member->get<std::string>() : "";
}

}  // namespace

bool IsJsonObject(std::string_view body) { return Parse(body).is_object(); }

bool NamesError(std::string_view body) { return ErrorCodeFromName(TextOf(Parse(body), "code")).has_value(); }

Error ErrorOf(std::string_view server, int status, std::string_view body) {
  const Json json = Parse(body);
  const auto code = ErrorCodeFromName(TextOf(json, "code"));
  if (!code) {
    if (body.starts_with("this port speaks TLS"))
      return {ErrorCode::kConfig, fmt::format("{} speaks TLS, and nothing else", server),
              "name it with https://"};
    return {status >= 500 ? ErrorCode::kUnavailable : ErrorCode::kUnreachable,
            fmt::format("no daemon answers at {}: something there answered {}", server, status), ""};
  }
  // Both are shown on terminals, and may come from a server that wishes them no good.
  return {*code, Printable(TextOf(json, "message")), Printable(TextOf(json, "hint"))};
}

std::uint64_t MaxCountOf(std::string_view body) {
  const Json json = Parse(body);
  const Json* const max_count = Member(json, "max_count");
  return max_count != nullptr && max_count->is_number_unsigned() ? max_count->get<std::uint64_t>() : 0;
}

Result<std::vector<IdRange>> RangesOf(std::string_view server, std::string_view body, std::uint64_t count) {
  const Json json = Parse(body);
  const Json* const items = Member(json, "ranges");
  if (items == nullptr || !items->is_array()) return NotOurs(server);
  std::vector<IdRange> ranges;
  std::uint64_t got = 0;
  std::uint64_t last_end = 0;
  for (const Json& item : *items) {
    // "" is no number.
    const auto begin = ParseUnsigned("begin", TextOf(item, "begin"), 0, kMaxIdLimit);
    const auto end = ParseUnsigned("end", TextOf(item, "end"), 0, kIdEnd);
    if (!begin.ok() || !end.ok() || *begin >= *end || *begin < last_end) return NotOurs(server);
    ranges.push_back({*begin, *end});
    got += *end - *begin;  // below 2^63 in all: they are disjoint
    last_end = *end;
  }
  if (got != count) {
    return Error{ErrorCode::kInternal, fmt::format("{} gave {} IDs instead of {}", server, got, count), ""};
  }
  return ranges;
}

Result<std::vector<std::string>> TextsOf(std::string_view server, std::string_view body, std::string_view key,
                                         std::uint64_t count) {
  constexpr std::size_t kTextBytesMax = 128;
  const Json json = Parse(body);
  const Json* const items = Member(json, key);
  if (items == nullptr || !items->is_array()) return NotOurs(server);
  std::vector<std::string> texts;
  for (const Json& item : *items) {
    if (!item.is_string()) return NotOurs(server);
    const auto& text = item.get_ref<const std::string&>();
    // No form of an ID has another character; what has one may be meant for a terminal, or a JSON reader.
    const bool good =
        !text.empty() && text.size() <= kTextBytesMax &&
        std::all_of(text.begin(), text.end(), [](char c) { return IsLetterOrDigit(c) || c == '-'; });
    if (!good) return NotOurs(server);
    texts.push_back(text);
  }
  if (texts.size() != count) {
    return Error{ErrorCode::kInternal,
                 fmt::format("{} gave {} IDs instead of {}", server, texts.size(), count), ""};
  }
  std::vector<std::string_view> sorted(texts.begin(), texts.end());
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return NotOurs(server);
  return texts;
}

Result<std::uint64_t> RevealedOf(std::string_view server, std::string_view body) {
  const auto id = ParseUnsigned("id", TextOf(Parse(body), "id"), 0, kMaxIdLimit);
  return id.ok() ? id : NotOurs(server);
}

Result<NodeMark> MarkOf(std::string_view server, std::string_view body) {
  const Json json = Parse(body);
  const auto end = ParseUnsigned("mark", TextOf(json, "mark"), 0, kMaxIdLimit);
  if (!end.ok()) return NotOurs(server);
  return NodeMark{*end, TextOf(json, "raised_at"), TextOf(json, "raised_by"), TextOf(json, "frozen_since"),
                  TextOf(json, "max_id_seen")};
}

Result<NodeClock> ClockOf(std::string_view server, std::string_view body) {
  const Json json = Parse(body);
  const Json* const time = Member(json, "time_ms");
  // Beyond the year 10000 is no clock, and nothing to calculate with.
  constexpr std::int64_t kMillisMax = 253'402'300'799'999;
  if (time == nullptr || !time->is_number_unsigned() ||
      time->get<std::uint64_t>() > static_cast<std::uint64_t>(kMillisMax))
    return NotOurs(server);
  const Json* const version = Member(json, "version");
  return NodeClock{WallTimeOf(time->get<std::int64_t>()),
                   version != nullptr && version->is_string() ? version->get<std::string>() : ""};
}

}  // namespace leaf::client
