#include "leaf/embed/code_store.h"

#include <fmt/format.h>

#include <utility>

#include "leaf/base/text.h"
#include "leaf/sys/file_ops.h"
#include "leaf/sys/secret_file.h"
#include "leaf/sys/worker_state_file.h"

namespace leaf::embed {
namespace {

codes::CodeShape ShapeOf(const config::Config::Codes& codes, const config::Config::Codes::Own& own) {
  return {.alphabet = codes::ParseAlphabet(own.alphabet.value_or(codes.alphabet)).value(),
          .length = static_cast<int>(own.length.value_or(codes.length)),
          .check = own.check.value_or(codes.check),
          .group = static_cast<int>(own.group.value_or(codes.group))};
}

}  // namespace

Result<codes::CodeBook::Options> LoadCodeOptions(const config::Config::Codes& config) {
  if (config.key_file.empty()) {
    return Error{ErrorCode::kConfig, "codes are not configured: codes.key_file names no file",
                 "leafctl code keygen FILE makes a key"};
  }
  codes::CodeBook::Options options;
  LEAF_ASSIGN_OR_RETURN(const std::string text, sys::ReadSecretFile(config.key_file));
  auto key = codes::ParseCodeKey(text);
  if (!key.ok()) {
    return Error{key.error().code,
                 fmt::format("codes.key_file: {}: {}", config.key_file, key.error().message),
                 key.error().hint};
  }
  options.key = *key;
  options.shape = ShapeOf(config, {});
  for (const auto& [tag, own] : config.tags) options.tags.emplace(tag, ShapeOf(config, own));
  return options;
}

Result<std::unique_ptr<CodeStore>> CodeStore::Open(Environment& environment, Store::Access access,
                                                   ClusterName cluster, Logger* log) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, environment.Config());
  LEAF_ASSIGN_OR_RETURN(codes::CodeBook::Options options, LoadCodeOptions(resolved->config.codes));
  return Open(environment, std::move(options), access, std::move(cluster), log);
}

Result<std::unique_ptr<CodeStore>> CodeStore::Open(Environment& environment, codes::CodeBook::Options options,
                                                   Store::Access access, ClusterName cluster, Logger* log) {
  LEAF_ASSIGN_OR_RETURN(auto store, Store::Open(environment, access, log));
  std::unique_ptr<CodeStore> codes(new CodeStore(std::move(store), std::move(cluster)));
  codes->book_.emplace(std::move(options), codes->records_);
  return codes;
}

Result<std::string> CodeStore::TweakOf(std::string_view tag) const {
  return tag == codes::kSnowflakeTag ? cluster_() : std::string(tag);
}

Result<core::CodeRecord> CodeStore::RecordFor(std::string_view tag) const {
  const auto tweak = TweakOf(tag);
  LEAF_ASSIGN_OR_RETURN(core::CodeRecord record, book_->RecordFor(tag, tweak.ok() ? *tweak : ""));
  if (!tweak.ok()) record.cluster.clear();
  return record;
}

void CodeStore::CompareRecords(Logger& log) {
  const auto compared = book_->CompareRecords();
  if (!compared.ok()) return;
  for (const std::string& tag : compared->kept_again) {
    log.Warning(
        "the database had lost what the codes of tag {} are made of (it was restored, or a failover lost "
        "it): kept "
        "again",
        Quoted(tag));
  }
  for (const std::string& tag : compared->differ) {
    log.Error(
        "leafctl_codes says by now that the codes of tag {} are made in another way than this node has made "
        "them: it "
        "makes no more of them unless its configuration says the same; codes may have repeated",
        Quoted(tag));
  }
}

void CodeStore::KeepComparing(Executor& thread, const Clock& clock, Logger& log) {
  thread.PostAt(clock.Monotonic() + kCompareTime, [this, &thread, &clock, &log] {
    CompareRecords(log);
    KeepComparing(thread, clock, log);
  });
}

Result<CodeStore::Codes> CodeStore::ToIssue(std::string_view tag, std::uint64_t last) {
  LEAF_ASSIGN_OR_RETURN(const std::string tweak, TweakOf(tag));
  LEAF_RETURN_IF_ERROR(book_->RecordFor(tag, tweak));
  LEAF_ASSIGN_OR_RETURN(const auto record, records_.Load(tag));
  if (!record && tag != codes::kSnowflakeTag) LEAF_RETURN_IF_ERROR(store_->segments().Describe(tag));
  if (const codes::CodeShape shape = book_->ShapeFor(tag); last >= codes::DomainOf(shape))
    return codes::NoCodeOf(tag, last, shape);
  return book_->OpenToIssue(tag, tweak);
}

Result<CodeStore::Codes> CodeStore::ToReveal(std::string_view tag) {
  LEAF_ASSIGN_OR_RETURN(const std::string tweak, TweakOf(tag));
  return book_->OpenToReveal(tag, tweak);
}

CodeStore::ClusterName ClusterNameOf(const config::Config& config) {
  return [name = config.snowflake.cluster, state_dir = config.state_dir]() -> Result<std::string> {
    if (!name.empty()) return name;
    sys::FileOps ops;
    sys::WorkerStateFile file(state_dir, ops);
    LEAF_ASSIGN_OR_RETURN(const auto state, file.Load());
    if (state && state->worker) return state->cluster.name;
    return Error{ErrorCode::kNotFound, fmt::format("no worker has its state in {}", state_dir),
                 "name the daemon's state directory with --state-dir"};
  };
}

}  // namespace leaf::embed
