// Rules for what a tag's row may have, wherever it comes from.
#pragma once

#include <string_view>

#include "leaf/base/result.h"

namespace leaf::core {

// A description that fits its column. `name`: what it was given as. Errors: kInvalidArgument.
Result<void> CheckDescription(std::string_view name, std::string_view text);

}  // namespace leaf::core
