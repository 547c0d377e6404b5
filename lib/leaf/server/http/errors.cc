#include "leaf/server/http/errors.h"

#include <fmt/format.h>

#include "leaf/base/time.h"
#include "leaf/server/error_meaning.h"

namespace leaf::server {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Response JsonResponse(int status, const Json& json) {
  Response response;
  response.status = status;
  response.content_type = kJson;
  response.body = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return response;
}

Response V1Error(const Backend& backend, const Error& error, std::uint64_t max_count) {
  const ErrorMeaning meaning = MeaningOf(error.code);
  Json json{{"code", ErrorCodeName(error.code)}, {"message", error.message}, {"hint", error.hint}};
  if (error.code == ErrorCode::kTooLarge)
    json["max_count"] = max_count == 0 ? backend.issuer.MaxCount(IdSource::kSegment) : max_count;
  Response response = JsonResponse(meaning.status, json);
  if (meaning.retry) response.retry_after_s = kRetryAfterSeconds;
  return response;
}

Response LeafError(const Backend& backend, int leaf_code, std::string_view raw_path) {
  return LeafPlainError(backend, 500, fmt::format("Result{{id={}, status=EXCEPTION}}", leaf_code), raw_path,
                        "com.sankuai.inf.leaf.server.exception.LeafServerException");
}

Response LeafPlainError(const Backend& backend, int status, std::string_view message,
                        std::string_view raw_path, std::string_view exception) {
  Json json{
      {"timestamp", UnixMillis(backend.clock.Wall())}, {"status", status}, {"error", StatusText(status)}};
  if (!exception.empty()) json["exception"] = exception;
  json["message"] = message;
  json["path"] = raw_path;
  Response response = JsonResponse(status, json);
  if (status == 429) response.retry_after_s = kRetryAfterSeconds;
  return response;
}

}  // namespace leaf::server
