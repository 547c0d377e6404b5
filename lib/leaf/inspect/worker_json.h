// Worker numbers as JSON: what `leafctl worker list --json` prints and a daemon answers at /v1/workers, and
// the way back. Fields are only ever added.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/result.h"
#include "leaf/base/time.h"
#include "leaf/inspect/worker_source.h"
#include "leaf/inspect/workers.h"

namespace leaf::inspect {

// What a registry says of its numbers.
struct WorkerList {
  std::string registry;  // "static", "zookeeper", "sql"
  std::string cluster;
  WallTime time;                     // when it was read, by the reader's clock: ages count from here
  std::vector<WorkerEntry> entries;  // without records, where it came as JSON
};

// {"registry","cluster"}: how every document of the worker commands begins.
nlohmann::ordered_json WorkerHeading(std::string_view registry, std::string_view cluster);
nlohmann::ordered_json EntryJson(const WorkerEntry& entry, WallTime now);
nlohmann::ordered_json WorkerListJson(const WorkerList& list);

// Reads the registry that the configuration names, now. Blocks. Errors: those of WorkerSource::Open and
// Inspect.
Result<WorkerList> ReadWorkerList(Environment& environment);

// Nothing of `text` is believed. Errors: kInternal if it is no list.
Result<WorkerList> ParseWorkerList(std::string_view text);

}  // namespace leaf::inspect
