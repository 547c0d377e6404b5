#include "leaf/server/http/tag_body.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "leaf/base/id_text.h"
#include "leaf/base/limits.h"
#include "leaf/base/text.h"
#include "leaf/core/tag_rules.h"

namespace leaf::server {
namespace {

struct BodyValue {
  enum class Kind { kNull, kBool, kInteger, kFraction, kString };
  Kind kind = Kind::kNull;
  std::string text;  // of a number as it was read, of a string decoded
};

using Fields = std::map<std::string, BodyValue, std::less<>>;
using Names = std::span<const std::string_view>;

Error BadBody(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message), ""}; }

// Takes one flat object apart, and nothing else: nothing is built that a body could make deep or large.
class FlatObject {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  explicit FlatObject(Names names) : names_(names) {}

  bool null() { return Value({BodyValue::Kind::kNull, "null"}); }
  bool boolean(bool value) { return Value({BodyValue::Kind::kBool, value ? "true" : "false"}); }
  bool number_integer(number_integer_t value) {
    return Value({BodyValue::Kind::kInteger, std::to_string(value)});
  }
  bool number_unsigned(number_unsigned_t value) {
    return Value({BodyValue::Kind::kInteger, std::to_string(value)});
  }
  bool number_float(number_float_t, const string_t& text) {
    return Value({BodyValue::Kind::kFraction, text});
  }
  bool string(string_t& text) { return Value({BodyValue::Kind::kString, text}); }
  bool binary(binary_t&) { return Fail("the body is not JSON"); }
  bool start_object(std::size_t) {
    if (began_) return Fail(fmt::format("bad {}: an object is not expected", field_));
    began_ = true;
    return true;
  }
  bool end_object() { return true; }
  bool start_array(std::size_t) {
    if (!began_) return Fail("the body is not a JSON object");
    return Fail(fmt::format("bad {}: a list is not expected", field_));
  }
  bool end_array() { return true; }
  bool key(string_t& name) {
    if (std::find(names_.begin(), names_.end(), name) == names_.end()) {
      return Fail(fmt::format("unknown field {}: {} {} expected", Quoted(name), fmt::join(names_, ", "),
                              names_.size() == 1 ? "is" : "are"));
    }
    if (fields_.contains(name)) return Fail(fmt::format("field {} is there twice", Quoted(name)));
    field_ = name;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
    return Fail(fmt::format("the body is not JSON: byte {}", position));
  }

  Result<Fields> Read(std::string_view body) {
    if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) return Fields();
    const bool whole = nlohmann::json::sax_parse(body.begin(), body.end(), this);
    if (error_) return *error_;
    if (!whole) return BadBody("the body is not JSON");
    return std::move(fields_);
  }

 private:
  bool Value(BodyValue value) {
    if (!began_) return Fail("the body is not a JSON object");
    fields_.emplace(field_, std::move(value));
    return true;
  }
  bool Fail(std::string message) {
    if (!error_) error_ = BadBody(std::move(message));
    return false;
  }

  const Names names_;
  bool began_ = false;
  std::string field_;
  Fields fields_;
  std::optional<Error> error_;
};

const BodyValue* Find(const Fields& fields, std::string_view name) {
  const auto found = fields.find(name);
  return found == fields.end() ? nullptr : &found->second;
}

// A string without a NUL, which no column and no command line takes.
Result<std::optional<std::string>> TextOf(const Fields& fields, std::string_view name) {
  const BodyValue* const value = Find(fields, name);
  if (value == nullptr) return std::optional<std::string>();
  if (value->kind != BodyValue::Kind::kString) return BadBody(fmt::format("bad {}: not a string", name));
  if (value->text.find('\0') != std::string::npos)
    return BadBody(fmt::format("bad {}: it has a NUL character", name));
  return std::optional(value->text);
}

// A whole number, as such or, since not every JSON library has 64 bits, as a string.
Result<std::optional<std::uint64_t>> NumberOf(const Fields& fields, std::string_view name, std::uint64_t min,
                                              std::uint64_t max, bool or_string) {
  const BodyValue* const value = Find(fields, name);
  if (value == nullptr) return std::optional<std::uint64_t>();
  if (value->kind == BodyValue::Kind::kString && !or_string)
    return BadBody(fmt::format("bad {}: not a number", name));
  if (value->kind == BodyValue::Kind::kNull || value->kind == BodyValue::Kind::kBool)
    return BadBody(fmt::format("bad {}: not a number", name));
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t number, ParseUnsigned(name, value->text, min, max));
  return std::optional(number);
}

Result<std::optional<std::int64_t>> StepOf(const Fields& fields) {
  LEAF_ASSIGN_OR_RETURN(const auto step,
                        NumberOf(fields, "step", 1, static_cast<std::uint64_t>(kStepMax), false));
  return step ? std::optional(static_cast<std::int64_t>(*step)) : std::nullopt;
}

Result<std::optional<std::string>> DescriptionOf(const Fields& fields) {
  LEAF_ASSIGN_OR_RETURN(auto description, TextOf(fields, "description"));
  if (description) LEAF_RETURN_IF_ERROR(core::CheckDescription("description", *description));
  return description;
}

Result<std::optional<core::TagOrder>> OrderOf(const Fields& fields) {
  LEAF_ASSIGN_OR_RETURN(const auto text, TextOf(fields, "order"));
  if (!text) return std::optional<core::TagOrder>();
  const auto order = core::TagOrderOf(*text);
  if (!order) return BadBody(fmt::format("bad order {}: not trend or strict", Quoted(*text)));
  return order;
}

// Names of nodes with a comma between.
Result<std::vector<std::string>> GoneOf(const Fields& fields, std::optional<core::TagOrder> order) {
  std::vector<std::string> gone;
  LEAF_ASSIGN_OR_RETURN(const auto text, TextOf(fields, "gone"));
  if (!text) return gone;
  if (order != core::TagOrder::kStrict) return BadBody("bad gone: it goes with order 'strict' only");
  std::string_view rest = *text;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = TrimBlanks(rest.substr(0, comma));
    if (name.empty()) return BadBody(fmt::format("bad gone {}: a name is empty", Quoted(*text)));
    gone.emplace_back(name);
    if (comma == std::string_view::npos) return gone;
    rest.remove_prefix(comma + 1);
  }
}

Result<std::optional<std::chrono::milliseconds>> WaitOf(const Fields& fields,
                                                        std::optional<core::TagOrder> order) {
  const auto most = static_cast<std::uint64_t>(kOrderWaitMax.count());
  LEAF_ASSIGN_OR_RETURN(const auto wait, NumberOf(fields, "wait_ms", 0, most, false));
  if (!wait) return std::optional<std::chrono::milliseconds>();
  if (!order) return BadBody("bad wait_ms: it goes with an order only");
  return std::optional(std::chrono::milliseconds(*wait));
}

Result<std::string> ConfirmOf(const Fields& fields) {
  LEAF_ASSIGN_OR_RETURN(auto confirm, TextOf(fields, "confirm"));
  return std::move(confirm).value_or("");
}

}  // namespace

bool IsJsonOrUnsaid(std::string_view content_type) {
  const std::string_view type = TrimBlanks(content_type.substr(0, content_type.find(';')));
  return type.empty() || LowerCase(type) == "application/json";
}

Result<core::NewTag> ReadNewTag(std::string_view body) {
  constexpr std::string_view kNames[] = {"tag", "step", "start", "description", "order", "gone", "wait_ms"};
  LEAF_ASSIGN_OR_RETURN(const Fields fields, FlatObject(kNames).Read(body));
  core::NewTag tag;
  LEAF_ASSIGN_OR_RETURN(auto name, TextOf(fields, "tag"));
  if (!name) return BadBody("field 'tag' is missing");
  LEAF_RETURN_IF_ERROR(ValidateNewTag(*name));
  tag.tag = *std::move(name);
  LEAF_ASSIGN_OR_RETURN(const auto step, StepOf(fields));
  tag.step = step.value_or(kStepDefault);
  LEAF_ASSIGN_OR_RETURN(tag.start, NumberOf(fields, "start", 0, kMaxIdLimit - 1, true));
  LEAF_ASSIGN_OR_RETURN(tag.description, DescriptionOf(fields));
  LEAF_ASSIGN_OR_RETURN(const auto order, OrderOf(fields));
  LEAF_ASSIGN_OR_RETURN(tag.gone, GoneOf(fields, order));
  LEAF_ASSIGN_OR_RETURN(tag.wait, WaitOf(fields, order));
  tag.order = order.value_or(core::TagOrder::kTrend);
  return tag;
}

Result<TagPatch> ReadTagPatch(std::string_view body) {
  constexpr std::string_view kNames[] = {"step",    "description", "order",  "gone",
                                         "wait_ms", "max_id",      "confirm"};
  LEAF_ASSIGN_OR_RETURN(const Fields fields, FlatObject(kNames).Read(body));
  TagPatch patch;
  LEAF_ASSIGN_OR_RETURN(patch.change.step, StepOf(fields));
  LEAF_ASSIGN_OR_RETURN(patch.change.description, DescriptionOf(fields));
  LEAF_ASSIGN_OR_RETURN(patch.change.order, OrderOf(fields));
  LEAF_ASSIGN_OR_RETURN(patch.change.gone, GoneOf(fields, patch.change.order));
  LEAF_ASSIGN_OR_RETURN(patch.change.wait, WaitOf(fields, patch.change.order));
  LEAF_ASSIGN_OR_RETURN(patch.change.max_id, NumberOf(fields, "max_id", 0, kMaxIdLimit, true));
  LEAF_ASSIGN_OR_RETURN(patch.confirm, ConfirmOf(fields));
  if (!patch.change.changes_row() && !patch.change.order)
    return BadBody("nothing to change: give step, description, order or max_id");
  return patch;
}

Result<std::string> ReadConfirm(std::string_view body) {
  constexpr std::string_view kNames[] = {"confirm"};
  LEAF_ASSIGN_OR_RETURN(const Fields fields, FlatObject(kNames).Read(body));
  return ConfirmOf(fields);
}

Result<TagRepairBody> ReadTagRepair(std::string_view body) {
  constexpr std::string_view kNames[] = {"to", "confirm"};
  LEAF_ASSIGN_OR_RETURN(const Fields fields, FlatObject(kNames).Read(body));
  TagRepairBody repair;
  LEAF_ASSIGN_OR_RETURN(repair.to, NumberOf(fields, "to", 0, kMaxIdLimit, true));
  LEAF_ASSIGN_OR_RETURN(repair.confirm, ConfirmOf(fields));
  return repair;
}

}  // namespace leaf::server
