// The codes of [codes], on the store that the configuration names: for commands, the daemon and the library.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "leaf/base/clock.h"
#include "leaf/base/executor.h"
#include "leaf/base/logger.h"
#include "leaf/codes/code_book.h"
#include "leaf/config/loader.h"
#include "leaf/embed/environment.h"
#include "leaf/embed/stores.h"
#include "leaf/sql/code_records.h"

namespace leaf::embed {

// What codes are made of. Reads the key. Errors: kConfig (no key is configured, the file has none, or is not
// its owner's alone), kPermission.
Result<codes::CodeBook::Options> LoadCodeOptions(const config::Config::Codes& config);

// Thread-safe. Its calls block on the database.
class CodeStore {
 public:
  using Codes = std::shared_ptr<const codes::TagCodes>;
  // The name of the cluster whose snowflake IDs they are. Errors: as it has none yet.
  using ClusterName = std::function<Result<std::string>()>;

  // The environment outlives it. `log`: as of Store::Open. Errors: those of Store::Open, and, without
  // `options`, of LoadCodeOptions for the environment's configuration.
  static Result<std::unique_ptr<CodeStore>> Open(Environment& environment, codes::CodeBook::Options options,
                                                 Store::Access access, ClusterName cluster,
                                                 Logger* log = nullptr);
  static Result<std::unique_ptr<CodeStore>> Open(Environment& environment, Store::Access access,
                                                 ClusterName cluster, Logger* log = nullptr);

  void Reconfigure(codes::CodeBook::Options options) { book_->Reconfigure(std::move(options)); }
  const codes::CodeBook& book() const { return *book_; }
  // CodeBook::CompareRecords. `log` hears what was lost. A database that does not answer is asked again
  // later.
  void CompareRecords(Logger& log);
  // Does so once in kCompareTime from now on, on `thread`, which ends before this does, as do the clock and
  // the log.
  void KeepComparing(Executor& thread, const Clock& clock, Logger& log);
  Store& store() { return *store_; }
  // What the configuration asks for. Errors: kConfig (no codes can be made as it says). Where it is not known
  // which cluster's snowflake IDs they are, the record names none.
  Result<core::CodeRecord> RecordFor(std::string_view tag) const;
  // What is remembered of a tag's codes.
  Result<std::optional<core::CodeRecord>> RecordOf(std::string_view tag) { return records_.Load(tag); }

  // `last`: the highest ID of those that get codes now. Errors: those of codes::CodeBook; kOverflow (it has
  // no code), and kNotFound where the tag has no codes and there is no such tag, so that a slip of the pen is
  // not remembered for ever.
  Result<Codes> ToIssue(std::string_view tag, std::uint64_t last = 0);
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

inline constexpr std::chrono::seconds kCompareTime{60};

// The name in the configuration, or that of the state directory's private cluster.
CodeStore::ClusterName ClusterNameOf(const config::Config& config);

}  // namespace leaf::embed
