// JSON that another program wrote.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "leaf/base/foreign_text.h"

namespace leaf {

// Discarded (is_discarded()) if it is no JSON, or nests so deep that a copy of it would end the stack.
template <typename Json = nlohmann::json>
Json ParseForeignJson(std::string_view text) {
  if (IsDeepJson(text)) return Json(Json::value_t::discarded);
  return Json::parse(text.begin(), text.end(), nullptr, false);
}

}  // namespace leaf
