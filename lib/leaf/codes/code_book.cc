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

bool IsSameButLengths(const core::CodeRecord& a, const core::CodeRecord& b) {
  return a.key == b.key && a.alphabet == b.alphabet && a.check == b.check;
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
  settings_ = std::move(wanted);
  opened_.clear();
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
                        std::shared_ptr<const TagCodes> codes, bool may_issue) {
  const MutexLock lock(mutex_);
  if (settings != settings_) return;
  Opened& opened = opened_[std::string(tag)];
  // Lengths are only ever added: a record that was read before this one was kept is out of date.
  if (opened.codes == nullptr || opened.codes->record().lengths.size() <= codes->record().lengths.size())
    opened.codes = std::move(codes);
  opened.may_issue = opened.may_issue || may_issue;
}

Result<std::shared_ptr<const TagCodes>> CodeBook::OpenToIssue(std::string_view tag, std::string_view tweak) {
  const auto settings = this->settings();
  const CodeShape& shape = settings->ShapeFor(tag);
  if (tag == kSnowflakeTag && DomainOf(shape) < kIdEnd) {
    return Error{ErrorCode::kConfig,
                 fmt::format("no codes of snowflake IDs: there are only {} of length {}, fewer than IDs",
                             DomainText(shape), shape.length),
                 fmt::format("set length = {} in [codes.tags.\"{}\"], or more",
                             shape.alphabet == Alphabet::kDecimal ? 19 : 13, kSnowflakeTag)};
  }
  LEAF_ASSIGN_OR_RETURN(const core::CodeRecord record,
                        records_.Keep({.tag = std::string(tag),
                                       .alphabet = std::string(AlphabetName(shape.alphabet)),
                                       .check = shape.check,
                                       .lengths = {shape.length},
                                       .key = settings->fingerprint}));
  LEAF_ASSIGN_OR_RETURN(auto codes, TagCodes::Make(record, settings->options.key, tweak, shape.group));
  Remember(tag, settings, codes, true);
  return codes;
}

Result<CodeBook::Compared> CodeBook::CompareRecords() {
  std::vector<std::shared_ptr<const TagCodes>> all;
  {
    const MutexLock lock(mutex_);
    for (const auto& [tag, opened] : opened_) {
      if (opened.may_issue) all.push_back(opened.codes);
    }
  }
  Compared compared;
  for (const auto& codes : all) {
    const core::CodeRecord& ours = codes->record();
    const auto found = records_.Load(ours.tag);
    if (!found.ok() && found.error().code == ErrorCode::kConfig)
      continue;  // a damaged row: others may be good
    if (!found.ok()) return found.error();
    if (*found && Includes((*found)->lengths, ours.lengths) && IsSameButLengths(**found, ours)) continue;
    const auto kept = records_.Keep(ours);
    if (kept.ok()) {
      compared.kept_again.push_back(ours.tag);
      continue;
    }
    if (kept.error().code != ErrorCode::kConfig) return kept.error();
    compared.differ.push_back(ours.tag);
    const MutexLock lock(mutex_);
    const auto opened = opened_.find(ours.tag);
    if (opened != opened_.end() && opened->second.codes == codes) opened_.erase(opened);
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
  LEAF_ASSIGN_OR_RETURN(auto codes,
                        TagCodes::Make(*record, settings->options.key, tweak, settings->ShapeFor(tag).group));
  Remember(tag, settings, codes, false);
  return codes;
}

}  // namespace leaf::codes
