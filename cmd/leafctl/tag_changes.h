// Changes of tags that several commands make: one tag at a time, and several in one call.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "confirm.h"
#include "context.h"
#include "leaf/base/result.h"
#include "leaf/core/ports.h"
#include "leaf/embed/cluster_link.h"
#include "stores.h"
#include "tag_output.h"

namespace leaf::cmd {

// The store and, with the cluster's fence, the witness beside it.
class TagAdder {
 public:
  // `command`: "tag add", for the records. Errors: those of Store::Open and ClusterLink::Open.
  static Result<std::unique_ptr<TagAdder>> Open(CommandContext& context, Store& store,
                                                std::string_view command);

  // The end of all that is known to have been granted under this name, in this state directory, in the
  // database after a removal, and in the cluster; 0 for nothing. Errors: those of the stores.
  Result<std::uint64_t> KnownMark(const std::string& tag);
  // Adds the tag above all that this machine and the cluster know of its name. Errors: those of TagAdmin::Add
  // and of ClusterLink::RaiseMark.
  Result<core::TagRow> Add(core::NewTag tag, core::WriteMode mode);

 private:
  TagAdder(CommandContext& context, Store& store) : context_(context), store_(store), log_(context) {}

  CommandContext& context_;
  Store& store_;
  ContextLogger log_;
  std::unique_ptr<embed::ClusterLink> cluster_;
};

// Removes the tag and remembers where it had got to, first in this state directory. `row`: as it was seen.
// Errors: those of TagAdmin::Remove and of MarkStore::Raise.
Result<core::TagAdmin::Removal> RemoveTag(CommandContext& context, Store& store, const core::TagRow& row,
                                          core::WriteMode mode);

// Why moving max_id up to `to` needs the tag's name typed: what is jumped over is lost for good. "" if not.
std::string WhyFar(const core::TagRow& row, std::uint64_t to);

// The same for a tag that is to begin there: only how few IDs are left counts.
std::string WhyFarAbove(std::uint64_t begin);

// The tags of a call, each once. Errors: kInvalidArgument for a bad name, or one that is given twice.
Result<void> ValidateTags(const std::vector<std::string>& tags);

// 'a', 'b' and 'c'.
std::string QuotedList(const std::vector<std::string>& names);

// What --confirm has to name: the tag, or all of them with a comma between.
std::string ConfirmName(const std::vector<std::string>& tags);

// Calls `one` for each of `tags` in order, until one fails. The error then says how many were done before.
// `done`: "added"; "" for what changes nothing. With --json `one` returns a document, and together they are
// {"tags": [...]}; a single one stands alone.
Result<void> ForEachTag(CommandContext& context, const std::vector<std::string>& tags, std::string_view done,
                        const std::function<Result<Json>(const std::string&)>& one);

}  // namespace leaf::cmd
