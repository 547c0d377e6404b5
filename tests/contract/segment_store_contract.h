// What every SegmentStore and TagAdmin must do, whatever stands behind it. A new adapter adds one world and
// one line.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "leaf/core/ports.h"

namespace leaf::testing {

// An empty table behind both ports, and a way to put rows there as a user with a database client would.
class StoreWorld {
 public:
  virtual ~StoreWorld() = default;
  virtual core::SegmentStore& store() = 0;
  virtual core::TagAdmin& admin() = 0;
  virtual void Put(const std::string& tag, std::int64_t max_id, std::int64_t step) = 0;
  // Whether the schema can hold tags that differ in case or trailing blanks only.
  virtual bool tells_all_tags_apart() const { return true; }
};

struct StoreWorldFactory {
  std::string name;
  std::function<std::unique_ptr<StoreWorld>()> make;

  friend void PrintTo(const StoreWorldFactory& factory, std::ostream* out) { *out << factory.name; }
};

class SegmentStoreContract : public ::testing::TestWithParam<StoreWorldFactory> {
 protected:
  SegmentStoreContract() : world_(GetParam().make()) {}
  core::SegmentStore& store() { return world_->store(); }
  core::TagAdmin& admin() { return world_->admin(); }

  const std::unique_ptr<StoreWorld> world_;
};

inline std::string StoreWorldName(const ::testing::TestParamInfo<StoreWorldFactory>& info) {
  return info.param.name;
}

}  // namespace leaf::testing
