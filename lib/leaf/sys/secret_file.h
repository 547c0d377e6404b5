// Reads secrets from files that only their owner can read.
#pragma once

#include <string>

#include "leaf/base/result.h"

namespace leaf::sys {

// The file's content without a trailing newline. Errors: kConfig if it cannot be read or others than its
// owner may read it. No message ever holds the content.
Result<std::string> ReadSecretFile(const std::string& path);

}  // namespace leaf::sys
