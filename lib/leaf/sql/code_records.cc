#include "leaf/sql/code_records.h"

#include <fmt/format.h>
#include <soci/soci.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "leaf/base/text.h"
#include "leaf/sql/error_map.h"

namespace leaf::sql {
namespace {

Error NoCodesTable() {
  return {ErrorCode::kConfig,
          "the database has no table leafctl_codes, which has the keys and lengths of codes",
          "leafctl db init creates it"};
}

// Column key_fingerprint: the key's, and behind a slash that of the cluster.
constexpr char kBeforeCluster = '/';
std::string KeyColumn(const core::CodeRecord& record) {
  return record.cluster.empty() ? record.key
                                : fmt::format("{}{}{}", record.key, kBeforeCluster, record.cluster);
}

// What the columns say that have another form. `record.key`: as the column has it.
Result<void> FillIn(core::CodeRecord& record, int check, const std::string& lengths) {
  record.check = check != 0;
  const std::size_t slash = std::min(record.key.find(kBeforeCluster), record.key.size());
  record.cluster = record.key.substr(std::min(slash + 1, record.key.size()));
  record.key.resize(slash);
  const auto parsed = core::ParseCodeLengths(lengths);
  if (!parsed) {
    return Error{ErrorCode::kConfig,
                 fmt::format("table leafctl_codes: tag {}: {} is no list of lengths", Quoted(record.tag),
                             Quoted(lengths)),
                 ""};
  }
  record.lengths = *parsed;
  return {};
}

// `suffix`: the dialect's for_update where the row must not change until the transaction ends.
Result<std::optional<core::CodeRecord>> ReadCodeRecord(soci::session& session, std::string_view tag,
                                                       std::string_view suffix) {
  core::CodeRecord record{.tag = std::string(tag), .alphabet = "", .check = true, .lengths = {}, .key = ""};
  int check = 0;
  std::string lengths;
  try {
    session << fmt::format(
        "SELECT alphabet, has_check, lengths, key_fingerprint FROM leafctl_codes WHERE biz_tag = :tag{}",
        suffix),
        soci::use(record.tag, "tag"), soci::into(record.alphabet), soci::into(check), soci::into(lengths),
        soci::into(record.key);
  } catch (const std::exception& exception) {
    if (!IsMissingTable(exception)) throw;
    return NoCodesTable();
  }
  if (!session.got_data()) return std::optional<core::CodeRecord>();
  LEAF_RETURN_IF_ERROR(FillIn(record, check, lengths));
  return std::optional(std::move(record));
}

}  // namespace

Result<std::optional<core::CodeRecord>> SqlCodeRecords::Load(std::string_view tag) {
  std::optional<core::CodeRecord> record;
  LEAF_RETURN_IF_ERROR(database_.Run(fmt::format("read what codes tag {} has", Quoted(tag)),
                                     [&](soci::session& session) -> Result<void> {
                                       LEAF_ASSIGN_OR_RETURN(record, ReadCodeRecord(session, tag, ""));
                                       return {};
                                     }));
  return record;
}

Result<std::vector<core::CodeRecord>> SqlCodeRecords::LoadAll() {
  std::vector<core::CodeRecord> records;
  LEAF_RETURN_IF_ERROR(database_.Run("list the tags with codes", [&](soci::session& session) -> Result<void> {
    records.clear();
    core::CodeRecord record;
    int check = 0;
    std::string lengths;
    try {
      soci::statement read =
          (session.prepare
               << "SELECT biz_tag, alphabet, has_check, lengths, key_fingerprint FROM leafctl_codes",
           soci::into(record.tag), soci::into(record.alphabet), soci::into(check), soci::into(lengths),
           soci::into(record.key));
      read.execute();
      while (read.fetch()) {
        LEAF_RETURN_IF_ERROR(FillIn(record, check, lengths));
        records.push_back(record);
      }
    } catch (const std::exception& exception) {
      if (!IsMissingTable(exception)) throw;
    }
    return {};
  }));
  return records;
}

Result<core::CodeRecord> SqlCodeRecords::Keep(const core::CodeRecord& wanted, core::CodesBegin begin) {
  const Dialect& dialect = database_.dialect();
  core::CodeRecord kept;
  const auto keep = [&] {
    return database_.Transact(
        fmt::format("keep what codes tag {} has", Quoted(wanted.tag)), Database::Finish::kCommit,
        [&](soci::session& session) -> Result<void> {
          LEAF_ASSIGN_OR_RETURN(const auto found, ReadCodeRecord(session, wanted.tag, dialect.for_update));
          if (!found) {
            const int check = wanted.check ? 1 : 0;
            const std::string lengths = core::CodeLengthsText(wanted.lengths);
            const std::string key = KeyColumn(wanted);
            session << fmt::format(
                "INSERT INTO leafctl_codes (biz_tag, alphabet, has_check, lengths, key_fingerprint, "
                "since_ms) "
                "VALUES (:tag, :alphabet, :has_check, :lengths, :key_fingerprint, {})",
                dialect.now_ms),
                soci::use(wanted.tag, "tag"), soci::use(wanted.alphabet, "alphabet"),
                soci::use(check, "has_check"), soci::use(lengths, "lengths"),
                soci::use(key, "key_fingerprint");
            kept = wanted;
            return {};
          }
          LEAF_ASSIGN_OR_RETURN(const auto extended, core::ExtendCodeRecord(*found, wanted, begin));
          kept = extended.value_or(*found);
          if (!extended) return {};
          const std::string lengths = core::CodeLengthsText(kept.lengths);
          const std::string key = KeyColumn(kept);
          session
              << "UPDATE leafctl_codes SET lengths = :lengths, key_fingerprint = :key WHERE biz_tag = :tag",
              soci::use(lengths, "lengths"), soci::use(key, "key"), soci::use(kept.tag, "tag");
          return {};
        });
  };
  auto done = keep();
  // Of two nodes that come here at once, one finds the other's row at its second try.
  if (!done.ok() && done.error().code == ErrorCode::kAlreadyExists) done = keep();
  LEAF_RETURN_IF_ERROR(std::move(done));
  return kept;
}

}  // namespace leaf::sql
