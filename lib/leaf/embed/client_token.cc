#include "leaf/embed/client_token.h"

#include <fmt/format.h>

#include <algorithm>

#include "leaf/base/text.h"
#include "leaf/sys/secret_file.h"

namespace leaf::embed {

Result<std::string> ReadClientToken(const std::string& path) {
  if (path.empty()) return std::string();
  LEAF_ASSIGN_OR_RETURN(const std::string text, sys::ReadSecretFile(path));
  std::string token(TrimBlanks(text));
  // As a header's value, or as a word, it would end early.
  const bool good =
      !token.empty() && std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (good) return token;
  return Error{ErrorCode::kConfig, fmt::format("client.token_file {} does not hold one token", path),
               "leafctl token add prints one"};
}

}  // namespace leaf::embed
