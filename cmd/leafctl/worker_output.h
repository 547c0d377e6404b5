// How worker numbers, findings and stored records are shown, shared by the worker commands.
#pragma once

#include <string>
#include <vector>

#include "leaf/base/time.h"
#include "leaf/config/config.h"
#include "leaf/core/worker_inspection.h"
#include "tag_output.h"

namespace leaf::cmd {

class WorkerSource;

// {"registry","cluster"}: how every document of the worker commands begins.
Json WorkerHeading(const WorkerSource& source);

Json EntryJson(const core::WorkerEntry& entry, WallTime now);
// Bytes that are not UTF-8 become "data_hex".
Json RecordJson(const core::RawRecord& record);

// "12 s", "5 min", "3 h", "40 d"; "-" in front if it is in the future.
std::string AgeText(std::chrono::milliseconds age);

// What works as it is configured, and should only be known, is a warning.
void GradeFindings(std::vector<core::WorkerFinding>& findings, const config::Config& config);

// Four lines for people.
std::string FindingText(const core::WorkerFinding& finding);

}  // namespace leaf::cmd
