// The key of all codes of a deployment.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "leaf/base/result.h"

namespace leaf::codes {

// AES-256.
using CodeKey = std::array<unsigned char, 32>;

// 64 hexadecimal digits, as leafctl code keygen writes them; an end of line behind them does not count.
// Errors: kConfig, which does not tell what was read.
Result<CodeKey> ParseCodeKey(std::string_view text);
std::string CodeKeyText(const CodeKey& key);

// What tells keys apart and tells nothing of them: 16 hexadecimal digits of a SHA-256.
std::string FingerprintOf(const CodeKey& key);
// The same of the cluster whose snowflake IDs have codes; as long.
std::string FingerprintOfCluster(std::string_view name);

}  // namespace leaf::codes
