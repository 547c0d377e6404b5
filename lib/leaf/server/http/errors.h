// Errors in the words of each dialect.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "leaf/base/error.h"
#include "leaf/server/http/handler.h"

namespace leaf::server {

// Leaf's numbers for what went wrong (SegmentIDGenImpl); they stand inside the error's message.
inline constexpr int kLeafDisabled = -1;
inline constexpr int kLeafUnknownTag = -2;
inline constexpr int kLeafNotReady = -3;
inline constexpr int kLeafNotOwner = -4;  // of the best-known fork: the worker number is lost

Response JsonResponse(int status, const nlohmann::ordered_json& json);

// As everything under /v1 tells errors. `max_count`: what is said with kTooLarge; 0 for the configured one.
Response V1Error(const Backend& backend, const Error& error, std::uint64_t max_count = 0);

// As Leaf tells that it has no ID.
Response LeafError(const Backend& backend, int leaf_code, std::string_view raw_path);
// As the web server of Java Leaf tells all else. `exception`: the Java class it names, or "".
Response LeafPlainError(const Backend& backend, int status, std::string_view message,
                        std::string_view raw_path, std::string_view exception = "");

}  // namespace leaf::server
