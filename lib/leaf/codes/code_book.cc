#include "leaf/codes/code_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"

namespace leaf::codes {
namespace {

bool Includes(const std::vector<int>& lengths, const std::vector<int>& wanted) {
  return std::includes(lengths.begin(), lengths.end(), wanted.begin(), wanted.end());
}

}  // namespace

CodeBook::CodeBook(Options options, core::CodeRecords& records)
    : records_(records), settings_(SettingsOf(std::move(options))) {}

std::shared_ptr<const CodeBook::Settings> CodeBook::SettingsOf(Options options) {
  std::string fingerprint = FingerprintOf(options.key);
  return std::make_shared<const Settings>(Settings{std::move(options), std::move(fingerprint)});
}

std::shared_ptr<const CodeBook::Settings> CodeBook::settings() const {
  const MutexLock lock(mutex_);
  return settings_;
}

void CodeBook::Reconfigure(Options options) {
  auto wanted = SettingsOf(std::move(options));
  const MutexLock lock(mutex_);
  if (wanted->options == settings_->options) return;
  const std::shared_ptr<const Settings> before = std::exchange(settings_, wanted);
  const bool has_same_key = wanted->options.key == before->options.key;
  std::erase_if(opened_, [&](const auto& entry) {
    return !has_same_key || wanted->ShapeFor(entry.first) != before->ShapeFor(entry.first);
  });
}

const CodeShape& CodeBook::Settings::ShapeFor(std::string_view tag) const {
  const auto own = options.tags.find(tag);
  return own == options.tags.end() ? options.shape : own->second;
}

CodeShape CodeBook::ShapeFor(std::string_view tag) const { return settings()->ShapeFor(tag); }

std::string CodeBook::fingerprint() const { return settings()->fingerprint; }

std::shared_ptr<const TagCodes> CodeBook::Find(std::string_view tag, bool to_issue) const {
  const MutexLock lock(mutex_);
  const auto found = opened_.find(tag);
  return found == opened_.end() || (to_issue && !found->second.may_issue) ? nullptr : found->second.codes;
}

std::shared_ptr<const TagCodes> CodeBook::FindToIssue(std::string_view tag) const { return Find(tag, true); }
std::shared_ptr<const TagCodes> CodeBook::FindToReveal(std::string_view tag) const {
  return Find(tag, false);
}

void CodeBook::Remember(std::string_view tag, const std::shared_ptr<const Settings>& settings,
                        const std::shared_ptr<const TagCodes>& codes, bool may_issue) {
  const MutexLock lock(mutex_);
  const core::CodeRecord& record = codes->record();
  if (may_issue) {
    core::CodeRecord& made = made_.try_emplace(std::string(tag), record).first->second;
    if (made.lengths.size() < record.lengths.size()) made = record;
  }
  if (settings != settings_) return;
  Opened& opened = opened_[std::string(tag)];
  // A record that says something else than the codes that are made here: CompareRecords judges it.
  const bool differs = opened.codes != nullptr && !opened.codes->record().HasSamePermutation(record);
  if (differs && opened.may_issue && !may_issue) return;
  // Lengths are only ever added: a record that was read before this one was kept is out of date. What codes
  // are made of goes before what was only read.
  if (opened.codes == nullptr || (differs && may_issue) ||
      opened.codes->record().lengths.size() <= record.lengths.size())
    opened.codes = codes;
  opened.may_issue = opened.may_issue || may_issue;
}

std::optional<core::CodeRecord> CodeBook::MadeOf(std::string_view tag) const {
  const MutexLock lock(mutex_);
  const auto made = made_.find(tag);
  return made == made_.end() ? std::nullopt : std::optional(made->second);
}

Result<core::CodeRecord> CodeBook::RecordFor(std::string_view tag, std::string_view tweak) const {
  return settings()->RecordFor(tag, tweak);
}

Result<core::CodeRecord> CodeBook::Settings::RecordFor(std::string_view tag, std::string_view tweak) const {
  const CodeShape& shape = ShapeFor(tag);
  const bool is_snowflake = tag == kSnowflakeTag;
  if (is_snowflake && DomainOf(shape) < kIdEnd) {
    return Error{ErrorCode::kConfig,
                 fmt::format("no codes of snowflake IDs: there are only {} of length {}, fewer than IDs",
                             DomainText(shape), shape.length),
                 fmt::format("set length = {} in [codes.tags.\"{}\"], or more",
                             shape.alphabet == Alphabet::kDecimal ? 19 : 13, kSnowflakeTag)};
  }
  return core::CodeRecord{.tag = std::string(tag),
                          .alphabet = std::string(AlphabetName(shape.alphabet)),
                          .check = shape.check,
                          .lengths = {shape.length},
                          .key = fingerprint,
                          .cluster = is_snowflake ? FingerprintOfCluster(tweak) : ""};
}

Result<std::shared_ptr<const TagCodes>> CodeBook::OpenToIssue(std::string_view tag, std::string_view tweak) {
  const auto settings = this->settings();
  LEAF_ASSIGN_OR_RETURN(const core::CodeRecord wanted, settings->RecordFor(tag, tweak));
  // With other settings codes were made before, and the database may have lost what they were made of since.
  if (const auto made = MadeOf(tag)) LEAF_RETURN_IF_ERROR(records_.Keep(*made, core::CodesBegin::kBefore));
  LEAF_ASSIGN_OR_RETURN(const core::CodeRecord record, records_.Keep(wanted, core::CodesBegin::kNow));
  LEAF_ASSIGN_OR_RETURN(auto codes,
                        TagCodes::Make(record, settings->options.key, tweak, settings->ShapeFor(tag).group));
  Remember(tag, settings, codes, true);
  return codes;
}

Result<CodeBook::Compared> CodeBook::CompareRecords() {
  std::vector<core::CodeRecord> all;
  std::vector<core::CodeRecord> only_read;
  {
    const MutexLock lock(mutex_);
    for (const auto& [tag, made] : made_) all.push_back(made);
    for (const auto& [tag, opened] : opened_) {
      if (made_.count(tag) == 0) only_read.push_back(opened.codes->record());
    }
  }
  Compared compared;
  for (const core::CodeRecord& ours : all) {
    const auto found = records_.Load(ours.tag);
    if (!found.ok() && found.error().code == ErrorCode::kConfig)
      continue;  // a damaged row: others may be good
    if (!found.ok()) return found.error();
    if (*found && Includes((*found)->lengths, ours.lengths) && (*found)->HasSamePermutation(ours)) continue;
    const auto kept = records_.Keep(ours, core::CodesBegin::kBefore);
    if (kept.ok()) {
      compared.kept_again.push_back(ours.tag);
      continue;
    }
    if (kept.error().code != ErrorCode::kConfig) return kept.error();
    compared.differ.push_back(ours.tag);
    const MutexLock lock(mutex_);
    made_.erase(ours.tag);
    const auto opened = opened_.find(ours.tag);
    if (opened != opened_.end() && opened->second.codes->record().HasSamePermutation(ours))
      opened_.erase(opened);
  }
  for (const core::CodeRecord& ours : only_read) {
    const auto found = records_.Load(ours.tag);
    if (!found.ok() && found.error().code != ErrorCode::kConfig) return found.error();
    if (found.ok() && *found && (*found)->HasSamePermutation(ours)) continue;
    const MutexLock lock(mutex_);
    const auto opened = opened_.find(ours.tag);
    // Not what was opened since.
    if (opened != opened_.end() && !opened->second.may_issue &&
        opened->second.codes->record().HasSamePermutation(ours))
      opened_.erase(opened);
  }
  return compared;
}

Result<std::shared_ptr<const TagCodes>> CodeBook::OpenToReveal(std::string_view tag, std::string_view tweak) {
  const auto settings = this->settings();
  LEAF_ASSIGN_OR_RETURN(const std::optional<core::CodeRecord> record, records_.Load(tag));
  if (!record) return Error{ErrorCode::kNotFound, fmt::format("tag {} has no codes", Quoted(tag)), ""};
  if (record->key != settings->fingerprint) {
    return Error{ErrorCode::kConfig,
                 fmt::format("the codes of tag {} were made with another key ({}, not {})", Quoted(tag),
                             record->key, settings->fingerprint),
                 "set codes.key_file to the file with that key"};
  }
  if (!record->cluster.empty() && record->cluster != FingerprintOfCluster(tweak)) {
    return Error{
        ErrorCode::kConfig,
        fmt::format("the codes of tag {} are those of another cluster than {}", Quoted(tag), Quoted(tweak)),
        "set snowflake.cluster to the name of that cluster"};
  }
  LEAF_ASSIGN_OR_RETURN(auto codes,
                        TagCodes::Make(*record, settings->options.key, tweak, settings->ShapeFor(tag).group));
  Remember(tag, settings, codes, false);
  return codes;
}

}  // namespace leaf::codes
