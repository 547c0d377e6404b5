// The codes of [codes], on the store that the configuration names: for commands, and for the daemon.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "leaf/base/logger.h"
#include "leaf/codes/code_book.h"
#include "leaf/config/loader.h"
#include "leaf/embed/environment.h"
#include "leaf/sql/code_records.h"
#include "stores.h"

namespace leaf::cmd {

// Thread-safe. Its calls block on the database.
class CodeStore {
 public:
  using Codes = std::shared_ptr<const codes::TagCodes>;
  // The name of the cluster whose snowflake IDs they are. Errors: as it has none yet.
  using ClusterName = std::function<Result<std::string>()>;

  // Reads the key. The environment outlives it. `log`: as of Store::Open. Errors: kConfig (no key is
  // configured, the file has none, or is not its owner's alone), those of Store::Open.
  static Result<std::unique_ptr<CodeStore>> Open(embed::Environment& environment, Store::Access access,
                                                 ClusterName cluster, Logger* log = nullptr);

  const codes::CodeBook& book() const { return *book_; }
  Store& store() { return *store_; }
  // What is remembered of a tag's codes.
  Result<std::optional<core::CodeRecord>> RecordOf(std::string_view tag) { return records_.Load(tag); }

  // Errors: those of codes::CodeBook; kNotFound where the tag has no codes and there is no such tag, so that
  // a slip of the pen is not remembered for ever.
  Result<Codes> ToIssue(std::string_view tag);
  Result<Codes> ToReveal(std::string_view tag);

 private:
  CodeStore(std::unique_ptr<Store> store, ClusterName cluster)
      : store_(std::move(store)), records_(store_->database()), cluster_(std::move(cluster)) {}
  Result<std::string> TweakOf(std::string_view tag) const;

  const std::unique_ptr<Store> store_;
  sql::SqlCodeRecords records_;
  const ClusterName cluster_;
  std::optional<codes::CodeBook> book_;
};

// For commands: the name in the configuration, or that of the state directory's private cluster.
CodeStore::ClusterName ClusterNameOf(const config::Config& config);

}  // namespace leaf::cmd
