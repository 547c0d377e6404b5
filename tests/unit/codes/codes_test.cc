// Codes as they are written and read, and the rules that no code is made twice by.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "leaf/base/limits.h"
#include "leaf/codes/code_book.h"
#include "leaf/codes/code_key.h"
#include "leaf/codes/code_shape.h"
#include "support/scale.h"

namespace leaf::codes {
namespace {

CodeKey KeyOf(char c) { return ParseCodeKey(std::string(64, c)).value(); }

class MemoryRecords final : public core::CodeRecords {
 public:
  Result<std::optional<core::CodeRecord>> Load(std::string_view tag) override {
    const auto found = kept.find(tag);
    return found == kept.end() ? std::nullopt : std::optional(found->second);
  }
  Result<core::CodeRecord> Keep(const core::CodeRecord& wanted, core::CodesBegin begin) override {
    if (fails) return Error{ErrorCode::kUnavailable, "away", ""};
    const auto found = kept.find(wanted.tag);
    if (found == kept.end()) return kept.emplace(wanted.tag, wanted).first->second;
    LEAF_ASSIGN_OR_RETURN(const auto extended, core::ExtendCodeRecord(found->second, wanted, begin));
    if (extended) found->second = *extended;
    return found->second;
  }
  std::map<std::string, core::CodeRecord, std::less<>> kept;
  bool fails = false;
};

std::string TextOf(WideNumber number, const CodeShape& shape) {
  std::string text;
  AppendCode(text, number, shape);
  return text;
}

TEST(CodeKey, IsSixtyFourDigits) {
  EXPECT_EQ(CodeKeyText(KeyOf('a')), std::string(64, 'a'));
  EXPECT_TRUE(ParseCodeKey(std::string(64, 'F') + "\r\n").ok());
  for (const std::string& text : {std::string(63, 'a'), std::string(65, 'a'), std::string(64, 'g'),
                                  std::string(), std::string(62, 'a') + "+1", " " + std::string(63, 'a')}) {
    const auto key = ParseCodeKey(text);
    ASSERT_FALSE(key.ok()) << text;
    EXPECT_EQ(key.error().code, ErrorCode::kConfig);
  }
  EXPECT_EQ(FingerprintOf(KeyOf('a')).size(), 16U);
  EXPECT_NE(FingerprintOf(KeyOf('a')), FingerprintOf(KeyOf('b')));
}

TEST(CodeShape, WritesGroupsAndCheckCharacters) {
  // 7992739871 with 3 is the example of Luhn's patent.
  const CodeShape decimal{.alphabet = Alphabet::kDecimal, .length = 10, .check = true, .group = 4};
  EXPECT_EQ(TextOf(7992739871U, decimal), "7992-7398-713");
  EXPECT_EQ(TextSize(decimal), 13U);
  EXPECT_EQ(TextOf(7, {.length = 6, .check = false, .group = 3}), "000-007");
  EXPECT_EQ(TextOf(7, {.length = 6, .check = false, .group = 0}), "000007");
  // 1234 is 16J in Crockford's base32, and 1234 % 37 is 13, which is D.
  const CodeShape base32{.alphabet = Alphabet::kBase32, .length = 4, .check = true, .group = 0};
  EXPECT_EQ(TextOf(1234, base32), "016JD");
  EXPECT_EQ(TextOf(36, base32), "0014U");
  EXPECT_EQ(TextOf(32, base32), "0010*");
}

TEST(CodeShape, KnowsItsLimits) {
  EXPECT_TRUE(CheckShape({.length = 6}).ok());
  EXPECT_FALSE(CheckShape({.length = 5}).ok());
  EXPECT_TRUE(CheckShape({.alphabet = Alphabet::kBase32, .length = 4}).ok());
  EXPECT_TRUE(CheckShape({.alphabet = Alphabet::kBase32, .length = 24}).ok());
  EXPECT_FALSE(CheckShape({.length = 25}).ok());
  EXPECT_FALSE(CheckShape({.length = 12, .group = -1}).ok());
  EXPECT_EQ(DomainText({.alphabet = Alphabet::kBase32, .length = 8}), "32^8");
  for (const core::CodeAlphabet& row : core::kCodeAlphabets) {
    const Alphabet alphabet = ParseAlphabet(row.name).value();
    EXPECT_TRUE(CheckShape({.alphabet = alphabet, .length = row.length_min}).ok());
    EXPECT_FALSE(Ff1::Fits(RadixOf(alphabet), static_cast<unsigned>(row.length_min - 1)));
    EXPECT_TRUE(DomainOf({.alphabet = alphabet, .length = row.length_all_ids}) >= kIdEnd);
    EXPECT_FALSE(DomainOf({.alphabet = alphabet, .length = row.length_all_ids - 1}) >= kIdEnd);
  }
}

TEST(CodeShape, ReadsWhatPeopleType) {
  const auto read = [](std::string_view text, Alphabet alphabet, int length) {
    const auto typed = ReadCode(text, alphabet, true, {length});
    return typed.ok() ? static_cast<std::int64_t>(typed->number) : -1;
  };
  for (const char* text : {"7992-7398-713", "79927398713", " 7992 7398 713 ", "7-9-9-2-7-3-9-8-7-1-3"})
    EXPECT_EQ(read(text, Alphabet::kDecimal, 10), 7992739871) << text;
  for (const char* text : {"016JD", "o16jd", "0i6jd", "OL6Jd", "01-6J-D"})
    EXPECT_EQ(read(text, Alphabet::kBase32, 4), 1234) << text;
  EXPECT_EQ(read("0014u", Alphabet::kBase32, 4), 36);
  EXPECT_EQ(read("0010*", Alphabet::kBase32, 4), 32);
}

TEST(CodeShape, SaysWhatIsWrongWithACode) {
  const auto why = [](std::string_view text, Alphabet alphabet, std::vector<int> lengths) {
    const auto typed = ReadCode(text, alphabet, true, lengths);
    EXPECT_FALSE(typed.ok()) << text;
    return typed.ok() ? std::string() : typed.error().message;
  };
  const auto has = [](const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(why("7992-7398-714", Alphabet::kDecimal, {10}), "check character is wrong"));
  EXPECT_TRUE(has(why("7992-7398-73", Alphabet::kDecimal, {10, 12}),
                  "it has 10 characters, and codes of this tag "
                  "have 11 or 13"));
  EXPECT_TRUE(has(why("7992-7398-7l3", Alphabet::kDecimal, {10}), "'l' is no character of alphabet decimal"));
  EXPECT_TRUE(has(why("01u6D", Alphabet::kBase32, {4}), "'u' is no character of alphabet base32"));
  EXPECT_TRUE(has(why("016J\x01", Alphabet::kBase32, {4}), "check character is wrong"));
  EXPECT_TRUE(has(why("", Alphabet::kDecimal, {10}), "it has 0 characters"));
  EXPECT_TRUE(has(why(std::string(5000, '-'), Alphabet::kDecimal, {10}), "characters"));
}

// Each digit changed, and each two neighbours exchanged: what check characters are for.
TEST(CodeShape, FindsMistypedCharacters) {
  for (const Alphabet alphabet : {Alphabet::kDecimal, Alphabet::kBase32}) {
    const CodeShape shape{.alphabet = alphabet, .length = 12, .check = true, .group = 0};
    for (std::uint64_t number = 123456789; number < 123456789 + 97 * 50; number += 97) {
      const std::string good = TextOf(number * 131071 % static_cast<std::uint64_t>(1'000'000'000'000), shape);
      for (std::size_t at = 0; at < good.size(); ++at) {
        std::string bad = good;
        bad[at] = good[at] == '7' ? '3' : '7';
        EXPECT_FALSE(ReadCode(bad, alphabet, true, {12}).ok()) << good << " " << bad;
      }
    }
  }
}

// The whole of the smallest domain, as text: a million codes, each once, and each comes back.
TEST(TagCodes, GivesEachIdOfADomainACodeOfItsOwn) {
  const auto codes =
      TagCodes::Make({.tag = "order", .alphabet = "decimal", .check = true, .lengths = {6}, .key = ""},
                     KeyOf('a'), "order", 4);
  ASSERT_TRUE(codes.ok());
  std::unordered_set<std::string> seen;
  std::string text;
  std::uint64_t wrong = 0;
  std::size_t asked_for = 0;
  for (std::uint64_t id = 0; id < 1'000'000; id += testing::kScaleDownMuch) {
    ++asked_for;
    text.clear();
    (*codes)->Append(text, id);
    ASSERT_EQ(text.size(), (*codes)->width());
    const auto back = (*codes)->Reveal(text);
    wrong += back.ok() && *back == id ? 0U : 1U;
    seen.insert(text);
  }
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(seen.size(), asked_for);
  EXPECT_TRUE((*codes)->Check(999'999).ok());
  const auto beyond = (*codes)->Check(1'000'000);
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().code, ErrorCode::kOverflow);
  EXPECT_NE(beyond.error().message.find("ID 1000000 of tag 'order' has no code"), std::string::npos);
}

// What customers have been shown: no later version may read it otherwise.
TEST(TagCodes, AreTheSameInEachVersion) {
  const auto code = [](std::string tag, std::string alphabet, int length, std::uint64_t id) {
    const auto codes =
        TagCodes::Make({.tag = tag, .alphabet = alphabet, .check = true, .lengths = {length}, .key = ""},
                       KeyOf('0'), tag, 4)
            .value();
    EXPECT_EQ(codes->Reveal(codes->Of(id).value()).value(), id);
    return codes->Of(id).value();
  };
  EXPECT_EQ(code("order", "decimal", 12, 1002), "1661-8785-8892-8");
  EXPECT_EQ(code("b32", "base32", 8, 1002), "6QTT-3KYE-7");
  EXPECT_EQ(code("long", "decimal", 19, kIdEnd - 1), "8205-2641-2732-5956-3211");
}

TEST(TagCodes, RefusesADamagedRecord) {
  const core::CodeRecord good{.tag = "a", .alphabet = "base32", .check = true, .lengths = {8, 10}, .key = ""};
  ASSERT_TRUE(TagCodes::Make(good, KeyOf('a'), "a", 4).ok());
  core::CodeRecord bad = good;
  bad.alphabet = "hex";
  EXPECT_EQ(TagCodes::Make(bad, KeyOf('a'), "a", 4).error().code, ErrorCode::kConfig);
  bad = good;
  bad.lengths = {};
  EXPECT_FALSE(TagCodes::Make(bad, KeyOf('a'), "a", 4).ok());
  bad.lengths = {3};
  EXPECT_FALSE(TagCodes::Make(bad, KeyOf('a'), "a", 4).ok());
  bad.lengths = {8, 99};
  EXPECT_FALSE(TagCodes::Make(bad, KeyOf('a'), "a", 4).ok());
}

CodeBook::Options OptionsOf(char key, int length) {
  return {.key = KeyOf(key), .shape = {.length = length}, .tags = {}};
}

TEST(CodeBook, OpensOnceAndReadsEveryLength) {
  MemoryRecords records;
  CodeBook book(OptionsOf('a', 12), records);
  EXPECT_EQ(book.FindToIssue("order"), nullptr);
  EXPECT_EQ(book.OpenToReveal("order", "order").error().code, ErrorCode::kNotFound);
  const auto short_codes = book.OpenToIssue("order", "order");
  ASSERT_TRUE(short_codes.ok());
  EXPECT_EQ(book.FindToIssue("order"), *short_codes);
  EXPECT_EQ(book.FindToReveal("order"), *short_codes);
  const std::string short_code = (*short_codes)->Of(7).value();

  CodeBook longer(OptionsOf('a', 14), records);
  // Reading makes nothing longer.
  ASSERT_TRUE(longer.OpenToReveal("order", "order").ok());
  EXPECT_EQ(longer.FindToIssue("order"), nullptr);
  EXPECT_EQ(records.kept["order"].lengths, std::vector<int>{12});
  const auto long_codes = longer.OpenToIssue("order", "order");
  ASSERT_TRUE(long_codes.ok());
  const std::string long_code = (*long_codes)->Of(7).value();
  EXPECT_GT(long_code.size(), short_code.size());
  EXPECT_EQ((*long_codes)->Reveal(short_code).value(), 7U);
  EXPECT_EQ((*long_codes)->Reveal(long_code).value(), 7U);
  EXPECT_FALSE((*long_codes)->Reveal(long_code + "0").ok());

  EXPECT_FALSE((*short_codes)->KnowsLengthOf(long_code));
  EXPECT_EQ(book.OpenToReveal("order", "order").value()->Reveal(long_code).value(), 7U);
  EXPECT_NE(book.FindToIssue("order"), nullptr);
}

TEST(CodeBook, KeepsToTheFirstKeyAndShape) {
  MemoryRecords records;
  CodeBook first(OptionsOf('a', 12), records);
  ASSERT_TRUE(first.OpenToIssue("order", "order").ok());
  CodeBook other_key(OptionsOf('b', 12), records);
  EXPECT_EQ(other_key.OpenToIssue("order", "order").error().code, ErrorCode::kConfig);
  EXPECT_EQ(other_key.OpenToReveal("order", "order").error().code, ErrorCode::kConfig);
  EXPECT_TRUE(other_key.OpenToIssue("pay", "pay").ok());
  CodeBook shorter(OptionsOf('a', 11), records);
  EXPECT_EQ(shorter.OpenToIssue("order", "order").error().code, ErrorCode::kConfig);
  CodeBook::Options options = OptionsOf('a', 12);
  options.shape.alphabet = Alphabet::kBase32;
  CodeBook base32(options, records);
  EXPECT_EQ(base32.OpenToIssue("order", "order").error().code, ErrorCode::kConfig);
  // Another grouping is another way to write the same code.
  options = OptionsOf('a', 12);
  options.shape.group = 3;
  CodeBook grouped(options, records);
  const auto codes = grouped.OpenToIssue("order", "order");
  ASSERT_TRUE(codes.ok());
  EXPECT_EQ(first.FindToIssue("order")->Reveal((*codes)->Of(5).value()).value(), 5U);
}

TEST(CodeBook, OtherSettingsAreJudgedByTheRecordAgain) {
  MemoryRecords records;
  CodeBook book(OptionsOf('a', 12), records);
  const auto before = book.OpenToIssue("order", "order").value();
  book.Reconfigure(OptionsOf('a', 12));
  EXPECT_EQ(book.FindToIssue("order"), before) << "the same settings";
  // Another key: of this tag nothing is made or read, of a new one it is the first.
  book.Reconfigure(OptionsOf('b', 12));
  EXPECT_EQ(book.FindToIssue("order"), nullptr);
  EXPECT_EQ(book.FindToReveal("order"), nullptr);
  EXPECT_EQ(book.OpenToIssue("order", "order").error().code, ErrorCode::kConfig);
  EXPECT_EQ(book.OpenToReveal("order", "order").error().code, ErrorCode::kConfig);
  EXPECT_EQ(book.fingerprint(), FingerprintOf(KeyOf('b')));
  EXPECT_TRUE(book.OpenToIssue("pay", "pay").ok());
  // A greater length goes on, and what was made before is read.
  book.Reconfigure(OptionsOf('a', 14));
  EXPECT_EQ(book.ShapeFor("order").length, 14);
  const auto after = book.OpenToIssue("order", "order").value();
  EXPECT_EQ(after->shape().length, 14);
  EXPECT_EQ(after->Reveal(before->Of(7).value()).value(), 7U);
  EXPECT_EQ(book.OpenToIssue("pay", "pay").error().code, ErrorCode::kConfig);
  // And there is no way back.
  book.Reconfigure(OptionsOf('a', 12));
  EXPECT_EQ(book.OpenToIssue("order", "order").error().code, ErrorCode::kConfig);
  EXPECT_EQ(book.FindToIssue("order"), nullptr);
}

// A record that is kept while the settings change.
class SlowRecords final : public core::CodeRecords {
 public:
  Result<std::optional<core::CodeRecord>> Load(std::string_view tag) override {
    auto loaded = records.Load(tag);
    if (after_load) std::exchange(after_load, nullptr)();
    return loaded;
  }
  Result<core::CodeRecord> Keep(const core::CodeRecord& wanted, core::CodesBegin begin) override {
    auto kept = records.Keep(wanted, begin);
    if (meanwhile) std::exchange(meanwhile, nullptr)();
    return kept;
  }
  MemoryRecords records;
  std::function<void()> meanwhile;
  std::function<void()> after_load;
};

TEST(CodeBook, WhatWasOpenedWithOlderSettingsIsNotFoundLater) {
  SlowRecords records;
  CodeBook book(OptionsOf('a', 12), records);
  records.meanwhile = [&] { book.Reconfigure(OptionsOf('b', 12)); };
  const auto codes = book.OpenToIssue("order", "order");
  ASSERT_TRUE(codes.ok()) << "that request began before";
  EXPECT_EQ(book.FindToIssue("order"), nullptr);
  EXPECT_EQ(book.FindToReveal("order"), nullptr);
  EXPECT_EQ(book.OpenToIssue("order", "order").error().code, ErrorCode::kConfig);
}

TEST(CodeBook, ALengthThatIsAddedWhileACodeIsReadStays) {
  SlowRecords records;
  ASSERT_TRUE(CodeBook(OptionsOf('a', 12), records).OpenToIssue("order", "order").ok());
  CodeBook book(OptionsOf('a', 14), records);
  records.after_load = [&] { ASSERT_TRUE(book.OpenToIssue("order", "order").ok()); };
  ASSERT_TRUE(book.OpenToReveal("order", "order").ok());
  ASSERT_NE(book.FindToIssue("order"), nullptr);
  EXPECT_EQ(book.FindToIssue("order")->record().lengths.size(), 2U);
}

// A failover that loses the record: another node could make codes in another way, which may repeat.
TEST(CodeBook, ARecordThatIsLostIsKeptAgain) {
  MemoryRecords records;
  ASSERT_TRUE(CodeBook(OptionsOf('a', 12), records).OpenToIssue("order", "order").ok());
  CodeBook book(OptionsOf('a', 14), records);
  ASSERT_TRUE(book.OpenToIssue("order", "order").ok());
  ASSERT_TRUE(book.OpenToIssue("pay", "pay").ok());
  const auto before = records.kept;
  auto compared = book.CompareRecords();
  ASSERT_TRUE(compared.ok());
  EXPECT_TRUE(compared->kept_again.empty() && compared->differ.empty());

  records.kept.erase("order");
  compared = book.CompareRecords();
  ASSERT_TRUE(compared.ok());
  EXPECT_EQ(compared->kept_again, std::vector<std::string>{"order"});
  EXPECT_EQ(records.kept.find("order")->second.lengths, before.find("order")->second.lengths);
  EXPECT_NE(book.FindToIssue("order"), nullptr);

  // Another node was faster, with the longer length alone.
  records.kept.erase("order");
  ASSERT_TRUE(CodeBook(OptionsOf('a', 14), records).OpenToIssue("order", "order").ok());
  compared = book.CompareRecords();
  ASSERT_TRUE(compared.ok());
  EXPECT_EQ(compared->kept_again, std::vector<std::string>{"order"});
  EXPECT_EQ(records.kept.find("order")->second.lengths, before.find("order")->second.lengths);

  // Another node was faster, with another key: no more codes than those.
  records.kept.erase("pay");
  ASSERT_TRUE(CodeBook(OptionsOf('b', 14), records).OpenToIssue("pay", "pay").ok());
  compared = book.CompareRecords();
  ASSERT_TRUE(compared.ok());
  EXPECT_EQ(compared->differ, std::vector<std::string>{"pay"});
  EXPECT_EQ(book.FindToIssue("pay"), nullptr);
  EXPECT_EQ(book.OpenToIssue("pay", "pay").error().code, ErrorCode::kConfig);
  records.fails = true;
  records.kept.erase("order");
  EXPECT_EQ(book.CompareRecords().error().code, ErrorCode::kUnavailable);
}

// Where codes are only read there is nothing to keep. Another key would make another ID of a code.
TEST(CodeBook, ARecordThatWasOnlyReadIsReadAgainOnceItIsLostOrAnother) {
  MemoryRecords records;
  ASSERT_TRUE(CodeBook(OptionsOf('a', 12), records).OpenToIssue("order", "order").ok());
  CodeBook reader(OptionsOf('a', 12), records);
  ASSERT_TRUE(reader.OpenToReveal("order", "order").ok());
  ASSERT_TRUE(reader.CompareRecords().ok());
  EXPECT_NE(reader.FindToReveal("order"), nullptr);

  const auto before = records.kept;
  records.kept.clear();
  auto compared = reader.CompareRecords();
  ASSERT_TRUE(compared.ok());
  EXPECT_TRUE(compared->kept_again.empty() && compared->differ.empty());
  EXPECT_TRUE(records.kept.empty()) << "a reader keeps nothing";
  EXPECT_EQ(reader.FindToReveal("order"), nullptr);
  EXPECT_EQ(reader.OpenToReveal("order", "order").error().code, ErrorCode::kNotFound);

  records.kept = before;
  ASSERT_TRUE(reader.OpenToReveal("order", "order").ok());
  records.kept.clear();
  ASSERT_TRUE(CodeBook(OptionsOf('b', 12), records).OpenToIssue("order", "order").ok());
  ASSERT_TRUE(reader.CompareRecords().ok());
  EXPECT_EQ(reader.FindToReveal("order"), nullptr);
  EXPECT_EQ(reader.OpenToReveal("order", "order").error().code, ErrorCode::kConfig);
  // A length that is added changes nothing.
  records.kept = before;
  ASSERT_TRUE(reader.OpenToReveal("order", "order").ok());
  ASSERT_TRUE(CodeBook(OptionsOf('a', 14), records).OpenToIssue("order", "order").ok());
  ASSERT_TRUE(reader.CompareRecords().ok());
  EXPECT_NE(reader.FindToReveal("order"), nullptr);
}

// Of one length, which is shorter than what another node has kept meanwhile: its codes have to stay readable.
TEST(CodeBook, AShorterLengthThatIsLostIsKeptAgain) {
  MemoryRecords records;
  CodeBook book(OptionsOf('a', 12), records);
  const std::string code = book.OpenToIssue("order", "order").value()->Of(7).value();
  records.kept.clear();
  CodeBook other(OptionsOf('a', 14), records);
  ASSERT_TRUE(other.OpenToIssue("order", "order").ok());
  EXPECT_FALSE(other.OpenToReveal("order", "order").value()->KnowsLengthOf(code));
  const auto compared = book.CompareRecords();
  ASSERT_TRUE(compared.ok());
  EXPECT_EQ(compared->kept_again, std::vector<std::string>{"order"});
  EXPECT_EQ(other.OpenToReveal("order", "order").value()->Reveal(code).value(), 7U);
}

// The record is lost and the settings change before the two were compared.
TEST(CodeBook, WhatWasMadeWithOlderSettingsIsKeptAgain) {
  MemoryRecords records;
  CodeBook book(OptionsOf('a', 12), records);
  const std::string code = book.OpenToIssue("order", "order").value()->Of(7).value();
  records.kept.clear();
  book.Reconfigure(OptionsOf('a', 14));
  auto compared = book.CompareRecords();
  ASSERT_TRUE(compared.ok());
  EXPECT_EQ(compared->kept_again, std::vector<std::string>{"order"});
  EXPECT_EQ(records.kept["order"].lengths, std::vector<int>{12});
  // Or the first code is asked for first.
  records.kept.clear();
  const auto codes = book.OpenToIssue("order", "order");
  ASSERT_TRUE(codes.ok());
  EXPECT_EQ((*codes)->Reveal(code).value(), 7U);
  EXPECT_EQ(records.kept["order"].lengths, (std::vector<int>{12, 14}));
  // The database has lost the record, but codes with the first key are in use: another key could make the
  // same codes.
  records.kept.clear();
  book.Reconfigure(OptionsOf('b', 16));
  EXPECT_EQ(book.OpenToIssue("order", "order").error().code, ErrorCode::kConfig);
  EXPECT_EQ(records.kept["order"].lengths, (std::vector<int>{12, 14}));
}

TEST(CodeBook, ReadingACodeChangesNothingOfHowCodesAreMade) {
  MemoryRecords records;
  CodeBook book(OptionsOf('a', 12), records);
  const auto codes = book.OpenToIssue("order", "order").value();
  // Lost, and another node was faster, with another alphabet.
  records.kept.clear();
  CodeBook::Options options = OptionsOf('a', 12);
  options.shape.alphabet = Alphabet::kBase32;
  CodeBook other(options, records);
  const std::string code = other.OpenToIssue("order", "order").value()->Of(7).value();
  EXPECT_EQ(book.OpenToReveal("order", "order").value()->Reveal(code).value(), 7U);
  EXPECT_EQ(book.FindToIssue("order"), codes);
  const auto compared = book.CompareRecords();
  ASSERT_TRUE(compared.ok());
  EXPECT_EQ(compared->differ, std::vector<std::string>{"order"});
  EXPECT_EQ(book.FindToIssue("order"), nullptr);
  EXPECT_TRUE(book.CompareRecords()->differ.empty()) << "said once";
}

// The other way round: what was only read is not what codes are made of later.
TEST(CodeBook, CodesThatWereOnlyReadAreNotMade) {
  MemoryRecords records;
  CodeBook::Options options = OptionsOf('a', 12);
  options.shape.alphabet = Alphabet::kBase32;
  ASSERT_TRUE(CodeBook(options, records).OpenToIssue("order", "order").ok());
  options.shape.length = 14;
  ASSERT_TRUE(CodeBook(options, records).OpenToIssue("order", "order").ok());
  CodeBook book(OptionsOf('a', 12), records);
  ASSERT_TRUE(book.OpenToReveal("order", "order").ok());
  records.kept.clear();  // restored to before that
  const auto codes = book.OpenToIssue("order", "order");
  ASSERT_TRUE(codes.ok());
  EXPECT_EQ(book.FindToIssue("order"), *codes);
}

// Codes of the other tags flow on while the database is away.
TEST(CodeBook, OnlyTagsWithOtherSettingsAreOpenedAgain) {
  MemoryRecords records;
  CodeBook book(OptionsOf('a', 12), records);
  const auto order = book.OpenToIssue("order", "order").value();
  ASSERT_TRUE(book.OpenToIssue("pay", "pay").ok());
  CodeBook::Options options = OptionsOf('a', 12);
  options.tags["pay"] = {.length = 14};
  options.tags["new"] = {.length = 16};
  book.Reconfigure(options);
  EXPECT_EQ(book.FindToIssue("order"), order);
  EXPECT_EQ(book.FindToIssue("pay"), nullptr);
  EXPECT_EQ(book.OpenToIssue("pay", "pay").value()->shape().length, 14);
}

// The same code is another snowflake ID in another cluster.
TEST(CodeBook, SnowflakeCodesBelongToOneCluster) {
  MemoryRecords records;
  CodeBook east(OptionsOf('a', 19), records);
  const auto codes = east.OpenToIssue(kSnowflakeTag, "east").value();
  CodeBook west(OptionsOf('a', 19), records);
  EXPECT_EQ(west.OpenToIssue(kSnowflakeTag, "west").error().code, ErrorCode::kConfig);
  EXPECT_EQ(west.OpenToReveal(kSnowflakeTag, "west").error().code, ErrorCode::kConfig);
  EXPECT_EQ(west.OpenToReveal(kSnowflakeTag, "east").value()->Reveal(codes->Of(7).value()).value(), 7U);
  EXPECT_TRUE(west.OpenToIssue("order", "order").ok()) << "tags have nothing to do with it";
  // A record from before that was kept: the next node that makes codes says whose they are.
  records.kept.find(kSnowflakeTag)->second.cluster.clear();
  EXPECT_TRUE(west.OpenToReveal(kSnowflakeTag, "west").ok());
  CodeBook later(OptionsOf('a', 19), records);
  ASSERT_TRUE(later.OpenToIssue(kSnowflakeTag, "east").ok());
  EXPECT_EQ(west.OpenToReveal(kSnowflakeTag, "west").error().code, ErrorCode::kConfig);
}

TEST(CodeBook, NoCodeIsMadeBeforeItsRecordIsKept) {
  SlowRecords records;
  CodeBook book(OptionsOf('a', 12), records);
  bool found = false;
  records.meanwhile = [&] { found = book.FindToIssue("order") != nullptr || records.records.kept.empty(); };
  ASSERT_TRUE(book.OpenToIssue("order", "order").ok());
  EXPECT_FALSE(found);
  EXPECT_FALSE(records.meanwhile) << "the record was kept";
  // Nor where it cannot be.
  records.records.fails = true;
  EXPECT_FALSE(book.OpenToIssue("pay", "pay").ok());
  EXPECT_EQ(book.FindToIssue("pay"), nullptr);
}

TEST(CodeBook, TagsHaveShapesAndPermutationsOfTheirOwn) {
  MemoryRecords records;
  CodeBook::Options options = OptionsOf('a', 12);
  options.tags["pay"] = {.alphabet = Alphabet::kBase32, .length = 8, .check = false, .group = 0};
  CodeBook book(options, records);
  const auto order = book.OpenToIssue("order", "order").value();
  const auto other = book.OpenToIssue("other", "other").value();
  const auto pay = book.OpenToIssue("pay", "pay").value();
  EXPECT_NE(order->Of(1).value(), other->Of(1).value());
  EXPECT_EQ(pay->Of(1).value().size(), 8U);
  const auto foreign = other->Reveal(order->Of(1).value());
  EXPECT_TRUE(!foreign.ok() || *foreign != 1);
}

TEST(CodeBook, SnowflakeIdsNeedLongCodes) {
  MemoryRecords records;
  CodeBook book(OptionsOf('a', 12), records);
  EXPECT_EQ(book.OpenToIssue(kSnowflakeTag, "east").error().code, ErrorCode::kConfig);
  EXPECT_TRUE(records.kept.empty());
  CodeBook longer(OptionsOf('a', 19), records);
  const auto codes = longer.OpenToIssue(kSnowflakeTag, "east");
  ASSERT_TRUE(codes.ok());
  EXPECT_TRUE((*codes)->Check(kIdEnd - 1).ok());
  EXPECT_EQ((*codes)->Reveal((*codes)->Of(kIdEnd - 1).value()).value(), kIdEnd - 1);
  // 10^19 has numbers that are no IDs.
  std::size_t none = 0;
  for (std::uint64_t number = 0; number < 1000; ++number) {
    const auto id = (*codes)->Reveal(TextOf(number, (*codes)->shape()));
    if (!id.ok()) {
      EXPECT_EQ(id.error().code, ErrorCode::kNotFound);
      ++none;
    }
  }
  EXPECT_GT(none, 0U);
  EXPECT_LT(none, 1000U);
}

}  // namespace
}  // namespace leaf::codes
