// The MySQL client library, loaded when the first MySQL connection is made and not before: with the
// cryptography behind it, it takes longer to load than a whole call that asks a daemon.
//
// mysql_library.cc defines the functions of mysql.h that SOCI's backend and this folder call, each passing on
// to the library that was loaded. What else is called has to be added there: the linker says so.
#pragma once

#include "leaf/base/result.h"

namespace leaf::sql {

// Loads it, once; after a failure the next call tries again. Thread-safe. A function of mysql.h that is
// called before does the same, and stops the process if it fails. Errors: kConfig if it is not there, or not
// what was meant.
Result<void> LoadMysqlLibrary();

}  // namespace leaf::sql
