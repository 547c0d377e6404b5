// What an inspection needs: the configuration, and where to tell how it goes on.
#pragma once

#include <string_view>

#include "leaf/embed/environment.h"

namespace leaf::inspect {

class Environment : public embed::Environment {
 public:
  // One line for people. A Note is for every user that waits for the result, a Detail only for one that wants
  // to know more. Any thread.
  virtual void Note(std::string_view message) = 0;
  virtual void Detail(std::string_view message) = 0;
};

}  // namespace leaf::inspect
