// Small files that survive a crash at any moment: replaced whole, or not at all.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "leaf/base/result.h"
#include "leaf/sys/file_ops.h"

namespace leaf::sys {

// Replaces `directory`/`name` by `content`, for its owner only (the directory's owner, if this is root):
// written beside it, synced, renamed over it, and the directory synced. Durable when it returns; after a
// crash or an error the file is the old or the new one, whole. Errors name the file: kPermission;
// kUnavailable for a full or failing disk; kConfig. One caller at a time for each file.
Result<void> ReplaceFile(FileOps& ops, const std::string& directory, const std::string& name,
                         std::string_view content);

enum class Existing { kRefuse, kReplace };
// A new file for people, with `mode` (less the umask). It is whole when it appears under its name, and
// durable when this returns. Errors: kAlreadyExists under kRefuse, even if another process makes it at the
// same time; those of ReplaceFile.
Result<void> WriteNewFile(FileOps& ops, const std::string& path, std::string_view content, mode_t mode,
                          Existing existing);

// The whole file; nothing if it does not exist. Errors: kPermission; kUnavailable for a failing disk;
// kConfig, also if it has more than `bytes_max`.
Result<std::optional<std::string>> ReadWholeFile(FileOps& ops, const std::string& path,
                                                 std::size_t bytes_max);

}  // namespace leaf::sys
