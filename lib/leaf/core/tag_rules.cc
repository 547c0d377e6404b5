#include "leaf/core/tag_rules.h"

#include <fmt/format.h>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"

namespace leaf::core {

Result<void> CheckDescription(std::string_view name, std::string_view text) {
  const auto characters = CountCodePoints(text);
  if (characters && *characters <= kDescriptionCharactersMax) return {};
  return Error{ErrorCode::kInvalidArgument,
               characters ? fmt::format("bad {}: it has {} characters, {} are allowed", name, *characters,
                                        kDescriptionCharactersMax)
                          : fmt::format("bad {}: it is not valid UTF-8", name),
               ""};
}

}  // namespace leaf::core
