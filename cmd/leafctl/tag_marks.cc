#include "tag_marks.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "confirm.h"
#include "leaf/base/endpoint.h"
#include "leaf/base/foreign_json.h"
#include "leaf/base/text.h"
#include "leaf/base/time.h"
#include "leaf/client/daemon_client.h"
#include "leaf/embed/stores.h"
#include "leaf/sys/process_name.h"
#include "stores.h"

namespace leaf::cmd {
namespace {

Json MarksJson(const Evidence& evidence) {
  const auto text = [](const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); };
  Json marks = Json::array();
  for (const KnownMark& mark : evidence.known) {
    const bool known = mark.end > 0;
    marks.push_back({{"where", mark.where},
                     {"end", known ? Json(std::to_string(mark.end)) : Json(nullptr)},
                     {"raised_at", known ? text(mark.raised_at) : Json(nullptr)},
                     {"raised_by", known ? text(mark.raised_by) : Json(nullptr)},
                     {"frozen_since", text(mark.frozen_since)},
                     {"max_id_seen", text(mark.max_id_seen)}});
  }
  return marks;
}

// Certainly: no name that begins like a loopback address is one.
bool IsOfThisMachine(std::string_view url) {
  if (url.starts_with("unix:")) return true;
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return false;
  const auto endpoint = ParseEndpoint(url.substr(kScheme.size()), 80);
  if (!endpoint.ok()) return false;
  in_addr address{};
  return endpoint->host == "localhost" || endpoint->host == "::1" ||
         (inet_pton(AF_INET, endpoint->host.c_str(), &address) == 1 && endpoint->host.starts_with("127."));
}

}  // namespace

bool IsLocalUrl(const std::string& url) {
  if (url.starts_with("unix:")) return true;
  constexpr std::string_view kScheme = "://";
  const std::size_t scheme = url.find(kScheme);
  if (scheme == std::string::npos) return false;
  const std::string_view rest = std::string_view(url).substr(scheme + kScheme.size());
  // As a whole: a name that begins with "127." or "localhost" may be any machine's.
  const auto endpoint = ParseEndpoint(rest.substr(0, rest.find('/')), 1);
  return endpoint.ok() && (IsLoopbackHost(endpoint->host) || IsWildcardHost(endpoint->host));
}

KnownMark LocalKnownMark(const std::string& state_dir, const core::Mark& mark) {
  return {fmt::format("state directory {}", state_dir),
          mark.end,
          FormatRfc3339(mark.raised_at),
          mark.raised_by,
          "",
          ""};
}

KnownMark DaemonKnownMark(const std::string& name, const client::NodeMark& mark) {
  return {fmt::format("daemon at {}", name),
          mark.end,
          mark.raised_at,
          mark.raised_by,
          mark.frozen_since,
          mark.max_id_seen};
}

Result<client::NodeMark> AskForMark(client::DaemonClient& daemon, const std::string& tag, const Clock& clock,
                                    const std::function<bool()>& ending) {
  constexpr std::chrono::milliseconds kAgain{100};
  constexpr std::chrono::seconds kPatience{30};
  const MonotonicTime deadline = clock.Monotonic() + kPatience;
  while (true) {
    auto mark = daemon.Mark(tag);
    if (mark.ok() || mark.error().code != ErrorCode::kLimited || clock.Monotonic() >= deadline ||
        (ending && ending()))
      return mark;
    clock.WaitUntil(clock.Monotonic() + kAgain);
  }
}

Result<void> MarkSources::Open() {
  LEAF_ASSIGN_OR_RETURN(token_, ClientToken(ports_.resolved));
  LEAF_ASSIGN_OR_RETURN(const auto marks, embed::LocalMarks(ports_.environment));
  for (const core::Mark& mark : marks) local_.emplace(mark.tag, mark);
  LEAF_ASSIGN_OR_RETURN(cluster_, ports_.cluster());
  if (cluster_ != nullptr && ports_.resolved.config.segment.witness_fallback) {
    ports_.warn(
        "with segment.witness_fallback, a daemon that is cut off from ZooKeeper is not "
        "listed there and may have grants that the witness does not know: name it with --server");
  }
  return {};
}

Result<Evidence> MarkSources::Collect(const core::TagRow& row) {
  Evidence evidence{row, {}, {}};
  KnownMark local{fmt::format("state directory {}", ports_.resolved.config.state_dir), 0, "", "", "", ""};
  if (const auto found = local_.find(row.tag); found != local_.end())
    local = LocalKnownMark(ports_.resolved.config.state_dir, found->second);
  evidence.known.push_back(std::move(local));
  LEAF_ASSIGN_OR_RETURN(const std::uint64_t removed, ports_.segments.RemovedMark(row.tag));
  evidence.known.push_back(
      {"table leafctl_removed_tags", removed, "", "a tag of this name that was removed", "", ""});
  asked_.clear();
  // A default socket at which no daemon answers holds no mark.
  for (const std::string& server : daemons_.servers) Ask(evidence, {server}, server, !daemons_.configured);
  if (cluster_ != nullptr) AskCluster(evidence);
  return evidence;
}

void MarkSources::AskCluster(Evidence& evidence) {
  const auto state = cluster_->witness().Load(evidence.row.tag);
  if (state.ok()) {
    evidence.known.push_back({fmt::format("witness in {}", cluster_->name()), state->end,
                              FormatRfc3339(state->raised_at), state->raised_by, "", ""});
  } else {
    evidence.missing.push_back({fmt::format("the witness in {}", cluster_->name()), state.error()});
  }
  if (!registered_) registered_ = cluster_->Daemons();
  if (!registered_->ok()) {
    evidence.missing.push_back({"the daemons of the cluster", registered_->error()});
    return;
  }
  for (const zookeeper::DaemonRecord& daemon : **registered_) AskRegistered(evidence, daemon);
}

void MarkSources::AskRegistered(Evidence& evidence, const zookeeper::DaemonRecord& daemon) {
  // A socket, or a loopback address, of another machine means another daemon here.
  const bool here = daemon.host == sys::HostName();
  std::vector<std::string> urls;
  for (const std::string& url : daemon.urls) {
    if (here || !IsLocalUrl(url)) urls.push_back(url);
  }
  const std::string name = fmt::format("{} ({})", fmt::join(daemon.urls, ", "), daemon.process);
  if (urls.empty()) {
    evidence.missing.push_back({name, {ErrorCode::kUnreachable, "it answers on its own machine only", ""}});
    return;
  }
  if (std::any_of(urls.begin(), urls.end(), [&](const auto& url) { return asked_.count(url) > 0; })) return;
  Ask(evidence, urls, name, false);
}

void MarkSources::Ask(Evidence& evidence, const std::vector<std::string>& urls, const std::string& name,
                      bool may_be_absent) {
  if (const auto silent = silent_.find(name); silent != silent_.end()) {
    if (!may_be_absent) evidence.missing.push_back({name, silent->second});
    return;
  }
  if (ports_.ending && ports_.ending()) {
    evidence.missing.push_back({name, {ErrorCode::kUnavailable, "this daemon ends", ""}});
    return;
  }
  const auto [servers, token] = WhomToAsk(urls);
  client::DaemonClient daemon(servers, ports_.ask_timeout, TlsOf(ports_.resolved), token);
  auto mark = AskForMark(daemon, evidence.row.tag, ports_.environment.ClockInUse(), ports_.ending);
  if (!mark.ok() && mark.error().code == ErrorCode::kPermission && !token_.empty() && token.empty()) {
    mark = Error{
        mark.error().code,
        fmt::format("{}; the token of this configuration is not sent to it, since ZooKeeper alone names "
                    "this address",
                    mark.error().message),
        "name it in client.servers, or with --server; or use TLS, and set client.ca"};
  }
  if (!mark.ok()) {
    // Not waited for again, tag by tag.
    if (mark.error().code == ErrorCode::kUnreachable) silent_.emplace(name, mark.error());
    if (!may_be_absent || mark.error().code != ErrorCode::kUnreachable)
      evidence.missing.push_back({name, mark.error()});
    return;
  }
  asked_.insert(urls.begin(), urls.end());
  evidence.known.push_back(DaemonKnownMark(may_be_absent ? NameOf(daemon, name) : name, *mark));
}

// A default socket is a daemon's of this machine, of this store or not. A mark of another one is counted,
// since one database has several names, but it says so.
std::string MarkSources::NameOf(client::DaemonClient& daemon, const std::string& name) const {
  const auto body = daemon.Status(client::DaemonClient::StatusTags::kNone);
  const Json json = body.ok() ? ParseForeignJson<Json>(*body) : Json();
  const auto store = json.is_object() ? json.find("store_at") : json.end();
  if (!json.is_object() || store == json.end() || *store == Json(StoreAt(ports_.resolved.config)))
    return name;
  const std::string where = store->is_string() ? Printable(store->get<std::string>()) : "none";
  return fmt::format("{}, which serves another store ({})", name, where);
}

// A token may go to the servers that an operator has named, to this machine, and over TLS where an authority
// is named, too. ZooKeeper is no such name: what may write there could have the token sent to itself, with a
// certificate that the system's authorities know. So of several addresses of one daemon only those are asked.
MarkSources::Asked MarkSources::WhomToAsk(const std::vector<std::string>& urls) const {
  const auto may_have = [this](const std::string& url) {
    return IsOfThisMachine(url) || (url.starts_with("https:") && !ports_.resolved.config.client.ca.empty()) ||
           std::find(daemons_.servers.begin(), daemons_.servers.end(), url) != daemons_.servers.end();
  };
  std::vector<std::string> named;
  std::copy_if(urls.begin(), urls.end(), std::back_inserter(named), may_have);
  return named.empty() || token_.empty() ? Asked{urls, named.empty() ? "" : token_} : Asked{named, token_};
}

Json RepairJson(const Evidence& evidence, const core::TagRow& row) {
  Json json = TagJson(row);
  json["max_id_before"] = std::to_string(evidence.row.max_id);
  json["marks"] = MarksJson(evidence);
  json["unknown"] = Json::array();
  for (const Missing& missing : evidence.missing)
    json["unknown"].push_back({{"whose", missing.whose}, {"message", missing.why.message}});
  return json;
}

std::string MissingText(const Missing& missing) {
  return fmt::format("the mark of {} is not known: {}", missing.whose, missing.why.message);
}

Error RefusalOf(const std::string& what, const Missing& missing, const std::string& tag) {
  return {ErrorCode::kRefused,
          fmt::format("cannot repair {}: the mark of {} is not known: {}", what, missing.whose,
                      missing.why.message),
          "restore access to it, or name a value above everything it may hold: " +
              TagCommand("repair", tag, "--to N " + ConfirmFlag(tag))};
}

std::string MoveText(const Evidence& evidence, std::uint64_t target) {
  return fmt::format("move tag {} from {} to {}", Quoted(evidence.row.tag), evidence.row.max_id, target);
}

}  // namespace leaf::cmd
