// Loads OpenSSL.
#pragma once

#include "leaf/base/result.h"

namespace leaf::tls {

// Once; after a failure the next call tries again. Everything else in this folder is used only after it has
// succeeded, which making a context sees to. Thread-safe. Errors: kConfig if the library is not there, or is
// not what was meant.
Result<void> LoadLibrary();

}  // namespace leaf::tls
