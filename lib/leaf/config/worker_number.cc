#include "leaf/config/worker_number.h"

#include <fmt/format.h>

#include <algorithm>

#include "leaf/base/text.h"

namespace leaf::config {

Result<std::uint64_t> OrdinalOf(std::string_view host, std::uint64_t begin, std::uint64_t end) {
  const auto wrong = [&](std::string_view why) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("the host name {} {}", Quoted(host), why), ""};
  };
  if (host.empty())
    return Error{ErrorCode::kInvalidArgument, "this machine has no host name to take the number from", ""};
  const std::string_view label = host.substr(0, host.find('.'));
  const std::size_t dash = label.rfind('-');
  const std::string_view digits = dash == std::string_view::npos ? "" : label.substr(dash + 1);
  if (digits.empty() ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return wrong("does not end with a dash and a number, as leafctl-3 does");
  if (digits.size() > 1 && digits.front() == '0')
    return wrong(fmt::format("has leading zeros in its number: {} could be another node's", digits));
  // What no 64 bits can hold is out of range, too.
  const auto number = ParseWhole<std::uint64_t>(digits);
  if (!number || *number < begin || *number >= end) {
    return wrong(
        fmt::format("ends with {}, which is not in {}..{} (snowflake.worker_range, and what snowflake.layout "
                    "can hold)",
                    digits, begin, end - 1));
  }
  return *number;
}

std::string WorkerSourceOf(const Config& config) {
  const Config::Snowflake& snowflake = config.snowflake;
  if (snowflake.registry != "static") return "registry " + snowflake.registry;
  if (snowflake.workers.contains(snowflake.address)) return "snowflake.workers";
  if (snowflake.worker_ordinal) return "host name " + Quoted(snowflake.worker_host);
  return snowflake.worker_id >= 0 ? "snowflake.worker_id" : "drawn for the state directory";
}

std::string OrdinalText(const Config& config) {
  const Config::Snowflake& snowflake = config.snowflake;
  if (!snowflake.worker_ordinal || snowflake.worker_id < 0) return "";
  return fmt::format("{}, from the host name {}", snowflake.worker_id, Quoted(snowflake.worker_host));
}

}  // namespace leaf::config
