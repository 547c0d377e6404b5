// The one place where database errors become ours, by number.
#pragma once

#include <exception>
#include <string_view>

#include "leaf/base/error.h"

namespace leaf::sql {

// Where the failing statement stood: a lost reply means nothing, unless it was the one to COMMIT.
enum class Phase { kStatement, kCommit };

// `what` is what failed, as "cannot <what>".
Error TranslateException(std::string_view what, const std::exception& exception, Phase phase);

// By the server's (or the client library's) error number.
ErrorCode MysqlErrorCode(unsigned number, Phase phase);
// By SQLite's result code, primary or extended.
ErrorCode SqliteErrorCode(int result, Phase phase);

// True for "no such table" of either database.
bool IsMissingTable(const std::exception& exception);

// True if a text was compared with a column whose character set cannot express it.
bool IsInexpressible(const std::exception& exception);

}  // namespace leaf::sql
