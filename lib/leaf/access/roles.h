// What a caller of a server may do.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace leaf::access {

enum class Role : std::uint8_t {
  kIds = 1,    // takes IDs
  kRead = 2,   // status, metrics, dashboard, decode
  kAdmin = 4,  // everything, also what changes something
};

// "ids", "read", "admin".
std::string_view RoleName(Role role);
std::optional<Role> ParseRole(std::string_view name);

class Roles {
 public:
  constexpr Roles() = default;
  constexpr Roles(std::initializer_list<Role> roles) {
    for (const Role role : roles) Add(role);
  }

  constexpr void Add(Role role) { bits_ |= static_cast<std::uint8_t>(role); }
  // Admin has every role.
  constexpr bool Has(Role role) const {
    return (bits_ & (static_cast<std::uint8_t>(role) | static_cast<std::uint8_t>(Role::kAdmin))) != 0;
  }
  constexpr bool empty() const { return bits_ == 0; }
  // "ids,read"; "" for none.
  std::string Text() const;

  bool operator==(const Roles&) const = default;

 private:
  std::uint8_t bits_ = 0;
};

}  // namespace leaf::access
