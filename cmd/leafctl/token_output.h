// What the token commands have in common.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "context.h"
#include "leaf/access/token_file.h"
#include "leaf/base/result.h"
#include "tag_output.h"

namespace leaf::cmd {

// auth.tokens_file. Errors: kConfig if it is not set.
Result<std::string> TokenFileOf(const config::Resolved& resolved);
// As ReadTokens; none for a file that does not exist yet.
Result<std::vector<access::TokenEntry>> ReadTokensIfThere(const config::Config& config);

// "ok", "expired", "expires" (within two weeks).
std::string_view StateOf(const access::TokenEntry& entry, WallTime now);
Json TokenJson(const access::TokenEntry& entry, WallTime now);
// The tags, and "snowflake" where it is not for all; "-" without role ids.
std::string TagsText(const access::TokenEntry& entry);

}  // namespace leaf::cmd
