// Turns Java Leaf's leaf.properties into a configuration of leafctl: the spellings of upstream, of its Spring
// Boot starter, and of the best-known fork (NotFound9/Leaf), with the defaults each of them has in its code.
//
// What is held to: nothing is dropped silently. Whatever cannot be carried over, was understood in another
// way than it looks, or has to be known before the first start, is a note that names line and key. A password
// is in no value, no note and no error.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/config/keys.h"

namespace leaf::java {

enum class LeafSpelling {
  kAuto,  // told by the keys; an error if it matters and they do not tell
  kUpstream,
  kStarter,
  kFork,
};
// "auto", "upstream", "starter", "fork".
std::string_view LeafSpellingName(LeafSpelling spelling);

struct ImportOptions {
  LeafSpelling spelling = LeafSpelling::kAuto;
  // IP or IP:PORT that identifies this node, which the file does not say: Java takes the machine's first
  // address. Without a port, leaf.snowflake.port.
  std::string address;
  // server.listen, which the file does not say either; empty for leafctl's default.
  std::vector<std::string> listen;
  // What mysql.password_file is to name, if there is a password; "" for nothing.
  std::string password_file;
};

struct ImportNote {
  enum class Kind {
    kDropped,  // has no counterpart
    kChanged,  // carried over, but not as it looks
    kAdvice,   // what the file cannot say, or what is to be known
  };
  Kind kind = Kind::kAdvice;
  int line = 0;     // 0: about no line of the file
  std::string key;  // "" with line 0
  std::string text;
};
// "dropped", "changed", "advice".
std::string_view ImportNoteKindName(ImportNote::Kind kind);

struct Imported {
  LeafSpelling spelling = LeafSpelling::kUpstream;
  // In the order of config::Keys(). Each passes its key's own check.
  std::vector<std::pair<std::string, config::Value>> values;
  std::vector<ImportNote> notes;  // by line
  std::string password;           // "" for none
};

// Errors: kConfig that names line and key (what Java could not have started with, a database that is no
// MySQL, a file that contradicts itself); kInvalidArgument for what `options` lacks or has wrong.
Result<Imported> ImportLeafProperties(std::string_view bytes, const ImportOptions& options);

// "line 7: leaf.jdbc.url: …", one line for people.
std::string FormatNote(const ImportNote& note);

// The TOML file: the notes as comments, then the values by section. `source`: what was imported.
std::string FormatImported(const Imported& imported, std::string_view source);

}  // namespace leaf::java
