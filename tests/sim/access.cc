#include "sim/access.h"

#include <fmt/format.h>

#include <algorithm>

#include "leaf/access/token_file.h"
#include "leaf/base/check.h"
#include "leaf/base/time.h"

namespace leaf::sim {
namespace {

constexpr uid_t kOwner = 1000;
constexpr double kSlack = 1e-6;

std::string TokenOf(const Credential& credential) {
  return fmt::format("leaf_{}_{}", credential.name, credential.secret);
}

// As the shipped buckets count: each takes a whole number of sixteenths of a nanosecond.
double Seconds(std::uint64_t count, std::uint64_t per_second) {
  constexpr std::uint64_t kTicks = 16'000'000'000;
  return static_cast<double>(count * (kTicks / per_second)) / static_cast<double>(kTicks);
}

std::string HexOf(const access::TokenHash& hash) {
  std::string text;
  for (const unsigned char byte : hash) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

// ---- what operators keep

AccessFiles::AccessFiles(World& world, std::vector<std::string> tags)
    : world_(world), tags_(std::move(tags)), anonymous_takes_ids_(world.dice().Chance(0.3)) {
  for (int i = 0; i < 4; ++i) Change();
}

void AccessFiles::DrawRights(TokenRule& rule) {
  Dice& dice = world_.dice();
  rule.takes_ids = dice.Chance(0.9);
  rule.tags.clear();
  rule.patterns.clear();
  const auto add = [&](const std::string& pattern, const auto& matches) {
    rule.patterns += (rule.patterns.empty() ? "" : ",") + pattern;
    for (const std::string& tag : tags_) {
      if (matches(tag)) rule.tags.insert(tag);
    }
  };
  do {
    const std::string& tag = tags_[dice.Below(tags_.size())];
    const double kind = dice.Real();
    if (kind < 0.6) {
      add(tag, [&](const std::string& other) { return other == tag; });
    } else if (kind < 0.8) {
      const std::string begin = tag.substr(0, 1);
      add(begin + "*", [&](const std::string& other) { return other.starts_with(begin); });
    } else {
      const std::string end = tag.substr(tag.size() - 1);
      add("*" + end, [&](const std::string& other) { return other.ends_with(end); });
    }
  } while (dice.Chance(0.4));
  const bool all = dice.Chance(0.3);
  if (all) add("*", [](const std::string&) { return true; });
  rule.snowflakes = all || dice.Chance(0.4);
}

void AccessFiles::Change() {
  Dice& dice = world_.dice();
  if (dice.Chance(0.3)) {
    limits_.over_all = dice.Chance(0.3) ? 0 : static_cast<std::uint64_t>(dice.Between(5, 300));
    limits_.of_one_tag = dice.Chance(0.3) ? 0 : static_cast<std::uint64_t>(dice.Between(1, 40));
    return;
  }
  const std::string name = fmt::format("app-{}", dice.Below(4));
  const auto found = tokens_.find(name);
  if (found == tokens_.end()) {
    TokenRule rule;
    rule.name = name;
    rule.secret = next_secret_++;
    DrawRights(rule);
    if (dice.Chance(0.5)) rule.ids_per_second = static_cast<std::uint64_t>(dice.Between(1, 2000));
    tokens_.emplace(name, std::move(rule));
    return;
  }
  TokenRule& rule = found->second;
  switch (dice.Below(5)) {
    case 0:
      tokens_.erase(found);
      break;
    case 1:
      rule.secret = next_secret_++;
      break;
    case 2:
      rule.ids_per_second = dice.Chance(0.3) ? 0 : static_cast<std::uint64_t>(dice.Between(1, 2000));
      break;
    case 3:
      rule.expires.reset();
      if (dice.Chance(0.7))
        rule.expires = TrueWall(world_) + std::chrono::milliseconds{dice.Between(-1000, 20'000)};
      break;
    default:
      DrawRights(rule);
  }
}

std::string AccessFiles::TokenFile() const {
  std::string text = "# name, and what it may do\n";
  for (const auto& [name, rule] : tokens_) {
    text += fmt::format("{} roles={} tags={} snowflakes={}", name, rule.takes_ids ? "ids" : "read",
                        rule.patterns, rule.snowflakes ? "yes" : "no");
    if (rule.expires) text += " expires=" + FormatRfc3339(*rule.expires);
    if (rule.ids_per_second > 0) text += fmt::format(" ids_per_second={}", rule.ids_per_second);
    text += " sha256=" + HexOf(access::HashOf(TokenOf({name, rule.secret}))) + "\n";
  }
  return text;
}

Credential AccessFiles::DrawCredential() {
  Dice& dice = world_.dice();
  const double kind = dice.Real();
  if (kind < 0.1) return {};
  const std::string name = fmt::format("app-{}", dice.Below(4));
  const auto found = tokens_.find(name);
  // One that was replaced, or is not there yet.
  if (kind < 0.2 || found == tokens_.end()) return {name, dice.Below(next_secret_) + 1};
  return {name, found->second.secret};
}

// ---- what was used of a rate

double Meter::At(MonotonicTime now) const {
  return std::max(0.0, level_ - std::chrono::duration<double>(now - at_).count());
}

void Meter::Add(MonotonicTime now, double seconds) {
  level_ = At(now) + seconds;
  at_ = now;
}

// ---- the checks of a daemon

Door::Door(World& world, const AccessFiles& files, const Machine& machine, History& history,
           std::uint64_t number, bool keeps_tags)
    : world_(world),
      files_(files),
      machine_(machine),
      history_(history),
      number_(number),
      keeps_tags_(keeps_tags),
      gate_(kOwner),
      limit_(machine) {}

void Door::Open(service::Node& node) {
  ids_.emplace(node.segment(), node.snowflake());
  issuer_.emplace(server::IssuerOptions{.limit = &limit_}, *ids_);
}

void Door::Load() {
  const auto tokens = access::ParseTokenFile(files_.TokenFile());
  LEAF_CHECK(tokens.ok());
  access::Roles anonymous{access::Role::kRead};
  if (files_.anonymous_takes_ids()) anonymous.Add(access::Role::kIds);
  gate_.Set(*tokens, true, anonymous);
  limit_.Set(files_.limits().over_all, files_.limits().of_one_tag);
  // A token with its old name and limit goes on with what it has used of it.
  for (const auto& [name, rule] : tokens_) {
    const auto now = files_.tokens().find(name);
    if (now == files_.tokens().end() || now->second.ids_per_second != rule.ids_per_second)
      of_token_.erase(name);
  }
  tokens_ = files_.tokens();
  limits_ = files_.limits();
  anonymous_takes_ids_ = files_.anonymous_takes_ids();
}

Door::Visit::Visit(const Door& door, Credential its_credential)
    : visitor(door.gate_, door.machine_, std::nullopt),
      credential(std::move(its_credential)),
      header(credential.name.empty() ? "" : "Bearer " + TokenOf(credential)) {}

void Door::Broken(std::string_view promise, const Visit* visit, const std::string& tag,
                  std::string_view what) const {
  std::string caller = "a caller";
  if (visit != nullptr) {
    caller = visit->credential.name.empty()
                 ? "a caller without a token"
                 : fmt::format("token {} ({})", visit->credential.name, visit->credential.secret);
  }
  history_.Broken(fmt::format("{}: node {}: {} asks for {}: {}", promise, number_, caller,
                              tag.empty() ? "snowflake IDs" : tag, what));
}

Door::Rights Door::RightsOf(const Credential& credential, const std::string& tag) const {
  if (credential.name.empty()) return {anonymous_takes_ids_, nullptr};
  const auto found = tokens_.find(credential.name);
  if (found == tokens_.end() || found->second.secret != credential.secret) return {};
  const TokenRule& rule = found->second;
  if (rule.expires && *rule.expires <= machine_.Wall()) return {};
  return {rule.takes_ids && (tag.empty() ? rule.snowflakes : rule.tags.contains(tag)), &rule};
}

std::optional<bool> Door::Fits(double level, double seconds, double most) {
  if (level + seconds <= most - kSlack) return true;
  if (level + seconds > most + kSlack) return false;
  return std::nullopt;
}

std::optional<Error> Door::Ask(Visit& visit, const std::string& tag, std::uint64_t count) {
  const access::Caller& caller = visit.visitor.Identify(visit.header);
  std::optional<Error> error;
  // As the servers do before they look at anything else.
  if (!caller.roles.Has(access::Role::kIds)) error = Error{ErrorCode::kPermission, "no role ids", ""};
  if (!error) error = caller.RefuseIds(tag, count, machine_);
  CheckToken(visit, tag, count, error);
  if (error) return error;
  server::IdRequest request;
  request.source = tag.empty() ? server::IdSource::kSnowflake : server::IdSource::kSegment;
  request.tag = tag;
  request.count = count;
  const bool is_known = !tag.empty() && ids_->segment()->StatusOf(tag).has_value();
  error = issuer_->Refuse(request);
  CheckLimits(tag, is_known, error);
  return error;
}

void Door::CheckOwner(const std::string& tag) {
  server::Visitor visitor(gate_, machine_, kOwner);
  const access::Caller& caller = visitor.Identify("");
  if (!caller.roles.Has(access::Role::kIds) || caller.RefuseIds(tag, 1, machine_))
    Broken("access", nullptr, tag, "the owner of the daemon is refused");
}

void Door::CheckToken(const Visit& visit, const std::string& tag, std::uint64_t count,
                      const std::optional<Error>& error) {
  const Rights rights = RightsOf(visit.credential, tag);
  if (!rights.may_take) {
    if (!error || error->code != ErrorCode::kPermission)
      Broken("access", &visit, tag, "it is let in, and has no right to them");
    return;
  }
  if (error && error->code == ErrorCode::kPermission)
    return Broken("access", &visit, tag, "it is refused, and has the right: " + error->message);
  const std::uint64_t limit = rights.rule == nullptr ? 0 : rights.rule->ids_per_second;
  if (limit == 0) {
    if (error) Broken("access", &visit, tag, "it has no limit: " + error->message);
    return;
  }
  if (count > limit) {
    if (!error || error->code != ErrorCode::kTooLarge)
      Broken("access", &visit, tag, fmt::format("{} IDs are over its limit of {}", count, limit));
    return;
  }
  Meter& used = of_token_[visit.credential.name];
  const MonotonicTime now = machine_.Monotonic();
  const double seconds = Seconds(count, limit);
  const auto fits = Fits(used.At(now), seconds, 1);
  if (!error) used.Add(now, seconds);
  if (fits && *fits == error.has_value()) {
    Broken("access", &visit, tag,
           fmt::format("{} of {} IDs a second, after {:.6f} seconds' worth: {}", count, limit,
                       used.At(now) - (error ? 0 : seconds), error ? error->message : "let in"));
  }
}

void Door::CheckLimits(const std::string& tag, bool is_known, const std::optional<Error>& error) {
  if (error && error->code != ErrorCode::kLimited)
    return Broken("access", nullptr, tag, "refused although the mode is on: " + error->message);
  const bool over_tag = error && error->message.find("for tag") != std::string::npos;
  if (over_tag && (tag.empty() || limits_.of_one_tag == 0))
    return Broken("access", nullptr, tag, "refused, and there is no limit for one tag: " + error->message);
  if (!tag.empty() && limits_.of_one_tag > 0 && keeps_tags_) CheckTagLimit(tag, is_known, over_tag);
  if (over_tag) return;
  if (limits_.over_all > 0) return CheckLimitOverAll(tag, is_known, error.has_value());
  if (error) Broken("access", nullptr, tag, "refused, and there is no limit: " + error->message);
}

// A name that is still being looked up may be counted for itself, or among all that are not known.
void Door::CheckTagLimit(const std::string& tag, bool is_known, bool refused) {
  const MonotonicTime now = machine_.Monotonic();
  const double seconds = Seconds(1, limits_.of_one_tag);
  Meter& least = least_of_tag_[tag];
  Meter& most = most_of_tag_[tag];
  const bool may_refuse = !Fits(most.At(now), seconds, 1).value_or(false);
  const bool may_admit = !is_known || Fits(least.At(now), seconds, 1).value_or(true);
  if (refused ? !may_refuse : !may_admit) {
    Broken("access", nullptr, tag,
           fmt::format("{} after {:.6f} to {:.6f} seconds' worth of {} a second for one tag",
                       refused ? "refused" : "let in", least.At(now), most.At(now), limits_.of_one_tag));
  }
  if (refused) return;
  if (is_known) least.Add(now, seconds);
  most.Add(now, seconds);
  most.Cap(std::max(1.0, seconds));
}

void Door::CheckLimitOverAll(const std::string& tag, bool is_known, bool refused) {
  const MonotonicTime now = machine_.Monotonic();
  const double seconds = Seconds(1, limits_.over_all);
  const double level = over_all_.At(now);
  // The smallest that a share can be: what is within this one is within any. While names are looked up, each
  // look-up of a name counts as a user of its own, and shares are smaller: all may be used up then.
  const bool is_looked_up = !is_known && !tag.empty();
  if (is_looked_up) unknown_at_ = now;
  const double of_share = seconds * static_cast<double>(files_.tag_count() + 2);
  const double most = std::max(1.0, of_share);
  const auto add = [&](const std::string& share) {
    Meter& used = fair_of_[share];
    if (unknown_at_) {
      const double since = std::chrono::duration<double>(now - *unknown_at_).count();
      // For two seconds more the look-ups are counted as users.
      used.Raise(now, std::max(0.0, 2 + std::max(1.0, 4 * of_share) - since));
    }
    const double before = used.At(now);
    used.Add(now, of_share);
    // After a change of the limit it may hold more than it could take now.
    used.Cap(std::max(before, most));
    const bool fits = Fits(before, of_share, most).value_or(false);
    return fits;
  };
  const bool fits = add(tag);
  const bool is_fair = fits && keeps_tags_;
  if (is_looked_up) add("?");
  // A tag within its share may go as much below empty as the bucket holds.
  if (refused ? Fits(level, seconds, is_fair ? 2 : 1).value_or(false)
              : !Fits(level, seconds, 2).value_or(true)) {
    Broken("access", nullptr, tag,
           fmt::format("{} after {:.6f} seconds' worth of {} a second{}", refused ? "refused" : "let in",
                       level, limits_.over_all, is_fair ? ", within the share of the tag" : ""));
  }
  if (!refused) over_all_.Add(now, seconds);
}

}  // namespace leaf::sim
