#include "leaf/access/caller.h"

#include <fmt/format.h>

#include "leaf/base/text.h"

namespace leaf::access {

const Caller& Caller::Open() {
  static const Caller kOpen{.name = "a caller without a token", .roles = {Role::kIds, Role::kRead}};
  return kOpen;
}

const Caller& Caller::Operator() {
  static const Caller kOperator{.name = "operator", .roles = {Role::kAdmin}, .is_known = true};
  return kOperator;
}

std::optional<Error> Caller::OverLimit(std::uint64_t count, MonotonicTime now) const {
  if (count > limit->per_second()) {
    return Error{
        ErrorCode::kTooLarge,
        fmt::format("count {} is over the limit of {}, {} IDs a second", count, name, limit->per_second()),
        "ask for fewer at once"};
  }
  if (limit->Admit(now, count)) return std::nullopt;
  return Error{ErrorCode::kLimited,
               fmt::format("{} has used its {} IDs of this second", name, limit->per_second()), ""};
}

Error Caller::NotForIds(std::string_view tag) const {
  return {ErrorCode::kPermission,
          tag.empty() ? fmt::format("{} may not take snowflake IDs", name)
                      : fmt::format("{} may not take IDs of tag {}", name, Quoted(tag)),
          fmt::format("its tags are {}", tags.Text())};
}

}  // namespace leaf::access
