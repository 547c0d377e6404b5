#include "leaf/core/worker_inspection.h"

namespace leaf::core {

std::string_view NumberKindName(NumberKind kind) {
  switch (kind) {
    case NumberKind::kFixed:
      return "fixed";
    case NumberKind::kLease:
      return "lease";
    case NumberKind::kRecycled:
      return "recycled";
  }
  return "";
}

std::string_view RepairChangeName(RepairChange::Kind kind) {
  switch (kind) {
    case RepairChange::Kind::kAbsent:
      return "absent";
    case RepairChange::Kind::kCreate:
      return "create";
    case RepairChange::Kind::kWrite:
      return "write";
    case RepairChange::Kind::kRemove:
      return "remove";
    case RepairChange::Kind::kProtect:
      return "protect";
  }
  return "";
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

}  // namespace leaf::core
