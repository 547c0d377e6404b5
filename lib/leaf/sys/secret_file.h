// Reads secrets from files that no stranger can read.
#pragma once

#include <cstddef>
#include <string>

#include "leaf/base/result.h"

namespace leaf::sys {

inline constexpr std::size_t kSecretBytesMax = std::size_t{64} * 1024;

// The file's content without a trailing newline. Errors: kConfig if it cannot be read, has more than
// `bytes_max`, or others than its owner may read it; but the group of a file of root's may, unless this is
// root. No message ever holds the content.
Result<std::string> ReadSecretFile(const std::string& path, std::size_t bytes_max = kSecretBytesMax);

}  // namespace leaf::sys
