// The codes of all tags, as the configuration and the records of the database say.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/mutex.h"
#include "leaf/base/result.h"
#include "leaf/codes/code_key.h"
#include "leaf/codes/code_shape.h"
#include "leaf/codes/tag_codes.h"
#include "leaf/core/code_records.h"

namespace leaf::codes {

// The tag that stands for snowflake IDs, whose tweak is the cluster's name.
inline constexpr std::string_view kSnowflakeTag = "snowflake";

// Thread-safe. The records outlive it.
class CodeBook {
 public:
  struct Options {
    CodeKey key{};
    CodeShape shape{};
    std::map<std::string, CodeShape, std::less<>> tags{};  // that have a shape of their own

    bool operator==(const Options&) const = default;
  };

  CodeBook(Options options, core::CodeRecords& records);

  // Codes are made as these say from now on: a tag whose key or shape is another one is opened again, and its
  // record judges it as at the start. Codes that a caller holds stay good, since what they were made of was
  // kept before.
  void Reconfigure(Options options);

  CodeShape ShapeFor(std::string_view tag) const;
  std::string fingerprint() const;

  // What OpenToIssue, or either of the two, has returned before; null if nothing has. Never blocks.
  std::shared_ptr<const TagCodes> FindToIssue(std::string_view tag) const;
  std::shared_ptr<const TagCodes> FindToReveal(std::string_view tag) const;

  // The record that the configuration asks for. `tweak`: the tag, or the cluster's name. Errors: kConfig (too
  // few codes for snowflake IDs).
  Result<core::CodeRecord> RecordFor(std::string_view tag, std::string_view tweak) const;

  // Blocks on the database. The shape is kept as the tag's if it has none yet. Errors: those of RecordFor;
  // kConfig (another key, cluster, alphabet, or a shorter length than it has; no table), and those of the
  // database.
  Result<std::shared_ptr<const TagCodes>> OpenToIssue(std::string_view tag, std::string_view tweak);
  // What codes are made of must outlive a database that goes back: the records of all tags of which codes
  // were made here are read again. What is missing is kept again. Of a tag whose record says something else
  // by now no code is made until OpenToIssue allows it. Where codes were only read, a record that is gone or
  // says something else is forgotten: the next reader opens it again. Blocks. Errors: those of the database,
  // after which the rest was not looked at.
  struct Compared {
    std::vector<std::string> kept_again;
    std::vector<std::string> differ;
  };
  Result<Compared> CompareRecords();
  // Keeps nothing, and reads the record again. Errors: kNotFound (the tag has no codes), kConfig (their key
  // is another one, or their cluster), and those of the database.
  Result<std::shared_ptr<const TagCodes>> OpenToReveal(std::string_view tag, std::string_view tweak);

 private:
  // What a call goes by from its begin to its end.
  struct Settings {
    Options options;
    std::string fingerprint;

    const CodeShape& ShapeFor(std::string_view tag) const;
    Result<core::CodeRecord> RecordFor(std::string_view tag, std::string_view tweak) const;
  };
  struct Opened {
    std::shared_ptr<const TagCodes> codes;
    bool may_issue = false;
  };
  static std::shared_ptr<const Settings> SettingsOf(Options options);
  std::shared_ptr<const Settings> settings() const;
  std::shared_ptr<const TagCodes> Find(std::string_view tag, bool to_issue) const;
  // Not if the settings are others by now.
  void Remember(std::string_view tag, const std::shared_ptr<const Settings>& settings,
                const std::shared_ptr<const TagCodes>& codes, bool may_issue);
  std::optional<core::CodeRecord> MadeOf(std::string_view tag) const;

  core::CodeRecords& records_;
  mutable Mutex mutex_;
  std::shared_ptr<const Settings> settings_ LEAF_GUARDED_BY(mutex_);
  // What was found once is found until CompareRecords finds it changed. No more than there are tags, or were.
  std::map<std::string, Opened, std::less<>> opened_ LEAF_GUARDED_BY(mutex_);
  // The records by which this node has made codes since it started, also with earlier settings. Each has all
  // lengths that this node knows.
  std::map<std::string, core::CodeRecord, std::less<>> made_ LEAF_GUARDED_BY(mutex_);
};

}  // namespace leaf::codes
