// How tags are shown, shared by the tag commands.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "context.h"
#include "leaf/base/result.h"
#include "leaf/core/audit.h"
#include "leaf/core/ports.h"
#include "leaf/server/finding_json.h"

namespace leaf::cmd {

using Json = nlohmann::ordered_json;

struct ListedTag;
struct TagDetails;

Json TagJson(const core::TagRow& row);
// As of `tag list --json` and `tag show --json`.
Json ListedJson(const ListedTag& listed);
Json DetailsJson(const TagDetails& details);
// As of `tag history --json`.
Json HistoryJson(const std::string& tag, const std::vector<core::AuditLine>& lines);

// "tag 'pay' was added by root@db1 (tag add): max_id 1, step 1000", one line.
std::string AuditText(const core::AuditLine& line);

// Sorts by a column of `tag list`. `flag`: what names it. Errors: kInvalidArgument.
Result<void> SortTags(std::string_view flag, const std::string& column, bool reverse,
                      std::vector<ListedTag>& tags);

// Days until the tag runs out of numbers, as far as this state directory's mark can tell; see
// core/exhaustion.
std::optional<double> DaysLeft(const core::TagRow& row, const core::Mark& mark, WallTime now);
// "12.3", "365000+" (a thousand years), or "-" where nothing is known.
std::string DaysLeftText(const std::optional<double>& days);

using server::FindingJson;
using server::FindingsJson;

// One JSON document on stdout, if --json; nothing else.
void WriteJson(CommandContext& context, const Json& json);

// What a mutation did: under --json the row (with dry_run), else `done` on stdout ("would " before a dry
// run).
void ReportChange(CommandContext& context, const core::TagRow& row, bool dry_run, std::string_view done,
                  std::string_view would);

// 1..kStepMax. Errors: kInvalidArgument.
Result<std::int64_t> ParseStep(std::string_view text);
// A description that fits its column. Errors: kInvalidArgument.
Result<void> ValidateDescription(std::string_view text, std::string_view name = "--description");

}  // namespace leaf::cmd
