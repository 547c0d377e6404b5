// What is remembered of a tag's codes (lib/leaf/codes) at their first use, so that no code is ever made
// twice.
//
// Invariant: two IDs of a tag never have the same code. Codes of one length are a permutation under one key,
// so they differ; codes of two lengths differ by their length. The schedule that breaks it: a node with
// another key, or another alphabet, makes codes of the same length. So key, alphabet and whether there is a
// check character belong to the tag for ever, also after the tag was removed: a tag that is added again goes
// on above its old IDs. And lengths only grow: what a node of a shorter one has made stays readable.
// Snowflake IDs of all clusters have one record, "snowflake", and the permutation is another one in each
// cluster: so it names its cluster, too, or a node of another one would read a code as another ID.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/result.h"

namespace leaf::core {

struct CodeRecord {
  std::string tag;           // "snowflake" for snowflake IDs
  std::string alphabet;      // as codes.alphabet
  bool check = true;         // each code ends with a check character
  std::vector<int> lengths;  // without the check character; ascending, not empty
  std::string key;           // the key's fingerprint
  // The fingerprint of the cluster's name, of "snowflake" only; "" where an older leafctl kept the record.
  std::string cluster{};

  bool HasSamePermutation(const CodeRecord& other) const {
    return key == other.key && alphabet == other.alphabet && check == other.check && cluster == other.cluster;
  }
};

// What there are of alphabets (codes.alphabet).
struct CodeAlphabet {
  std::string_view name;
  std::uint64_t radix;
  int length_min;      // FF1 needs 10^6 codes
  int length_all_ids;  // from which on each number below 2^63 has a code
};
inline constexpr CodeAlphabet kCodeAlphabets[] = {{"decimal", 10, 6, 19}, {"base32", 32, 4, 13}};
inline constexpr int kCodeLengthMax = 24;

// "12,14", and back; nothing for what is none.
std::string CodeLengthsText(const std::vector<int>& lengths);
std::optional<std::vector<int>> ParseCodeLengths(std::string_view text);

// Why a node wants a record to be kept.
enum class CodesBegin {
  kNow,     // it is to make codes, of one length
  kBefore,  // it has made codes, of one or more lengths, and the record of them was lost
};

// What is remembered of a tag of which `kept` is remembered, and whose codes begin as `wanted` says. Nothing
// if that is what `kept` says already. Errors: kConfig, which says what differs.
Result<std::optional<CodeRecord>> ExtendCodeRecord(const CodeRecord& kept, const CodeRecord& wanted,
                                                   CodesBegin begin);

// The first ID that has no code: kIdEnd if each has one.
std::uint64_t CodesEnd(const CodeRecord& record);
// Of each tag that has codes, or is to have them.
using CodeEnds = std::map<std::string, std::uint64_t, std::less<>>;

// Thread-safe. Blocks.
class CodeRecords {
 public:
  virtual ~CodeRecords() = default;
  // Nothing if the tag has no codes yet. Errors: kConfig (there is no table), and those of the database.
  virtual Result<std::optional<CodeRecord>> Load(std::string_view tag) = 0;
  // Remembers `wanted` (ExtendCodeRecord), durably before it returns what is in force then. Errors: the same,
  // and those of ExtendCodeRecord.
  virtual Result<CodeRecord> Keep(const CodeRecord& wanted, CodesBegin begin) = 0;
};

}  // namespace leaf::core
