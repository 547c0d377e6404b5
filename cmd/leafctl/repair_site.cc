#include "repair_site.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon_book.h"
#include "daemons.h"
#include "leaf/base/foreign_json.h"
#include "leaf/base/text.h"
#include "leaf/client/daemon_client.h"
#include "leaf/embed/cluster_link.h"
#include "leaf/embed/segment_adapters.h"
#include "leaf/embed/stores.h"
#include "leaf/sql/tag_orders.h"
#include "leaf/sys/process_name.h"
#include "stores.h"
#include "tag_book.h"

namespace leaf::cmd {
namespace {

class StoreSite final : public RepairSite {
 public:
  StoreSite(CommandContext& context, const config::Resolved& resolved, std::unique_ptr<Store> store)
      : context_(context),
        resolved_(resolved),
        log_(context),
        store_(std::move(store)),
        segments_(store_->database(), AuthorOfCommand("tag repair"), WarnOfGaps(context)),
        sources_(
            {.environment = context,
             .resolved = resolved,
             .segments = segments_,
             .cluster = [this, &context]() -> Result<embed::ClusterLink*> {
               LEAF_ASSIGN_OR_RETURN(cluster_,
                                     embed::ClusterLink::Open(context, log_, sys::ProcessName("tag repair")));
               return cluster_.get();
             },
             .ask_timeout = context.flags.timeout.value_or(kAskTimeout),
             .warn = [&context](const std::string& text) { context.Note("leafctl: warning: " + text); }}) {}

  Result<std::vector<core::TagRow>> List() override { return segments_.List(); }
  Result<core::TagRow> Describe(const std::string& tag) override { return segments_.Describe(tag); }
  Result<void> Open() override {
    LEAF_RETURN_IF_ERROR(sources_.Open());
    if (cluster_ == nullptr && resolved_.config.segment.store == "mysql") WarnOfOthers();
    return {};
  }
  Result<Evidence> Collect(const core::TagRow& row) override { return sources_.Collect(row); }
  Result<core::TagRow> Move(const std::string& tag, std::uint64_t to, core::WriteMode mode) override {
    return segments_.Advance(tag, to, mode, core::kAuditRepair);
  }

 private:
  // Without a witness each node knows only what it was granted itself. The list is of the nodes that run, and
  // of those that crashed; that of a restored database is of the time of the backup.
  void WarnOfOthers() {
    const auto nodes = sql::SqlTagOrders(store_->database()).Nodes();
    if (!nodes.ok()) return;
    const std::string here = embed::OrderPlaceOf(resolved_.config.state_dir);
    std::vector<std::string> others;
    for (const core::OrderNode& node : *nodes) {
      if (here.empty() || node.place != here) others.push_back(Printable(node.process));
    }
    // Which of the named servers is which node is not known here. One on this machine may be this node's own.
    const Daemons daemons = FindDaemons(resolved_);
    std::size_t named = daemons.configured ? daemons.servers.size() : 0;
    if (others.size() < nodes->size() && named > 0 &&
        std::any_of(daemons.servers.begin(), daemons.servers.end(), IsLocalUrl))
      --named;
    if (others.size() <= named) return;
    context_.Note(fmt::format(
        "leafctl: warning: the database has had other nodes ({}), and without a witness only a node knows "
        "what it was granted: name each of their daemons with --server, or run this on their machines, too, "
        "before any of them issues again",
        fmt::join(others, "; ")));
  }

  CommandContext& context_;
  const config::Resolved& resolved_;
  ContextLogger log_;
  const std::unique_ptr<Store> store_;
  sql::SqlSegmentStore segments_;
  std::unique_ptr<embed::ClusterLink> cluster_;
  MarkSources sources_;
};

// The first daemon that answers collects what it can; what the others, and this machine, know is added.
class DaemonSite final : public RepairSite {
 public:
  // A daemon asks others in its turn.
  static constexpr std::chrono::milliseconds kRepairTimeout{60'000};

  DaemonSite(CommandContext& context, const config::Resolved& resolved, std::string token)
      : context_(context),
        resolved_(resolved),
        token_(std::move(token)),
        book_(context, resolved.config.client.servers, TlsOf(resolved), token_, kRepairTimeout) {}

  Result<std::vector<core::TagRow>> List() override { return book_.List(); }
  Result<core::TagRow> Describe(const std::string& tag) override { return book_.Describe(tag); }

  Result<void> Open() override {
    LEAF_ASSIGN_OR_RETURN(const auto marks, LocalMarks(context_));
    for (const core::Mark& mark : marks) local_.emplace(mark.tag, mark);
    return {};
  }

  Result<Evidence> Collect(const core::TagRow& row) override {
    LEAF_ASSIGN_OR_RETURN(Evidence evidence, book_.PlanRepair(row));
    if (const auto local = local_.find(row.tag); local != local_.end())
      evidence.known.push_back(LocalKnownMark(resolved_.config.state_dir, local->second));
    for (const std::string& server : resolved_.config.client.servers) Ask(evidence, server);
    return evidence;
  }

  Result<core::TagRow> Move(const std::string& tag, std::uint64_t to, core::WriteMode mode) override {
    return book_.Repair(tag, to, mode);
  }

 private:
  void Ask(Evidence& evidence, const std::string& server) {
    if (const auto silent = silent_.find(server); silent != silent_.end()) {
      evidence.missing.push_back({server, silent->second});
      return;
    }
    client::DaemonClient daemon({server}, context_.flags.timeout.value_or(kAskTimeout), TlsOf(resolved_),
                                token_);
    const auto mark = AskForMark(daemon, evidence.row.tag, context_.clock);
    if (mark.ok()) return evidence.known.push_back(DaemonKnownMark(server, *mark));
    if (mark.error().code == ErrorCode::kUnreachable) silent_.emplace(server, mark.error());
    evidence.missing.push_back({server, mark.error()});
  }

  CommandContext& context_;
  const config::Resolved& resolved_;
  const std::string token_;
  DaemonBook book_;
  std::map<std::string, core::Mark> local_;
  std::map<std::string, Error> silent_;
};

bool NamesServers(const CommandContext& context) {
  return std::any_of(context.command_values.begin(), context.command_values.end(),
                     [](const config::FlagValue& value) { return value.origin == "--server"; });
}

// Whether the daemon that answers serves a database that this configuration does not name. One that says
// nothing of it is of an earlier version, and repairs nothing.
bool ServesAnotherStore(CommandContext& context, const config::Resolved& resolved, const std::string& token) {
  client::DaemonClient daemon(resolved.config.client.servers, context.flags.timeout.value_or(kAskTimeout),
                              TlsOf(resolved), token);
  const auto body = daemon.Status(client::DaemonClient::StatusTags::kNone);
  if (!body.ok()) return false;
  const Json json = ParseForeignJson<Json>(*body);
  const auto at = json.is_object() ? json.find("store_at") : json.end();
  if (!json.is_object() || at == json.end() || !at->is_string()) return false;
  if (*at != Json(StoreAt(resolved.config))) return true;
  // A file of that name on another machine is another file.
  return resolved.config.segment.store != "mysql" && !IsLocalUrl(daemon.answered_by());
}

}  // namespace

Result<std::unique_ptr<RepairSite>> OpenRepairSite(CommandContext& context, bool dry_run) {
  LEAF_ASSIGN_OR_RETURN(const config::Resolved* const resolved, context.Config());
  if (NamesServers(context)) {
    LEAF_ASSIGN_OR_RETURN(std::string token, ClientToken(*resolved));
    if (ServesAnotherStore(context, *resolved, token))
      return std::unique_ptr<RepairSite>(std::make_unique<DaemonSite>(context, *resolved, std::move(token)));
  }
  LEAF_ASSIGN_OR_RETURN(auto store, Store::Open(context, Store::AccessFor(dry_run)));
  return std::unique_ptr<RepairSite>(std::make_unique<StoreSite>(context, *resolved, std::move(store)));
}

}  // namespace leaf::cmd
