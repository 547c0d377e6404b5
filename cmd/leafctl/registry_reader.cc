#include "registry_reader.h"

#include <nlohmann/json.hpp>

#include "leaf/inspect/worker_json.h"

namespace leaf::cmd {

Result<std::string> RegistryReader::Read() {
  LEAF_ASSIGN_OR_RETURN(const inspect::WorkerList list, inspect::ReadWorkerList(*this));
  return inspect::WorkerListJson(list).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace leaf::cmd
