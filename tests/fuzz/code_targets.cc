// Codes as people type them, and what makes them: the key's file, and the lengths in the database.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "fuzz/expect.h"
#include "fuzz/targets.h"
#include "leaf/base/check.h"
#include "leaf/base/limits.h"
#include "leaf/codes/code_key.h"
#include "leaf/codes/code_shape.h"
#include "leaf/codes/tag_codes.h"
#include "leaf/core/code_records.h"

namespace leaf::fuzz {
namespace {

struct FuzzedShape {
  const char* alphabet;
  bool check;
  std::vector<int> lengths;
  int group;
};

void ReadAs(const FuzzedShape& shape, const codes::TagCodes& tag, std::string_view input) {
  const codes::Alphabet alphabet = codes::ParseAlphabet(shape.alphabet).value();
  const auto typed = codes::ReadCode(input, alphabet, shape.check, shape.lengths);
  if (!typed.ok()) {
    LEAF_CHECK(typed.error().code == ErrorCode::kInvalidArgument);
    ExpectNames(typed.error(), input);
    LEAF_CHECK(tag.Reveal(input).error().code == ErrorCode::kInvalidArgument);
    return;
  }
  const codes::CodeShape whole{
      .alphabet = alphabet, .length = typed->length, .check = shape.check, .group = shape.group};
  LEAF_CHECK(typed->number < codes::DomainOf(whole));
  std::string text;
  codes::AppendCode(text, typed->number, whole);
  LEAF_CHECK(text.size() == codes::TextSize(whole));
  const auto again = codes::ReadCode(text, alphabet, shape.check, shape.lengths);
  LEAF_CHECK(again.ok() && again->number == typed->number && again->length == typed->length);
  // It is the code of the ID that it is read as, if that has codes of the last length.
  const auto id = tag.Reveal(input);
  if (!id.ok()) {
    LEAF_CHECK(id.error().code == ErrorCode::kNotFound);
    return;
  }
  LEAF_CHECK(*id < kIdEnd);
  const auto code = tag.Of(*id);
  LEAF_CHECK(code.ok() && *tag.Reveal(*code) == *id);
  if (typed->length == shape.lengths.back()) LEAF_CHECK(*code == text);
}

}  // namespace

void Code(std::string_view input) {
  static const std::vector<FuzzedShape> shapes{{"decimal", true, {12}, 4},
                                               {"decimal", false, {6, 19}, 0},
                                               {"base32", true, {4, 8}, 3},
                                               {"base32", false, {13, 24}, 5}};
  static const std::vector<std::shared_ptr<const codes::TagCodes>> tags = [] {
    std::vector<std::shared_ptr<const codes::TagCodes>> made;
    for (const FuzzedShape& shape : shapes) {
      made.push_back(codes::TagCodes::Make({.tag = "order",
                                            .alphabet = shape.alphabet,
                                            .check = shape.check,
                                            .lengths = shape.lengths,
                                            .key = ""},
                                           codes::CodeKey{1, 2, 3}, "order", shape.group)
                         .value());
    }
    return made;
  }();
  for (std::size_t i = 0; i < shapes.size(); ++i) ReadAs(shapes[i], *tags[i], input);
  if (const auto key = codes::ParseCodeKey(input); key.ok()) {
    LEAF_CHECK(codes::ParseCodeKey(codes::CodeKeyText(*key)).value() == *key);
  } else {
    LEAF_CHECK(key.error().code == ErrorCode::kConfig);
  }
  if (const auto lengths = core::ParseCodeLengths(input))
    LEAF_CHECK(core::ParseCodeLengths(core::CodeLengthsText(*lengths)) == lengths);
}

}  // namespace leaf::fuzz
