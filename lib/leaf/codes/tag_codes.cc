#include "leaf/codes/tag_codes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "leaf/base/limits.h"
#include "leaf/base/text.h"

namespace leaf::codes {

Result<std::shared_ptr<const TagCodes>> TagCodes::Make(const core::CodeRecord& record, const CodeKey& key,
                                                       std::string_view tweak, int group) {
  const auto bad = [&](std::string_view why) {
    return Error{ErrorCode::kConfig,
                 fmt::format("the record of the codes of tag {} is damaged: {}", Quoted(record.tag), why),
                 "leafctl_codes in the database has it"};
  };
  const auto alphabet = ParseAlphabet(record.alphabet);
  if (!alphabet) return bad(fmt::format("{} is no alphabet", Quoted(record.alphabet)));
  if (record.lengths.empty()) return bad("it has no length");
  CodeShape shape{.alphabet = *alphabet, .length = 0, .check = record.check, .group = group};
  for (const int length : record.lengths) {
    shape.length = length;
    if (const auto good = CheckShape(shape); !good.ok()) return bad(good.error().message);
  }
  auto codes = std::shared_ptr<TagCodes>(new TagCodes(record, shape));
  for (const int length : record.lengths) {
    codes->ciphers_.emplace(
        length, std::make_unique<const Ff1>(key, tweak, RadixOf(*alphabet), static_cast<unsigned>(length)));
  }
  codes->cipher_ = codes->ciphers_.rbegin()->second.get();
  return std::shared_ptr<const TagCodes>(std::move(codes));
}

Error NoCodeOf(std::string_view tag, std::uint64_t id, const CodeShape& shape) {
  return {ErrorCode::kOverflow,
          fmt::format("ID {} of tag {} has no code: those of length {} end before ID {}", id, Quoted(tag),
                      shape.length, DomainText(shape)),
          "a longer codes.length goes on from here; the codes that there are stay good"};
}

Result<void> TagCodes::Check(std::uint64_t last) const {
  if (last < cipher_->domain()) return {};
  return NoCodeOf(record_.tag, last, shape_);
}

Result<std::string> TagCodes::Of(std::uint64_t id) const {
  LEAF_RETURN_IF_ERROR(Check(id));
  std::string text;
  Append(text, id);
  return text;
}

Result<std::uint64_t> TagCodes::Reveal(std::string_view text) const {
  LEAF_ASSIGN_OR_RETURN(const TypedCode typed,
                        ReadCode(text, shape_.alphabet, shape_.check, record_.lengths));
  const WideNumber id = ciphers_.at(typed.length)->Decrypt(typed.number);
  if (id < kIdEnd) return static_cast<std::uint64_t>(id);
  return Error{ErrorCode::kNotFound,
               fmt::format("no ID of tag {} has the code {}", Quoted(record_.tag), Quoted(text)), ""};
}

bool TagCodes::KnowsLengthOf(std::string_view text) const {
  return ciphers_.contains(TypedLength(text, shape_.check));
}

}  // namespace leaf::codes
