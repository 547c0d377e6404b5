#include "leaf/server/http/routes.h"

#include <algorithm>
#include <iterator>

#include "leaf/base/check.h"
#include "leaf/server/http/handlers.h"

namespace leaf::server {
namespace {

constexpr std::string_view kLeafMethods = "GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS";
constexpr std::string_view kTakeMethods = "GET,HEAD,POST";
constexpr std::string_view kReadMethods = "GET,HEAD";
constexpr std::string_view kChangeMethods = "POST";
constexpr std::string_view kTagsMethods = "GET,HEAD,POST";
constexpr std::string_view kTagMethods = "GET,HEAD,PATCH,DELETE";
constexpr std::string_view kAnyMethod;

// The first row that matches counts. Those that take IDs stand first: they are asked for most.
// clang-format off
constexpr RouteRow kTable[] = {
    {"/api/segment/get/{tag}",     kLeafMethods,   Dialect::kLeaf, Access::kIds,   Doors::kAll,       Route::kLeafSegment,   LeafSegment},
    {"/api/snowflake/get/{name}",  kLeafMethods,   Dialect::kLeaf, Access::kIds,   Doors::kAll,       Route::kLeafSnowflake, LeafSnowflake},
    {"/v1/segment/{tag}",          kTakeMethods,   Dialect::kV1,   Access::kIds,   Doors::kAll,       Route::kV1Segment,     V1Segment},
    {"/v1/snowflake",              kTakeMethods,   Dialect::kV1,   Access::kIds,   Doors::kAll,       Route::kV1Snowflake,   V1Snowflake},
    {"/v1/segment/{tag}/mark",     kReadMethods,   Dialect::kV1,   Access::kRead,  Doors::kAll,       Route::kV1Mark,        V1Mark},
    {"/v1/segment/{tag}/advice",   kReadMethods,   Dialect::kV1,   Access::kRead,  Doors::kOperators, Route::kV1Advice,      V1Advice},
    {"/v1/segment/{tag}/pause",    kChangeMethods, Dialect::kV1,   Access::kAdmin, Doors::kOperators, Route::kV1Pause,       V1Pause},
    {"/v1/segment/{tag}/resume",   kChangeMethods, Dialect::kV1,   Access::kAdmin, Doors::kOperators, Route::kV1Resume,      V1Resume},
    {"/v1/tags",                   kTagsMethods,   Dialect::kV1,   Access::kReadOrAdmin, Doors::kOperators, Route::kV1Tags, V1Tags},
    {"/v1/tags/{tag}",             kTagMethods,    Dialect::kV1,   Access::kReadOrAdmin, Doors::kOperators, Route::kV1Tags, V1Tag},
    {"/v1/tags/{tag}/history",     kReadMethods,   Dialect::kV1,   Access::kAdmin, Doors::kOperators, Route::kV1Tags,        V1TagHistory},
    {"/v1/tags/{tag}/pause",       kChangeMethods, Dialect::kV1,   Access::kAdmin, Doors::kOperators, Route::kV1Tags,        V1Pause},
    {"/v1/tags/{tag}/resume",      kChangeMethods, Dialect::kV1,   Access::kAdmin, Doors::kOperators, Route::kV1Tags,        V1Resume},
    {"/v1/tags/{tag}/repair",      kChangeMethods, Dialect::kV1,   Access::kAdmin, Doors::kOperators, Route::kV1Tags,        V1TagRepair},
    {"/v1/decode/{id}",            kReadMethods,   Dialect::kV1,   Access::kRead,  Doors::kAll,       Route::kV1Decode,      V1Decode},
    {"/v1/codes/{tag}/{code}",     kReadMethods,   Dialect::kV1,   Access::kRead,  Doors::kOperators, Route::kV1Codes,       V1Codes},
    {"/v1/clock",                  kReadMethods,   Dialect::kV1,   Access::kFree,  Doors::kAll,       Route::kV1Clock,       V1Clock},
    {"/v1/status",                 kReadMethods,   Dialect::kV1,   Access::kRead,  Doors::kOperators, Route::kV1Status,      V1Status},
    {"/v1/workers",                kReadMethods,   Dialect::kV1,   Access::kRead,  Doors::kOperators, Route::kV1Workers,     V1Workers},
    {"/health/live",               kReadMethods,   Dialect::kPage, Access::kFree,  Doors::kAll,       Route::kHealth,        HealthLive, true},
    {"/health/ready",              kReadMethods,   Dialect::kPage, Access::kFree,  Doors::kAll,       Route::kHealth,        HealthReady, true},
    {"/metrics",                   kReadMethods,   Dialect::kPage, Access::kRead,  Doors::kOperators, Route::kMetrics,       Metrics, true},
    {"/",                          kReadMethods,   Dialect::kPage, Access::kFree,  Doors::kOperators, Route::kDashboard,     Dashboard},
    {"/dashboard.css",             kReadMethods,   Dialect::kPage, Access::kFree,  Doors::kOperators, Route::kDashboard,     Dashboard},
    {"/dashboard.js",              kReadMethods,   Dialect::kPage, Access::kFree,  Doors::kOperators, Route::kDashboard,     Dashboard},
    {"/decodeSnowflakeId.*",       kLeafMethods,   Dialect::kLeaf, Access::kRead,  Doors::kAll,       Route::kLeafDecode,    LeafDecode},
    {"/cache.*",                   kLeafMethods,   Dialect::kLeaf, Access::kRead,  Doors::kOperators, Route::kLeafPages,     LeafCache},
    {"/db.*",                      kLeafMethods,   Dialect::kLeaf, Access::kRead,  Doors::kOperators, Route::kLeafPages,     LeafDb},
    {"/v1/...",                    kAnyMethod,     Dialect::kV1,   Access::kFree,  Doors::kAll,       Route::kOther,         V1Nothing},
    {"/health/...",                kAnyMethod,     Dialect::kPage, Access::kFree,  Doors::kAll,       Route::kHealth,        Nothing},
    {"/...",                       kAnyMethod,     Dialect::kPage, Access::kFree,  Doors::kAll,       Route::kOther,         Nothing},
};
// clang-format on

}  // namespace

bool RouteRow::Serves(std::string_view method) const {
  if (methods.empty()) return true;
  if (dialect == Dialect::kLeaf) return method != "OPTIONS" && method != "TRACE" && method != "CONNECT";
  std::string_view rest = methods;
  while (!rest.empty()) {
    const std::string_view served = rest.substr(0, rest.find(','));
    if (served == method) return true;
    rest.remove_prefix(std::min(served.size() + 1, rest.size()));
  }
  return false;
}

Access RouteRow::AccessFor(std::string_view method) const {
  if (access != Access::kReadOrAdmin) return access;
  return method == "GET" || method == "HEAD" ? Access::kRead : Access::kAdmin;
}

const RouteRow& FindRoute(const Target::Segments& segments) {
  const auto* const row = std::find_if(std::begin(kTable), std::end(kTable),
                                       [&](const RouteRow& each) { return each.path.Matches(segments); });
  LEAF_CHECK(row != std::end(kTable));
  return *row;
}

const RouteRow& NoRoute(Dialect dialect) {
  const RouteRow* const last = std::end(kTable);
  return dialect == Dialect::kV1 ? last[-3] : last[-1];
}

std::span<const RouteRow> AllRoutes() { return kTable; }

}  // namespace leaf::server
