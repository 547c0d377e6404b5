// Files of java.util.Properties, read exactly as Java reads them, so that what Java Leaf was told is what is
// understood: Latin-1, '=' or ':' or blanks between key and value, '#' and '!' comments, lines continued by a
// backslash, escapes. Blanks at the end of a value belong to it ("true " is not "true").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/result.h"

namespace leaf::java {

struct Property {
  std::string key;    // UTF-8
  std::string value;  // UTF-8
  int line = 0;       // on which it begins, from 1
};

// All of them, in order; a key may come more than once (Java takes the last). Errors: kConfig that names the
// line: a malformed \uXXXX (Java refuses the file), half of a surrogate pair (no UTF-8 can hold it).
Result<std::vector<Property>> ParseJavaProperties(std::string_view bytes);

}  // namespace leaf::java
