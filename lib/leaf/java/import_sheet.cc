#include "leaf/java/import_sheet.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/check.h"
#include "leaf/base/text.h"

namespace leaf::java {

std::string Trimmed(std::string_view text) {
  while (!text.empty() && static_cast<unsigned char>(text.front()) <= ' ') text.remove_prefix(1);
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.remove_suffix(1);
  return std::string(text);
}

std::optional<std::uint64_t> ParseNumber(std::string_view text, std::uint64_t max) {
  const auto number = ParseWhole<std::uint64_t>(text);
  return number && *number <= max ? number : std::nullopt;
}

Error Wrong(const Property& property, const std::string& why, std::string hint) {
  return {ErrorCode::kConfig, fmt::format("line {}: {}: {}", property.line, Printable(property.key), why),
          std::move(hint)};
}
Error Missing(std::string_view key, const std::string& why, std::string hint) {
  return {ErrorCode::kConfig, fmt::format("{} is missing: {}", key, why), std::move(hint)};
}

ImportSheet::ImportSheet(std::vector<Property> properties, const ImportOptions& options)
    : properties_(std::move(properties)), options_(options) {
  for (std::size_t i = 0; i < properties_.size(); ++i) {
    const Property& property = properties_[i];
    const auto [place, added] = last_.try_emplace(property.key, i);
    if (added) continue;
    Note(NoteKind::kDropped, properties_[place->second],
         fmt::format("given again on line {}, which is the one that counts", property.line));
    used_.insert(place->second);
    place->second = i;
  }
}

Result<void> ImportSheet::ChooseSpelling() {
  const Property* upstream = nullptr;
  const Property* starter = nullptr;
  for (const Spelled& spelled : kAllSpelled) {
    if (Has(spelled.upstream) && upstream == nullptr)
      upstream = &properties_[last_.find(spelled.upstream)->second];
    if (Has(spelled.starter) && starter == nullptr)
      starter = &properties_[last_.find(spelled.starter)->second];
  }
  result_.spelling = options_.spelling;
  if (options_.spelling != LeafSpelling::kAuto) return {};
  if (Has(kMode) || Has(kWorkIdMap)) {
    result_.spelling = LeafSpelling::kFork;
  } else if (starter == nullptr) {
    result_.spelling = LeafSpelling::kUpstream;
  } else if (upstream == nullptr) {
    result_.spelling = LeafSpelling::kStarter;
  } else {
    return Error{ErrorCode::kConfig,
                 fmt::format("it has {} (line {}), which upstream reads, and {} (line {}), which the Spring "
                             "Boot starter reads",
                             upstream->key, upstream->line, starter->key, starter->line),
                 "say which of them reads this file: --spelling upstream|starter|fork"};
  }
  return {};
}

const Property* ImportSheet::Find(std::string_view key) {
  const auto found = last_.find(key);
  if (found == last_.end()) return nullptr;
  used_.insert(found->second);
  return &properties_[found->second];
}

std::string ImportSheet::Tidy(const Property& property) {
  std::string value = Trimmed(property.value);
  if (value != property.value)
    Note(NoteKind::kChanged, property, "it has a blank at its end, which Java keeps; taken without it");
  return value;
}
const std::string& ImportSheet::Exact(const Property& property) {
  if (Trimmed(property.value) != property.value)
    Note(NoteKind::kChanged, property, "it has a blank at its end, which Java keeps, and so it is kept here");
  if (std::any_of(property.value.begin(), property.value.end(),
                  [](char c) { return static_cast<unsigned char>(c) >= 0x80; }))
    Note(
        NoteKind::kChanged, property,
        fmt::format("it is not ASCII; read as Latin-1, as Java reads this file: {}", Quoted(property.value)));
  return property.value;
}

Result<bool> ImportSheet::Enabled(std::string_view key) {
  const bool starter = result_.spelling == LeafSpelling::kStarter;
  const Property* const property = Find(key);
  if (property == nullptr) {
    Advise(fmt::format("{} is absent, which {}", key,
                       starter ? "the starter reads as false" : "Java Leaf reads as true"));
    return !starter;
  }
  const std::string exact = LowerCase(property->value);
  if (exact == "true") return true;
  if (exact == "false") return false;
  const std::string trimmed = LowerCase(Trimmed(property->value));
  if (!starter) {
    // Boolean.parseBoolean: everything but "true" is false.
    Note(NoteKind::kChanged, *property,
         fmt::format("{} is false in Java{}", Quoted(property->value),
                     trimmed == "true" ? ", for the blank at its end" : ""));
    return false;
  }
  // Spring's own converter.
  const bool on = trimmed == "true" || trimmed == "on" || trimmed == "yes" || trimmed == "1";
  if (!on && trimmed != "false" && trimmed != "off" && trimmed != "no" && trimmed != "0" && !trimmed.empty())
    return Wrong(*property, fmt::format("{} is neither true nor false", Quoted(property->value)));
  Note(NoteKind::kChanged, *property,
       fmt::format("{} is read as {}, as by Spring", Quoted(property->value), on));
  return on;
}

void ImportSheet::Note(NoteKind kind, const Property& property, std::string text) {
  result_.notes.push_back({kind, property.line, property.key, std::move(text)});
}
void ImportSheet::Advise(std::string text) {
  result_.notes.push_back({NoteKind::kAdvice, 0, "", std::move(text)});
}

Result<void> ImportSheet::Set(std::string_view key, config::Value value, std::string_view from,
                              std::string_view option) {
  const config::Key* const known = config::FindKey(key);
  LEAF_CHECK(known != nullptr);
  config::Config scratch;
  if (const auto stored = known->store(scratch, value); !stored.ok()) {
    const auto found = last_.find(from);
    if (!option.empty() || found == last_.end()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("bad {}: {}", option.empty() ? from : option, stored.error().message), ""};
    }
    return Wrong(properties_[found->second], stored.error().message, fmt::format("it would become {}", key));
  }
  result_.values.emplace_back(key, std::move(value));
  return {};
}

bool ImportSheet::IsSet(std::string_view key) const {
  return std::any_of(result_.values.begin(), result_.values.end(),
                     [&](const auto& value) { return value.first == key; });
}

void ImportSheet::ListUnused() {
  std::vector<std::string> known(kSingleSpelled.begin(), kSingleSpelled.end());
  for (const Spelled& spelled : kAllSpelled) known.emplace_back(NameOf(spelled));
  for (std::size_t i = 0; i < properties_.size(); ++i) {
    if (used_.count(i) > 0) continue;
    const Property& property = properties_[i];
    Note(NoteKind::kDropped, property, WhyUnused(property, known));
  }
}

std::string ImportSheet::WhyUnused(const Property& property, const std::vector<std::string>& known) const {
  const std::string& key = property.key;
  if (std::find(known.begin(), known.end(), key) != known.end())
    return "not needed by the modes that are switched on";
  for (const Spelled& spelled : kAllSpelled) {
    if (key == spelled.upstream) return fmt::format("the starter does not read it, but {}", spelled.starter);
    if (key == spelled.starter)
      return fmt::format("only the starter reads it; here it is {}", spelled.upstream);
  }
  if (key == "server.port" || key == "server.address")
    return "it is Spring's: say with --listen where leafctl is to listen";
  // U+FEFF in Latin-1.
  if (key.starts_with("\xC3\xAF\xC2\xBB\xC2\xBF"))
    return "the file begins with a byte order mark, which Java reads as part of this key: the key is ignored";
  const auto nearest = NearestName(key, known);
  return fmt::format("Java Leaf does not read it{}",
                     nearest ? fmt::format(" (did you mean {}?)", *nearest) : "");
}

Result<void> ImportSheet::RefusePlaceholders(bool segment, bool snowflake) const {
  std::vector<std::string_view> keys;
  if (segment) keys.insert(keys.end(), {kUrl.starter, kUser.starter, kPassword.starter});
  if (snowflake) keys.insert(keys.end(), {kName, kPort, kZookeeper.starter});
  for (const std::string_view key : keys) {
    const auto found = last_.find(key);
    if (found == last_.end() || properties_[found->second].value.find("${") == std::string::npos) continue;
    return Wrong(properties_[found->second], "it has ${…}, in whose place Spring puts a value from elsewhere",
                 "write the value that the running node has; its path in ZooKeeper shows leaf.name");
  }
  return {};
}

Imported ImportSheet::Finish() {
  ListUnused();
  std::stable_sort(result_.notes.begin(), result_.notes.end(),
                   [](const ImportNote& a, const ImportNote& b) { return a.line < b.line; });
  const auto place = [](const std::string& name) { return config::FindKey(name); };
  std::stable_sort(result_.values.begin(), result_.values.end(),
                   [&](const auto& a, const auto& b) { return place(a.first) < place(b.first); });
  return std::move(result_);
}

}  // namespace leaf::java
