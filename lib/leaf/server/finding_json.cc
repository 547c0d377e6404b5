#include "leaf/server/finding_json.h"

namespace leaf::server {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Json FindingJson(const core::Finding& finding) {
  return {{"severity", core::SeverityName(finding.severity)},
          {"code", finding.code},
          {"subject", finding.subject},
          {"cause", finding.cause},
          {"consequence", finding.consequence},
          {"remedy", finding.remedy},
          {"repairable", finding.repairable},
          {"left", finding.left.empty() ? Json(nullptr) : Json(finding.left)}};
}

Json FindingsJson(const std::vector<core::Finding>& findings) {
  Json list = Json::array();
  for (const core::Finding& finding : findings) list.push_back(FindingJson(finding));
  return list;
}

}  // namespace leaf::server
