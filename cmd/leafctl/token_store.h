// The file of tokens, as daemons and the token commands read and change it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "leaf/access/gate.h"
#include "leaf/access/token_file.h"
#include "leaf/base/result.h"
#include "leaf/config/config.h"

namespace leaf::cmd {

// The tokens of auth.tokens_file; none if it is not set. Errors: kConfig that names the file.
Result<std::vector<access::TokenEntry>> ReadTokens(const config::Config& config);

// auth.anonymous.
access::Roles AnonymousRoles(const config::Config& config);

// Gives the gate what the configuration and the file say now. Errors: as of ReadTokens; nothing changes then.
Result<void> SetGate(access::Gate& gate, const config::Config& config);

// The text of the file `path` as EditTokenFile gives it to `edit`; "" where there is no such file. Errors:
// kConfig.
Result<std::string> TokenFileText(const std::string& path);

// Replaces the text of the file `path` by what `edit` makes of it: whole or not at all, with its owner and
// mode, and one process at a time. A file that is missing is made, for its owner only: root makes it the
// owner's of its folder, or of `state_dir`, whose owner is the daemon. Errors: those of `edit`, after which
// nothing changes; kConfig, kPermission, kUnavailable that name the file.
Result<void> EditTokenFile(const std::string& path, const std::string& state_dir,
                           const std::function<Result<std::string>(const std::string& text)>& edit);

}  // namespace leaf::cmd
