// The JSON bodies of requests that change tags: one flat object of a few fields.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "leaf/base/result.h"
#include "leaf/core/ports.h"

namespace leaf::server {

// Whether a body of this Content-Type is read: JSON, or not said.
bool IsJsonOrUnsaid(std::string_view content_type);

// How long a request that changes the order of a tag may have nodes waited for.
inline constexpr std::chrono::milliseconds kOrderWaitMax{50'000};

// What a PATCH asks for.
struct TagPatch {
  core::TagChange change;
  std::string confirm;  // "" if it is not there
};

// What a repair asks for.
struct TagRepairBody {
  std::optional<std::uint64_t> to;
  std::string confirm;
};

// Errors of all: kInvalidArgument that names the field: text that is no JSON object, a field that is not
// known, is there twice, or has another type; a value out of its bounds, which are those of the tag commands.
// An empty text is an empty object.
Result<core::NewTag> ReadNewTag(std::string_view body);
Result<TagPatch> ReadTagPatch(std::string_view body);
Result<std::string> ReadConfirm(std::string_view body);  // {"confirm"} alone
Result<TagRepairBody> ReadTagRepair(std::string_view body);

}  // namespace leaf::server
