// The codes of one tag: IDs into codes, and back.
//
// Invariant: what makes a code of an ID was kept durably before (CodeRecords::Keep), so that no other key
// ever makes one of this tag. Only CodeBook makes objects that issue.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "leaf/base/id_text.h"
#include "leaf/base/result.h"
#include "leaf/codes/code_key.h"
#include "leaf/codes/code_shape.h"
#include "leaf/codes/ff1.h"
#include "leaf/core/code_records.h"

namespace leaf::codes {

// kOverflow: codes of this shape end before `id`.
Error NoCodeOf(std::string_view tag, std::uint64_t id, const CodeShape& shape);

// Immutable, so thread-safe.
class TagCodes final : public FixedIdText {
 public:
  // As `record` says; `group`: for codes that are written. Errors: kConfig, where the record is none.
  static Result<std::shared_ptr<const TagCodes>> Make(const core::CodeRecord& record, const CodeKey& key,
                                                      std::string_view tweak, int group);

  const core::CodeRecord& record() const { return record_; }
  // Of codes that are made now: those of the greatest length.
  const CodeShape& shape() const { return shape_; }

  std::size_t width() const override { return width_; }
  void Append(std::string& out, std::uint64_t id) const override {
    AppendCode(out, cipher_->Encrypt(id), shape_);
  }
  // Errors: kOverflow, which names the ID and the domain.
  Result<void> Check(std::uint64_t last) const override;
  // Errors: as of Check.
  Result<std::string> Of(std::uint64_t id) const;

  // The ID of a code, of any length that codes of this tag have ever had. Errors: kInvalidArgument (no code,
  // or mistyped; the message says which), kNotFound (no ID has it).
  Result<std::uint64_t> Reveal(std::string_view text) const;
  // Whether codes of the length of this text were known when this was made.
  bool KnowsLengthOf(std::string_view text) const;

 private:
  TagCodes(core::CodeRecord record, const CodeShape& shape) : record_(std::move(record)), shape_(shape) {}

  const core::CodeRecord record_;
  const CodeShape shape_;
  const std::size_t width_ = TextSize(shape_);
  std::map<int, std::unique_ptr<const Ff1>> ciphers_;  // by length
  const Ff1* cipher_ = nullptr;                        // of the shape's
};

}  // namespace leaf::codes
