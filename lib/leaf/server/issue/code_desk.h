// Where a server gets the codes of a tag from (lib/leaf/codes).
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "leaf/base/result.h"
#include "leaf/codes/tag_codes.h"

namespace leaf::server {

// Thread-safe. Outlives what asks it.
class CodeDesk {
 public:
  using Codes = std::shared_ptr<const codes::TagCodes>;
  using Opened = std::function<void(const Result<Codes>&)>;
  enum class Purpose : bool { kReveal, kIssue };

  virtual ~CodeDesk() = default;

  // Whether there are codes at all, at present.
  virtual bool is_on() const = 0;
  // Null if they have to be opened first. Never blocks.
  virtual Codes Find(std::string_view tag, Purpose purpose) const = 0;
  // Reads what the database has of them, and keeps what it has to keep. Never blocks; calls `opened` once, at
  // once or later, on any thread. Errors: those of codes::CodeBook; kNotFound for kIssue of a tag that there
  // is not; kUnavailable where too many wait for this; kConfig where
  // there are no codes.
  virtual void Open(std::string_view tag, Purpose purpose, Opened opened) = 0;
};

}  // namespace leaf::server
