// The kinds of configuration keys: each makes a Key of a name, a default and the member of Config that it
// sets. For keys.cc.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "leaf/base/duration.h"
#include "leaf/base/endpoint.h"
#include "leaf/base/result.h"
#include "leaf/base/text.h"
#include "leaf/config/config.h"
#include "leaf/config/keys.h"

namespace leaf::config::kinds {

using Strings = std::vector<std::string>;

inline Error Bad(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message), ""}; }

// A key whose value goes into `Config` unchanged, after `check`. `place` maps a Config to the member.
template <typename Member, typename Place, typename Check>
Key MakeKey(std::string name, Kind kind, std::string fallback, std::string meaning, Place place,
            Check check) {
  return {.name = std::move(name),
          .kind = kind,
          .fallback = std::move(fallback),
          .meaning = std::move(meaning),
          .store = [place, check](Config& config, const Value& value) -> Result<void> {
            const auto& typed = std::get<Member>(value);
            LEAF_RETURN_IF_ERROR(check(typed));
            place(config) = typed;
            return {};
          },
          .load = [place](const Config& config) -> Value { return place(const_cast<Config&>(config)); }};
}

template <typename Place>
Key Bool(std::string name, std::string fallback, std::string meaning, Place place) {
  return MakeKey<bool>(std::move(name), Kind::kBool, std::move(fallback), std::move(meaning), place,
                       [](bool) -> Result<void> { return {}; });
}

template <typename Place>
Key Integer(std::string name, std::string fallback, std::int64_t min, std::int64_t max, std::string meaning,
            Place place) {
  return MakeKey<std::int64_t>(std::move(name), Kind::kInteger, std::move(fallback), std::move(meaning),
                               place, [min, max](std::int64_t value) -> Result<void> {
                                 if (value >= min && value <= max) return {};
                                 return Bad(fmt::format("{} is not in {}..{}", value, min, max));
                               });
}

template <typename Place>
Key String(std::string name, std::string fallback, std::string meaning, Place place) {
  return MakeKey<std::string>(std::move(name), Kind::kString, std::move(fallback), std::move(meaning), place,
                              [](const std::string&) -> Result<void> { return {}; });
}

template <typename Place>
Key Choice(std::string name, std::string fallback, Strings choices, std::string meaning, Place place) {
  meaning = fmt::format("{}: {}", fmt::join(choices, " | "), meaning);
  return MakeKey<std::string>(
      std::move(name), Kind::kString, std::move(fallback), std::move(meaning), place,
      [choices](const std::string& value) -> Result<void> {
        if (std::find(choices.begin(), choices.end(), value) != choices.end()) return {};
        return Bad(fmt::format("{} is not one of {}", Quoted(value), fmt::join(choices, ", ")));
      });
}

template <typename Check, typename Place>
Key CheckedString(std::string name, std::string fallback, std::string meaning, Check check, Place place) {
  return MakeKey<std::string>(std::move(name), Kind::kString, std::move(fallback), std::move(meaning), place,
                              check);
}

template <typename Check, typename Place>
Key List(std::string name, std::string fallback, std::string meaning, Check check, Place place) {
  return MakeKey<Strings>(std::move(name), Kind::kStringList, std::move(fallback), std::move(meaning), place,
                          [check](const Strings& values) -> Result<void> {
                            for (const std::string& value : values) LEAF_RETURN_IF_ERROR(check(value));
                            return {};
                          });
}

// A key whose text stands for a value of another type. `parse` reads what `format` writes.
template <typename Parse, typename Format, typename Place>
Key Parsed(std::string name, Kind kind, std::string fallback, std::string meaning, Parse parse, Format format,
           Place place) {
  return {.name = std::move(name),
          .kind = kind,
          .fallback = std::move(fallback),
          .meaning = std::move(meaning),
          .store = [place, parse](Config& config, const Value& value) -> Result<void> {
            auto parsed = parse(std::get<std::string>(value));
            if (!parsed.ok()) return std::move(parsed).error();
            place(config) = *std::move(parsed);
            return {};
          },
          .load = [place, format](const Config& config) -> Value {
            return format(place(const_cast<Config&>(config)));
          }};
}

inline Result<Millis> ParseTime(const std::string& text, Millis min) {
  LEAF_ASSIGN_OR_RETURN(const Millis parsed, ParseDuration(text));
  if (parsed < min)
    return Bad(fmt::format("{} is less than {}", FormatDuration(parsed), FormatDuration(min)));
  // A century is no time-out, and nanosecond arithmetic must not overflow.
  constexpr Millis kMax = std::chrono::hours{24 * 36525};
  if (parsed > kMax)
    return Bad(fmt::format("{} is more than {}", FormatDuration(parsed), FormatDuration(kMax)));
  return parsed;
}

template <typename Place>
Key Duration(std::string name, std::string fallback, Millis min, std::string meaning, Place place) {
  return Parsed(
      std::move(name), Kind::kDuration, std::move(fallback), std::move(meaning),
      [min](const std::string& text) { return ParseTime(text, min); },
      [](Millis time) { return FormatDuration(time); }, place);
}

// A duration or "auto".
template <typename Place>
Key DurationOrAuto(std::string name, std::string meaning, Place place) {
  return Parsed(
      std::move(name), Kind::kString, "auto", std::move(meaning),
      [](const std::string& text) -> Result<std::optional<Millis>> {
        if (text == "auto") return std::optional<Millis>{};
        if (!ParseDuration(text).ok())
          return Bad(fmt::format("{} is neither \"auto\" nor a duration such as 22s", Quoted(text)));
        LEAF_ASSIGN_OR_RETURN(const Millis time, ParseTime(text, Millis{0}));
        return std::optional(time);
      },
      [](const std::optional<Millis>& time) { return time ? FormatDuration(*time) : "auto"; }, place);
}

// A list of servers or listen addresses. `parse` reads what `format` writes.
template <typename Address, typename Parse, typename Format, typename Place>
Key Addresses(std::string name, std::string fallback, std::string meaning, Parse parse, Format format,
              Place place) {
  return {.name = std::move(name),
          .kind = Kind::kStringList,
          .fallback = std::move(fallback),
          .meaning = std::move(meaning),
          .store = [place, parse](Config& config, const Value& value) -> Result<void> {
            std::vector<Address> addresses;
            for (const std::string& text : std::get<Strings>(value)) {
              LEAF_ASSIGN_OR_RETURN(Address address, parse(text));
              addresses.push_back(std::move(address));
            }
            place(config) = std::move(addresses);
            return {};
          },
          .load = [place, format](const Config& config) -> Value {
            Strings texts;
            for (const Address& address : place(const_cast<Config&>(config)))
              texts.push_back(format(address));
            return texts;
          }};
}

template <typename Parse, typename Place>
Key Endpoints(std::string name, std::string fallback, std::string meaning, Parse parse, Place place) {
  return Addresses<Endpoint>(std::move(name), std::move(fallback), std::move(meaning), parse, EndpointText,
                             place);
}

}  // namespace leaf::config::kinds
