// leafctl worker export
#include "commands.h"
#include "leaf/base/foreign_json.h"
#include "worker_output.h"

namespace leaf::cmd {
namespace {

Result<void> RunWorkerExport(CommandContext& context) {
  LEAF_ASSIGN_OR_RETURN(const auto source, inspect::WorkerSource::Open(context, embed::Store::Access::kLook));
  LEAF_ASSIGN_OR_RETURN(const auto records, source->Records());
  Json json = WorkerHeading(*source);
  json["records"] = Json::array();
  for (const inspect::RawRecord& record : records) {
    Json item = RecordJson(record);
    // Null for what is no JSON, or none of ours.
    const Json decoded = ParseForeignJson<Json>(record.data);
    item["decoded"] = decoded.is_discarded() ? Json(nullptr) : decoded;
    json["records"].push_back(std::move(item));
  }
  // For people and diff as well: one value a line.
  context.out.Write(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  return {};
}

}  // namespace

Run AddWorkerExport(CLI::App& app, CommandContext&) {
  app.footer(
      "Prints nodes or rows as they are stored, in a fixed order, without anything that depends on the "
      "time of the call: two exports of an unchanged registry are equal.\n"
      "Examples:\n"
      "  leafctl worker export >before.json");
  return [](CommandContext& context) { return RunWorkerExport(context); };
}

}  // namespace leaf::cmd
