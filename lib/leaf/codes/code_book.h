// The codes of all tags, as the configuration and the records of the database say.
#pragma once

#include <functional>
#include <map>
#include <memory>
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

  // Codes are made as these say from now on: every tag is opened again, and its record judges them as at the
  // start. Codes that a caller holds stay good, since what they were made of was kept before. Nothing happens
  // if they are the same.
  void Reconfigure(Options options);

  CodeShape ShapeFor(std::string_view tag) const;
  std::string fingerprint() const;

  // What OpenToIssue, or either of the two, has returned before; null if nothing has. Never blocks.
  std::shared_ptr<const TagCodes> FindToIssue(std::string_view tag) const;
  std::shared_ptr<const TagCodes> FindToReveal(std::string_view tag) const;

  // Blocks on the database. `tweak`: the tag, or the cluster's name. The shape is kept as the tag's if it has
  // none yet. Errors: kConfig (another key, alphabet, or a shorter length than it has; too few codes for
  // snowflake IDs; no table), and those of the database.
  Result<std::shared_ptr<const TagCodes>> OpenToIssue(std::string_view tag, std::string_view tweak);
  // What codes are made of must outlive a database that goes back: the records of the tags that are opened to
  // issue are read again. What is missing is kept again. Of a tag whose record says something else by now no
  // code is made until OpenToIssue allows it. Blocks. Errors: those of the database, after which the rest was
  // not looked at.
  struct Compared {
    std::vector<std::string> kept_again;
    std::vector<std::string> differ;
  };
  Result<Compared> CompareRecords();
  // Keeps nothing, and reads the record again. Errors: kNotFound (the tag has no codes), kConfig (their key
  // is another one), and those of the database.
  Result<std::shared_ptr<const TagCodes>> OpenToReveal(std::string_view tag, std::string_view tweak);

 private:
  // What a call goes by from its begin to its end.
  struct Settings {
    Options options;
    std::string fingerprint;

    const CodeShape& ShapeFor(std::string_view tag) const;
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
                std::shared_ptr<const TagCodes> codes, bool may_issue);

  core::CodeRecords& records_;
  mutable Mutex mutex_;
  std::shared_ptr<const Settings> settings_ LEAF_GUARDED_BY(mutex_);
  // What was found once is found from then on. No more than there are tags, or were.
  std::map<std::string, Opened, std::less<>> opened_ LEAF_GUARDED_BY(mutex_);
};

}  // namespace leaf::codes
