// Which callers may ask a simulated daemon, and how often: the file of tokens and the limits that its
// operators keep, and the checks that a request passes before it gets to the ID service. The checks are the
// shipped ones (access::Gate, server::Visitor, server::Issuer, service::RequestLimit). Each verdict is held
// against what file and limits say, which is kept here in another form.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/access/gate.h"
#include "leaf/base/result.h"
#include "leaf/server/issue/issuer.h"
#include "leaf/server/visitor.h"
#include "leaf/service/id_service.h"
#include "leaf/service/node.h"
#include "leaf/service/request_limit.h"
#include "sim/history.h"
#include "sim/ports.h"

namespace leaf::sim {

// A token, as the operator means it.
struct TokenRule {
  std::string name;
  std::uint64_t secret = 0;  // another one after the token was replaced
  bool takes_ids = true;     // has the role ids
  std::string patterns;      // as in the file
  std::set<std::string> tags;
  bool snowflakes = false;
  std::optional<WallTime> expires;
  std::uint64_t ids_per_second = 0;  // 0: no limit
};

struct RequestLimits {
  std::uint64_t over_all = 0;  // requests a second; 0: no limit
  std::uint64_t of_one_tag = 0;
};

// What a caller has been given: name and secret of a token that there is, was, or never was. Without a name:
// nothing.
struct Credential {
  std::string name;
  std::uint64_t secret = 0;
};

// What the operators have written down, for all nodes. A node follows it from the moment at which it loads
// it.
class AccessFiles {
 public:
  AccessFiles(World& world, std::vector<std::string> tags);

  const std::map<std::string, TokenRule>& tokens() const { return tokens_; }
  const RequestLimits& limits() const { return limits_; }
  bool anonymous_takes_ids() const { return anonymous_takes_ids_; }
  std::size_t tag_count() const { return tags_.size(); }
  // As auth.tokens_file has it.
  std::string TokenFile() const;
  // One change of the tokens or of the limits, drawn.
  void Change();
  // What a caller may hold: mostly a token that there is.
  Credential DrawCredential();

 private:
  void DrawRights(TokenRule& rule);

  World& world_;
  const std::vector<std::string> tags_;
  std::map<std::string, TokenRule> tokens_;
  RequestLimits limits_;
  bool anonymous_takes_ids_ = false;
  std::uint64_t next_secret_ = 1;
};

// How far a rate is used up, in seconds: a bucket that leaks a second each second.
class Meter {
 public:
  double At(MonotonicTime now) const;
  void Add(MonotonicTime now, double seconds);
  // To at least `least`.
  void Raise(MonotonicTime now, double least) { Add(now, std::max(0.0, least - At(now))); }
  void Cap(double most) { level_ = std::min(level_, most); }

 private:
  double level_ = 0;
  MonotonicTime at_{};
};

// The checks of one daemon.
class Door {
 public:
  // All of it outlives the door. `keeps_tags`: no tag is forgotten, with what was used of its limit.
  Door(World& world, const AccessFiles& files, const Machine& machine, History& history, std::uint64_t number,
       bool keeps_tags);

  // The modes are there. Before the first request.
  void Open(service::Node& node);
  // As at the start, and at SIGHUP.
  void Load();

  // A connection, and what its caller holds.
  struct Visit {
    Visit(const Door& door, Credential its_credential);
    server::Visitor visitor;
    Credential credential;
    std::string header;
  };
  // A request for `count` IDs of `tag` ("" for snowflake). The error to answer with, if it may not pass.
  std::optional<Error> Ask(Visit& visit, const std::string& tag, std::uint64_t count);
  // The same from the daemon's own user over its Unix socket, to which limits do not matter here.
  void CheckOwner(const std::string& tag);

 private:
  // What the file that was loaded last says of a caller.
  struct Rights {
    bool may_take = false;
    const TokenRule* rule = nullptr;  // null: without a token
  };
  Rights RightsOf(const Credential& credential, const std::string& tag) const;
  // Whether `seconds` more are within `most`; nothing where the two are too near to tell.
  static std::optional<bool> Fits(double level, double seconds, double most);
  void CheckToken(const Visit& visit, const std::string& tag, std::uint64_t count,
                  const std::optional<Error>& error);
  void CheckLimits(const std::string& tag, bool is_known, const std::optional<Error>& error);
  void CheckTagLimit(const std::string& tag, bool is_known, bool refused);
  void CheckLimitOverAll(const std::string& tag, bool is_known, bool refused);
  void Broken(std::string_view promise, const Visit* visit, const std::string& tag,
              std::string_view what) const;

  World& world_;
  const AccessFiles& files_;
  const Machine& machine_;
  History& history_;
  const std::uint64_t number_;
  const bool keeps_tags_;
  access::Gate gate_;
  service::RequestLimit limit_;
  std::optional<service::IdService> ids_;
  std::optional<server::Issuer> issuer_;
  std::optional<MonotonicTime> unknown_at_;  // when a tag was asked for last that was not known
  // As they were loaded last.
  std::map<std::string, TokenRule> tokens_;
  RequestLimits limits_;
  bool anonymous_takes_ids_ = false;
  std::map<std::string, Meter> of_token_;
  Meter over_all_;
  std::map<std::string, Meter> least_of_tag_;  // of the limit of one tag: at least, and at most
  std::map<std::string, Meter> most_of_tag_;
  std::map<std::string, Meter>
      fair_of_;  // of a share of the limit over all; "" for snowflake, "?" for others
};

}  // namespace leaf::sim
