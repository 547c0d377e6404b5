// What an inspection is made by: the configuration, and whom to tell how it goes on.
#pragma once

#include <string_view>

#include "leaf/embed/setting.h"

namespace leaf::inspect {

class Setting : public embed::Setting {
 public:
  // One line for people: for all who wait for the result, or only for who wants to know more. Any thread.
  virtual void Note(std::string_view message) = 0;
  virtual void Detail(std::string_view message) = 0;
};

}  // namespace leaf::inspect
