// Texts of others, from an answer, a record or a file, that would take a parser down: JSON is copied and
// written, and TOML is taken down, as deep as the text nests, and the stack does not go that far.
#pragma once

#include <string_view>

namespace leaf {

// Whether the values of a JSON text nest deeper than anything that leafctl writes (100
// levels). Of a text that is no JSON: anything.
bool IsDeepJson(std::string_view text);

// Whether a line of a TOML text has more dots outside of strings than any key or file needs (1000): toml++
// makes a table of each part of "a.b.c". It bounds arrays and inline tables itself.
bool HasDeepTomlKey(std::string_view text);

}  // namespace leaf
