// Resolves the configuration: flag > environment > file > default, remembering where each value came from.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/config/config.h"

namespace leaf::config {

// A value given on the command line.
struct FlagValue {
  std::string key;     // "server.listen"
  std::string text;    // as ParseText reads it
  std::string origin;  // "--listen", "--set"
};

struct LoadInput {
  std::optional<std::string> file;  // --config
  std::vector<FlagValue> flags;     // later ones win
  std::map<std::string, std::string> environment;
  std::string host = "";  // this machine's name, for snowflake.worker_id = "ordinal"
  bool is_root = false;
  bool search_file = true;  // without `file`: look where files may be
};

struct Resolved {
  Config config;
  std::string file;                            // the file that was read, "" for none
  std::map<std::string, std::string> origins;  // by key: "default", "file:line", "$VARIABLE", "--flag"
  std::vector<std::string> warnings;

  // Whether anything but its default was given for a key, or for any of a table ("mysql.").
  bool IsSet(const std::string& name) const;
  // Whether anything at all was configured, but for where state lives, how output and logs look, codes and
  // tokens.
  bool AnythingSet() const;
};

// Every problem is reported at once, one a line. Errors: kInvalidArgument if all problems are in flags, else
// kConfig.
Result<Resolved> Load(const LoadInput& input);

}  // namespace leaf::config
