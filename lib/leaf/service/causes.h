// What is wrong with a node, told once for each cause: a database that is away fails the grants of every tag,
// and an operator wants one entry for that, not thousands.
//
// Its words are for readers that have never seen Leaf.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/time.h"
#include "leaf/service/tag_generator.h"

namespace leaf::service {

// Something an operator should look at although the node may be ready.
struct Problem {
  std::string code;
  std::string message;
  std::string hint;
  std::string tag;      // empty if it concerns no single tag
  std::string cause{};  // see Cause::name
  std::optional<WallTime> since{};
  bool not_ready = false;  // it is a reason for that
};

struct Cause {
  std::string name;     // stable, for machines: "database", "frozen", ...
  bool urgent = false;  // IDs are, or will soon be, refused or at risk
  bool not_ready = false;
  std::string title;    // what is wrong: "database unreachable", "tag 'pay' is frozen", "3 tags are frozen"
  std::string effect;   // what that means for those that ask for IDs; whole sentences
  std::string message;  // in the words of what failed
  std::string hint;     // the next step, or empty; where several tags have one, that of the first
  std::optional<WallTime> since;  // of the first, if there are several; nothing if not known
  std::vector<std::string> tags;  // that it concerns, by name
  struct Reserve {
    std::string tag;
    double seconds = 0;
  };
  std::optional<Reserve> shortest_reserve;  // where tags live on what they have, and one is asked for
};

// Of a reason for not being ready: that of the problem among `others` that stands behind it, if there is one.
std::string CauseOfReason(std::string_view code, const std::vector<Problem>& others);

// Adds what is wrong with a tag; `node` is what is wrong with the node.
void AddProblems(const TagStatus& tag, const std::vector<Problem>& node, std::vector<Problem>& problems);

// The gravest first. `tags`: all of the node.
std::vector<Cause> GroupByCause(const std::vector<Problem>& problems, const std::vector<TagStatus>& tags);

}  // namespace leaf::service
