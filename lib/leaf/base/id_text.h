// The text forms of an ID: decimal, 0x-hexadecimal, base62 (0-9A-Za-z, most significant first, unpadded).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "leaf/base/result.h"

namespace leaf {

enum class IdFormat { kDecimal, kHex, kBase62 };

std::optional<IdFormat> ParseIdFormat(std::string_view name);

// Appends `id` to `out` without allocating beyond the string's growth.
void AppendId(std::string& out, std::uint64_t id, IdFormat format = IdFormat::kDecimal);

// Reads an ID in [0, 2^63): decimal or, begun by 0x, hexadecimal; in `format` where that is given (0x may be
// left out then). Errors: kInvalidArgument that names the text and what is wrong with it.
Result<std::uint64_t> ParseId(std::string_view text, std::optional<IdFormat> format = std::nullopt);

// Decimal digits only (no sign, no blanks), in min..max. Errors: kInvalidArgument that names `what` and the
// text.
Result<std::uint64_t> ParseUnsigned(std::string_view what, std::string_view text, std::uint64_t min,
                                    std::uint64_t max);

}  // namespace leaf
