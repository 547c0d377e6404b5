// Requests for IDs over HTTP, whatever their dialect: asked of the issuer, and answered in the form that was
// asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "leaf/base/id_range.h"
#include "leaf/base/id_text.h"
#include "leaf/server/http/handler.h"
#include "leaf/server/http/message.h"
#include "leaf/server/http/routes.h"
#include "leaf/server/ids_text.h"
#include "leaf/server/issue/issuer.h"

namespace leaf::server {

// Views of the request.
struct Take {
  Dialect dialect = Dialect::kV1;  // or kLeaf
  IdRequest ids;
  bool as_ranges = false;
  std::shared_ptr<const FixedIdText> text{};  // null for decimal numbers, and for codes (ids.as_code)
  IdsType type = IdsType::kJsonObject;
  std::string_view raw_path;
};

// A request for IDs of which so few are listed that the answer is a small one.
struct SmallTake {
  IdSource source = IdSource::kSegment;
  std::string tag;  // "" for snowflake IDs
  std::uint64_t count = 1;
  bool contiguous = false;
  bool as_ranges = false;
  IdsType type = IdsType::kJsonObject;
  const IdsForm* form = nullptr;  // of what is listed; static. Null: the request was another one
  std::string_view content_type = "";
};

// The answer to a request for ranges.
void AppendRanges(std::span<const IdRange> ranges, IdsType type, std::string& out);

// Takes the IDs; a HEAD takes none, and has the status that a GET would have now, as far as that can be told:
// health checks ask like this.
Withdraw ServeTake(const Backend& backend, const Take& take, const Request& request, Respond respond);

}  // namespace leaf::server
