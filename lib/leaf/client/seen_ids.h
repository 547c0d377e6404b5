// The IDs that a caller was given so far, so that an answer which is repeated gives none of them once more.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "leaf/base/id_range.h"

namespace leaf::client {

// Of one tag, or of snowflake IDs. One thread.
class SeenIds {
 public:
  // False if some of `ranges` were seen before, or twice in it. `ranges` of one answer.
  bool Add(const std::vector<IdRange>& ranges) {
    for (const IdRange& range : ranges) {
      if (!AddOne(range)) return false;
    }
    return true;
  }
  // The same of one answer with IDs as texts. Only the first is compared: an answer that comes again begins
  // with the same one. Requires: not empty.
  bool Add(const std::vector<std::string>& texts) { return first_texts_.insert(texts.front()).second; }

 private:
  bool AddOne(const IdRange& range) {
    const auto next = begin_of_end_.upper_bound(range.begin);  // the first that ends above it
    if (next != begin_of_end_.end() && next->second < range.end) return false;
    std::uint64_t begin = range.begin;
    if (const auto before = begin_of_end_.find(range.begin); before != begin_of_end_.end()) {
      begin = before->second;
      begin_of_end_.erase(before);
    }
    begin_of_end_.emplace(range.end, begin);
    return true;
  }

  std::map<std::uint64_t, std::uint64_t> begin_of_end_;  // of ranges that are disjoint
  std::set<std::string> first_texts_;
};

}  // namespace leaf::client
