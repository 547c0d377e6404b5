// How worker numbers, findings and stored records are shown, shared by the worker commands.
#pragma once

#include <string>
#include <vector>

#include "leaf/base/time.h"
#include "leaf/inspect/worker_json.h"
#include "leaf/inspect/worker_source.h"
#include "leaf/inspect/workers.h"
#include "tag_output.h"

namespace leaf::cmd {

// {"registry","cluster"}: how every document of the worker commands begins.
inline Json WorkerHeading(const inspect::WorkerSource& source) {
  return inspect::WorkerHeading(source.registry(), source.cluster());
}
using inspect::EntryJson;
// Bytes that are not UTF-8 become "data_hex".
Json RecordJson(const inspect::RawRecord& record);

// "12 s", "5 min", "3 h", "40 d"; "-" in front if it is in the future.
std::string AgeText(std::chrono::milliseconds age);

// Four lines for people.
std::string FindingText(const inspect::WorkerFinding& finding);

}  // namespace leaf::cmd
