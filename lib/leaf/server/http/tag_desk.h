// Port: the table of tags, as requests over HTTP list and change it. The daemon implements it on what the tag
// commands do.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "leaf/base/result.h"
#include "leaf/core/ports.h"

namespace leaf::server {

// Thread-safe. All calls block: on the database, on the state directory, and a repair on other daemons. Each
// returns a JSON object. Errors: those of core::TagAdmin and core::SegmentStore, in the words of the
// commands.
class TagDesk {
 public:
  virtual ~TagDesk() = default;
  using Json = nlohmann::ordered_json;

  struct Listing {
    std::string search;        // a part of the tag, with ASCII letters in any case; "" for all
    std::string sort = "tag";  // a column of `tag list`
    bool reverse = false;
    std::uint64_t offset = 0;
    std::uint64_t limit = 1'000'000'000;
  };
  // As `tag list --json`. Errors: kInvalidArgument for a column that there is not.
  virtual Result<Json> List(const Listing& listing) = 0;
  // As `tag show --json`.
  virtual Result<Json> Show(const std::string& tag) = 0;
  // As `tag history --json`.
  virtual Result<Json> History(const std::string& tag, std::uint64_t limit) = 0;

  // `caller`: who changes it, for the history. A dry run does everything but the change.
  struct Caller {
    std::string who;
    core::WriteMode mode = core::WriteMode::kCommit;
  };
  // What a change that needs the tag's name as its confirmation would do: nothing was done.
  struct Unconfirmed {
    std::string action;  // "remove tag 'pay' (max_id 1)"
  };
  template <typename Done>
  struct Outcome {
    Done done{};
    std::optional<Unconfirmed> unconfirmed{};
  };

  // As `tag add --json`. A tag that was added is served at once.
  virtual Result<Json> Add(const core::NewTag& tag, const Caller& caller) = 0;
  // `confirm`: the name that the caller has confirmed with, or "". Errors: kRefused for one that is not the
  // tag's.
  virtual Result<Outcome<Json>> Change(const std::string& tag, const core::TagChange& change,
                                       const std::string& confirm, const Caller& caller) = 0;
  virtual Result<Outcome<Json>> Remove(const std::string& tag, const std::string& confirm,
                                       const Caller& caller) = 0;
  // As `tag repair --json`: without the tag's name in `confirm` a dry run.
  virtual Result<Json> Repair(const std::string& tag, std::optional<std::uint64_t> to,
                              const std::string& confirm, const Caller& caller) = 0;
  // This node has paused the tag, or resumed it, which is in the log.
  virtual void Paused(const std::string& tag, bool paused, const Caller& caller) = 0;
};

}  // namespace leaf::server
