#include "leaf/inspect/worker_json.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "leaf/base/foreign_json.h"

namespace leaf::inspect {
namespace {

using Json = nlohmann::ordered_json;

Json TimeJson(const std::optional<WallTime>& time) {
  return time ? Json(FormatRfc3339(*time)) : Json(nullptr);
}
Json MillisJson(const std::optional<WallTime>& time) {
  return time ? Json(UnixMillis(*time)) : Json(nullptr);
}

// Reads the members of one object; one that is missing or of another kind is remembered.
class MemberReader {
 public:
  explicit MemberReader(const Json& json) : json_(json), good_(json.is_object()) {}

  bool good() const { return good_; }

  // Not a copy: copying goes as deep as the sender has nested, and the stack does not.
  const Json* Member(const char* key) {
    if (!json_.is_object()) return nullptr;
    const auto found = json_.find(key);
    if (found == json_.end()) {
      good_ = false;
      return nullptr;
    }
    return &*found;
  }
  void Text(const char* key, std::string& text) {
    const Json* const member = Member(key);
    if (Check(member, member != nullptr && member->is_string())) text = member->get<std::string>();
  }
  void Flag(const char* key, bool& flag) {
    const Json* const member = Member(key);
    if (Check(member, member != nullptr && member->is_boolean())) flag = member->get<bool>();
  }
  void Number(const char* key, std::uint64_t& number) {
    const Json* const member = Member(key);
    if (Check(member, member != nullptr && member->is_number_unsigned()))
      number = member->get<std::uint64_t>();
  }
  void MaybeNumber(const char* key, std::optional<std::uint64_t>& number) {
    const Json* const member = Member(key);
    if (member != nullptr && member->is_null()) return;
    if (Check(member, member != nullptr && member->is_number_unsigned()))
      number = member->get<std::uint64_t>();
  }
  // A registry holds any number; differences of those up to here do not overflow.
  void MaybeTime(const char* key, std::optional<WallTime>& time) {
    constexpr std::int64_t kMillisMax = std::int64_t{1} << 61;
    const Json* const member = Member(key);
    if (member != nullptr && member->is_null()) return;
    if (!Check(member, member != nullptr && member->is_number_integer())) return;
    // One above 2^63 is another number as a signed one.
    const bool fits = !member->is_number_unsigned() ||
                      member->get<std::uint64_t>() <= static_cast<std::uint64_t>(kMillisMax);
    const auto millis = member->get<std::int64_t>();
    if (Check(member, fits && millis >= -kMillisMax && millis <= kMillisMax)) time = WallTimeOf(millis);
  }

 private:
  bool Check(const Json* member, bool right) {
    if (member == nullptr || !right) good_ = false;
    return member != nullptr && right;
  }

  const Json& json_;
  bool good_;
};

std::optional<NumberKind> KindOf(std::string_view name) {
  for (const NumberKind kind : {NumberKind::kFixed, NumberKind::kLease, NumberKind::kRecycled}) {
    if (NumberKindName(kind) == name) return kind;
  }
  return std::nullopt;
}

std::optional<WorkerEntry> EntryOf(const Json& json) {
  MemberReader reader(json);
  WorkerEntry entry;
  std::string kind;
  reader.Text("kind", kind);
  reader.Number("worker", entry.worker);
  reader.Text("address", entry.address);
  reader.MaybeTime("reported_ms", entry.reported);
  reader.Flag("live", entry.live);
  std::string program;
  if (entry.live) reader.Text("program", program);
  entry.java = program == "java";
  reader.Text("url", entry.url);
  reader.Text("owner", entry.owner);
  reader.Text("host", entry.host);
  reader.MaybeTime("since_ms", entry.since);
  reader.MaybeTime("ceiling_ms", entry.ceiling);
  reader.MaybeNumber("generation", entry.generation);
  if (json.contains("worker_source")) reader.Text("worker_source", entry.source);
  const auto known = KindOf(kind);
  if (!reader.good() || !known) return std::nullopt;
  entry.kind = *known;
  return entry;
}

std::optional<WorkerList> ListOf(const Json& json) {
  MemberReader reader(json);
  WorkerList list;
  reader.Text("registry", list.registry);
  reader.Text("cluster", list.cluster);
  std::optional<WallTime> time;
  reader.MaybeTime("time_ms", time);
  const Json* const workers = reader.Member("workers");
  if (!reader.good() || !time || !workers->is_array()) return std::nullopt;
  list.time = *time;
  for (const Json& item : *workers) {
    auto entry = EntryOf(item);
    if (!entry) return std::nullopt;
    list.entries.push_back(*std::move(entry));
  }
  return list;
}

}  // namespace

Json WorkerHeading(std::string_view registry, std::string_view cluster) {
  return {{"registry", registry}, {"cluster", cluster}};
}

Json EntryJson(const WorkerEntry& entry, WallTime now) {
  Json json{{"kind", NumberKindName(entry.kind)},
            {"worker", entry.worker},
            {"address", entry.address},
            {"reported", TimeJson(entry.reported)},
            {"reported_ms", MillisJson(entry.reported)},
            {"age_ms", entry.reported ? Json((now - *entry.reported).count()) : Json(nullptr)},
            {"live", entry.live},
            {"program", entry.live ? Json(entry.java ? "java" : "leafctl") : Json(nullptr)},
            {"url", entry.url},
            {"owner", entry.owner},
            {"host", entry.host},
            {"since", TimeJson(entry.since)},
            {"since_ms", MillisJson(entry.since)},
            {"ceiling", TimeJson(entry.ceiling)},
            {"ceiling_ms", MillisJson(entry.ceiling)},
            {"lead_ms", entry.ceiling ? Json((*entry.ceiling - now).count()) : Json(nullptr)},
            {"generation", entry.generation ? Json(*entry.generation) : Json(nullptr)}};
  if (!entry.source.empty()) json["worker_source"] = entry.source;
  return json;
}

Json WorkerListJson(const WorkerList& list) {
  Json json = WorkerHeading(list.registry, list.cluster);
  json["time"] = FormatRfc3339(list.time);
  json["time_ms"] = UnixMillis(list.time);
  json["workers"] = Json::array();
  for (const WorkerEntry& entry : list.entries) json["workers"].push_back(EntryJson(entry, list.time));
  return json;
}

Result<WorkerList> ReadWorkerList(Environment& environment) {
  LEAF_ASSIGN_OR_RETURN(const auto source, WorkerSource::Open(environment, embed::Store::Access::kLook));
  LEAF_ASSIGN_OR_RETURN(WorkerInspection inspection, source->Inspect());
  return WorkerList{std::string(source->registry()), source->cluster(), environment.ClockInUse().Wall(),
                    std::move(inspection.entries)};
}

Result<WorkerList> ParseWorkerList(std::string_view text) {
  const Json json = ParseForeignJson<Json>(text);
  if (auto list = ListOf(json)) return *std::move(list);
  return Error{ErrorCode::kInternal, "that is no list of worker numbers", ""};
}

}  // namespace leaf::inspect
