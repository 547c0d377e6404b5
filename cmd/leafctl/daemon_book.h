// The table of tags through a running daemon.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "context.h"
#include "leaf/client/daemon_client.h"
#include "tag_book.h"
#include "tag_marks.h"
#include "tag_output.h"

namespace leaf::cmd {

// Confirmations are the command's to ask for: what is asked for here is confirmed. Errors further than those
// of TagBook: kUnreachable, kPermission (changes need role admin), kDisabled for a daemon of a
// version that does not change tags.
class DaemonBook final : public TagBook {
 public:
  // Longer than a daemon lets a change take.
  static constexpr std::chrono::milliseconds kTimeout{15'000};

  // And than it waits for other nodes, if it is not told how long.
  static constexpr std::chrono::milliseconds kTimeoutWithNodes{60'000};

  // `tls`, `token`: as of DaemonClient. `timeout`: of a change, unless --timeout says otherwise; `more`: what
  // is allowed beyond that.
  DaemonBook(CommandContext& context, const std::vector<std::string>& servers, client::TlsSource tls,
             std::string token, std::chrono::milliseconds timeout = kTimeout,
             std::chrono::milliseconds more = std::chrono::milliseconds{0})
      : context_(context),
        daemon_(servers, context.flags.timeout.value_or(timeout) + more, std::move(tls), std::move(token)) {}

  Result<std::vector<core::TagRow>> List() override;
  Result<std::vector<ListedTag>> ListWithDays() override;
  Result<core::TagRow> Describe(const std::string& tag) override;
  Result<TagDetails> Show(const std::string& tag) override;
  Result<std::uint64_t> KnownMark(const std::string& tag) override;
  Result<std::vector<core::AuditLine>> History(const std::string& tag, std::uint64_t limit) override;
  Result<core::TagRow> Add(const core::NewTag& tag, core::WriteMode mode) override;
  Result<core::TagRow> Change(const std::string& tag, const core::TagChange& change,
                              core::WriteMode mode) override;
  Result<core::TagRow> Advance(const std::string& tag, std::uint64_t to, core::WriteMode mode) override;
  Result<core::TagRow> Remove(const core::TagRow& row, core::WriteMode mode) override;

  // What the daemon knows of the grants of a tag, which is `row`. What it cannot ask is in `missing`.
  Result<Evidence> PlanRepair(const core::TagRow& row);
  // Moves max_id above all that the daemon knows, and to `to` at least.
  Result<core::TagRow> Repair(const std::string& tag, std::uint64_t to, core::WriteMode mode);

 private:
  using Method = client::DaemonClient::TagMethod;
  using Effect = client::DaemonClient::Effect;
  // The answer's JSON object. `target`: below /v1/tags.
  // `effect`: of what is not kGet, nor a dry run.
  Result<Json> Ask(Method method, const std::string& target, const Json& body = nullptr,
                   Effect effect = Effect::kChanges);
  Result<core::TagRow> AskRow(Method method, const std::string& target, const Json& body = nullptr);
  Result<core::TagRow> RowOf(const Json& json) const;
  Error NotOurs() const;

  CommandContext& context_;
  client::DaemonClient daemon_;
};

}  // namespace leaf::cmd
