#include "leaf/access/roles.h"

#include <array>

namespace leaf::access {
namespace {

constexpr std::array kAllRoles{Role::kIds, Role::kRead, Role::kAdmin};

}  // namespace

std::string_view RoleName(Role role) {
  switch (role) {
    case Role::kIds:
      return "ids";
    case Role::kRead:
      return "read";
    case Role::kAdmin:
      break;
  }
  return "admin";
}

std::optional<Role> ParseRole(std::string_view name) {
  for (const Role role : kAllRoles) {
    if (RoleName(role) == name) return role;
  }
  return std::nullopt;
}

std::string Roles::Text() const {
  std::string text;
  for (const Role role : kAllRoles) {
    if ((bits_ & static_cast<std::uint8_t>(role)) == 0) continue;
    if (!text.empty()) text += ',';
    text += RoleName(role);
  }
  return text;
}

}  // namespace leaf::access
