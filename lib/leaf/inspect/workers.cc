#include "leaf/inspect/workers.h"

#include <array>
#include <cstddef>

namespace leaf::inspect {

std::string_view NumberKindName(NumberKind kind) {
  constexpr std::array<std::string_view, 3> kNames{"fixed", "lease", "recycled"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view RepairChangeName(RepairChange::Kind kind) {
  constexpr std::array<std::string_view, 5> kNames{"absent", "create", "write", "remove", "protect"};
  return kNames[static_cast<std::size_t>(kind)];
}

void WorkerInspection::Leave(std::string code, std::string subject, Words words, std::string why) {
  findings.push_back({std::move(code), std::move(subject), std::move(words.cause),
                      std::move(words.consequence), std::move(words.remedy), false, std::move(why)});
}

void WorkerInspection::Mend(std::string code, std::string subject, Words words, std::string what,
                            std::vector<RepairChange> changes) {
  steps.push_back({code, std::move(what), words.cause, std::move(changes)});
  findings.push_back({std::move(code), std::move(subject), std::move(words.cause),
                      std::move(words.consequence), std::string(kRepair), true, ""});
}

bool IsSharedHost(std::string_view host) {
  for (const std::string_view shared : {"", "localhost", "[::1]", "::1", "0.0.0.0", "[::]", "::"}) {
    if (host == shared) return true;
  }
  // Docker's default bridge is 172.17.0.1 on every machine, and Java Leaf takes the first interface it is
  // told of (leaf-compat §6.2).
  for (const std::string_view prefix : {"127.", "169.254.", "172.17."}) {
    if (host.starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace leaf::inspect
