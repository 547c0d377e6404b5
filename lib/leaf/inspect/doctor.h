// What `doctor` looks at. Only reads: no file is made or written, nothing is claimed or locked.
#pragma once

#include <string>
#include <vector>

#include "leaf/base/logger.h"
#include "leaf/client/daemon_client.h"
#include "leaf/config/loader.h"
#include "leaf/inspect/diagnosis.h"
#include "leaf/inspect/environment.h"

namespace leaf::inspect {

// The daemon that this configuration makes, if it runs.
struct OwnDaemon {
  client::DaemonClient& client;
  bool is_configured;   // where it answers
  std::string version;  // of this program
};

// Everything that the configuration has to do with, each on its own: what does not answer is one finding, and
// what stands on it is left out. Blocks as long as the time-outs allow, and for 4 s more if a node that is no
// leafctl reports to the registry: only watching tells whether it runs.
std::vector<Diagnosis> Examine(Environment& environment, Logger& log, const config::Resolved& resolved,
                               const OwnDaemon& own);

}  // namespace leaf::inspect
