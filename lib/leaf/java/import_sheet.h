// A leaf.properties while it is imported: what stands in it, what of that was looked at, and what came of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/java/leaf_properties.h"
#include "leaf/java/properties.h"

namespace leaf::java {

using NoteKind = ImportNote::Kind;

inline constexpr std::string_view kName = "leaf.name";
inline constexpr std::string_view kSegmentEnable = "leaf.segment.enable";
inline constexpr std::string_view kSnowflakeEnable = "leaf.snowflake.enable";
inline constexpr std::string_view kPort = "leaf.snowflake.port";
inline constexpr std::string_view kMode = "leaf.snowflake.mode";
inline constexpr std::string_view kWorkIdMap = "leaf.snowflake.local.workIdMap";

// The same thing in the two spellings; the fork has upstream's.
struct Spelled {
  std::string_view upstream;
  std::string_view starter;
};
inline constexpr Spelled kUrl{"leaf.jdbc.url", "leaf.segment.url"};
inline constexpr Spelled kUser{"leaf.jdbc.username", "leaf.segment.username"};
inline constexpr Spelled kPassword{"leaf.jdbc.password", "leaf.segment.password"};
inline constexpr Spelled kZookeeper{"leaf.snowflake.zk.address", "leaf.snowflake.address"};
inline constexpr std::array kAllSpelled{kUrl, kUser, kPassword, kZookeeper};

inline constexpr std::array kSingleSpelled{kName, kSegmentEnable, kSnowflakeEnable, kPort, kMode, kWorkIdMap};

// Without what Java's String.trim takes off.
std::string Trimmed(std::string_view text);
// Digits only, and at most `max`.
std::optional<std::uint64_t> ParseNumber(std::string_view text, std::uint64_t max);

Error Wrong(const Property& property, const std::string& why, std::string hint = "");
Error Missing(std::string_view key, const std::string& why, std::string hint = "");

class ImportSheet {
 public:
  // `options` outlives it.
  ImportSheet(std::vector<Property> properties, const ImportOptions& options);

  // As the options say, or else the keys. Errors: kConfig.
  Result<void> ChooseSpelling();
  LeafSpelling spelling() const { return result_.spelling; }
  // Whether Spring, which reads the starter's file, puts other text in place of a part of a value of the
  // modes that are on. Errors: kConfig.
  Result<void> RefusePlaceholders(bool segment, bool snowflake) const;
  const ImportOptions& options() const { return options_; }

  // The property of a key that counts, which is looked at by that; null if there is none.
  const Property* Find(std::string_view key);
  const Property* Find(const Spelled& key) { return Find(NameOf(key)); }
  std::string_view NameOf(const Spelled& key) const {
    return result_.spelling == LeafSpelling::kStarter ? key.starter : key.upstream;
  }
  // The value without blanks around it, with a note if there were any.
  std::string Tidy(const Property& property);
  // As it is, with a note: what Java does with the blank works, and has to be the same here.
  const std::string& Exact(const Property& property);
  // Whether a mode is switched on.
  Result<bool> Enabled(std::string_view key);

  void Note(NoteKind kind, const Property& property, std::string text);
  void Advise(std::string text);
  // `from`: the property that it comes from, or `option` in the command line.
  Result<void> Set(std::string_view key, config::Value value, std::string_view from,
                   std::string_view option = "");
  bool IsSet(std::string_view key) const;
  void SetPassword(std::string password) { result_.password = std::move(password); }

  // All that came of it, with a note about each property that was not looked at. The last call.
  Imported Finish();

 private:
  bool Has(std::string_view key) const { return last_.count(key) > 0; }
  void ListUnused();
  std::string WhyUnused(const Property& property, const std::vector<std::string>& known) const;

  const std::vector<Property> properties_;
  const ImportOptions& options_;
  std::map<std::string, std::size_t, std::less<>> last_;  // the property of each key that counts
  std::set<std::size_t> used_;                            // looked at, or listed
  Imported result_;
};

// The database of the file, once; `why`: the key that asks for it.
Result<void> ImportDatabase(ImportSheet& sheet, std::string_view why);

}  // namespace leaf::java
