// Changes of tags that several commands make: one tag at a time, and several in one call.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "confirm.h"
#include "context.h"
#include "leaf/base/result.h"
#include "leaf/core/ports.h"
#include "tag_output.h"

namespace leaf::cmd {

// Why moving max_id up to `to` needs the tag's name typed: what is jumped over is lost for good. "" if not.
std::string WhyFar(const core::TagRow& row, std::uint64_t to);

// "advance tag 'pay' from 1 to 1000", with why that is far, if it is.
std::string AdvanceText(const core::TagRow& row, std::uint64_t to);

// The same as WhyFar for a tag that is to begin there: only how few IDs are left counts.
std::string WhyFarAbove(std::uint64_t begin);

// --order, and --gone that goes with it.
void AddOrderFlags(CLI::App& app, std::optional<std::string>& order, std::vector<std::string>& gone);
// Nothing if it is not given. Errors: kInvalidArgument.
Result<std::optional<core::TagOrder>> ParseOrder(const std::optional<std::string>& order,
                                                 const std::vector<std::string>& gone);
// "order strict from ID 4711 on", "order trend".
std::string OrderText(const core::TagRow& row);

// The tags of a call, each once. Errors: kInvalidArgument for a bad name, or one that is given twice.
Result<void> ValidateTags(const std::vector<std::string>& tags);

// 'a', 'b' and 'c'.
std::string QuotedList(const std::vector<std::string>& names);

// What --confirm has to name: the tag, or all of them with a comma between.
std::string ConfirmName(const std::vector<std::string>& tags);

// Calls `one` for each of `tags` in order, until one fails. The error then says how many were done before.
// `done`: "added"; "" for what changes nothing. With --json `one` returns a document, and together they are
// {"tags": [...]}; a single one stands alone.
Result<void> ForEachTag(CommandContext& context, const std::vector<std::string>& tags, std::string_view done,
                        const std::function<Result<Json>(const std::string&)>& one);

}  // namespace leaf::cmd
