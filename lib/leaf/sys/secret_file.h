// Reads secrets from files that no stranger can read.
#pragma once

#include <string>

#include "leaf/base/result.h"

namespace leaf::sys {

// The file's content without a trailing newline. Errors: kConfig if it cannot be read or others than its
// owner may read it; but the group of a file of root's may, unless this is root. No message ever holds the
// content.
Result<std::string> ReadSecretFile(const std::string& path);

}  // namespace leaf::sys
