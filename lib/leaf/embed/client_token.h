// The token that is shown to daemons (client.token_file).
#pragma once

#include <string>

#include "leaf/base/result.h"

namespace leaf::embed {

// The token in the file `path`; "" without a path. Errors: kConfig for a file that cannot be read, that other
// users can read, or that does not hold one token.
Result<std::string> ReadClientToken(const std::string& path);

}  // namespace leaf::embed
