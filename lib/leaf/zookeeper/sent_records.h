// The records that a registry has sent without an answer. Of what is found later where it wrote, only these
// may be taken for its own: two processes can have one identity, where a machine was copied with its memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <string_view>

#include "leaf/base/result.h"
#include "leaf/zookeeper/client.h"

namespace leaf::zookeeper {

// Not thread-safe.
class SentRecords {
 public:
  // `written`: what became of `record`.
  void Note(std::string_view record, const Result<WriteOutcome>& written) {
    if (written.ok() || written.error().code != ErrorCode::kOutcomeUnknown) return;
    hashes_.push_back(Hash(record));
    if (hashes_.size() > kKept) hashes_.pop_front();
  }
  // A write may land long after others have succeeded: where ZooKeeper was wiped meanwhile, versions repeat.
  bool Has(std::string_view record) const {
    return std::find(hashes_.begin(), hashes_.end(), Hash(record)) != hashes_.end();
  }

 private:
  // One for each connection that is lost, or deadline that has passed, while a write was under way.
  static constexpr std::size_t kKept = 1000;
  static std::size_t Hash(std::string_view record) { return std::hash<std::string_view>()(record); }
  std::deque<std::size_t> hashes_;
};

}  // namespace leaf::zookeeper
