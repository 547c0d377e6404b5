// What happened, as an observer from outside that sees everything would have it, and the promises of
// leafctl(7) it is held to: P1 and P2 over the whole history, the others where they are broken.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaf/base/id_range.h"
#include "leaf/core/id_layout.h"
#include "sim/world.h"

namespace leaf::sim {

// Whose IDs they are.
struct Issuer {
  std::uint64_t process = 0;
  std::uint64_t node = 0;
  std::uint64_t state = 0;  // the state directory: a copy, or a new one, is another
  bool java = false;
};

class History {
 public:
  // How far P1 reaches once a database has gone back.
  enum class Scope { kNode, kCluster };

  History(const World& world, Scope scope) : world_(world), scope_(scope) {}

  // The table has been lower than it was once, on some server, or was served by two.
  void WentBack(const std::string& tag) { went_back_.insert(tag); }
  bool HasGoneBack(std::string_view tag) const { return went_back_.contains(tag); }
  // From now on `issuer` may issue `range`.
  void Granted(const Issuer& issuer, std::string_view tag, const IdRange& range);
  void Issued(const Issuer& issuer, std::string_view tag, const IdRange& range);
  // `life`: one generator, of which there is one at a time in a process. `wall`: of its node, at that moment.
  void IssuedSnowflake(const Issuer& issuer, const void* life, const IdRange& range, WallTime wall,
                       std::chrono::milliseconds window);
  // ---- P9, over all nodes
  // The order in which requests are sent and answered, of which the caller keeps the first.
  std::uint64_t Sent() { return ++moment_; }
  // A request for IDs of `tag`, of the lowest and the highest of which it was told just now.
  void Answered(const Issuer& issuer, std::string_view tag, std::uint64_t sent, std::uint64_t lowest,
                std::uint64_t highest);
  // From now on, and until now, it holds for requests that are sent.
  void OrderBegins(const std::string& tag);
  void OrderEnds(const std::string& tag);
  // Those for which it holds.
  std::vector<std::string> StrictTags() const;
  // No server has it any more that the tag is strict. Nodes that have read it keep to it; one that starts
  // cannot know, unless the witness remembers.
  void OrderLost(const std::string& tag) { order_lost_.insert(tag); }
  void EndLostOrders(const std::function<bool(const std::string&)>& remembered);

  // A promise that was found broken where it was.
  void Broken(std::string what);

  // Looks at everything there is. Once, at the end.
  void Check();

  const std::vector<std::string>& violations() const { return violations_; }
  std::uint64_t ids() const { return ids_; }
  std::uint64_t grants() const { return grants_; }
  std::uint64_t regressions() const { return went_back_.size(); }
  // Requests for IDs of a strict tag, and how many pairs of one and another that was answered before.
  std::uint64_t strict_requests() const { return strict_requests_; }
  std::uint64_t strict_pairs() const { return strict_pairs_; }
  std::uint64_t orders_begun() const { return orders_begun_; }

 private:
  struct Record {
    IdRange range;
    Issuer issuer;
    Nanos at = 0;
  };
  struct Life {
    Issuer issuer;
    std::uint64_t worker = 0;
    WallTime first;
    WallTime last;
  };
  static void Append(std::vector<Record>& records, std::map<std::uint64_t, std::size_t>& last,
                     const Record& record);
  void CheckDisjoint(std::string_view what, const std::string& tag, std::vector<Record> records);
  void CheckWithinGrants(const std::string& tag);
  void CheckLives();
  void CheckOrder(const std::string& tag);
  static std::string Describe(const Record& record);

  const World& world_;
  const Scope scope_;
  const core::IdLayout layout_;
  std::set<std::string, std::less<>> went_back_;
  struct OfTag {
    std::vector<Record> grants;
    std::vector<Record> issued;
    std::map<std::uint64_t, std::size_t> last_of;  // process → its last in `issued`
  };
  std::map<std::string, OfTag, std::less<>> tags_;
  struct Request {
    std::uint64_t sent = 0;
    std::uint64_t answered = 0;
    IdRange span;  // from its lowest to its highest
    Issuer issuer;
    Nanos at = 0;
  };
  struct Order {
    std::vector<Request> requests;                               // as they were answered
    std::vector<std::pair<std::uint64_t, std::uint64_t>> holds;  // from one moment to another; 0: to the end
  };
  std::map<std::string, Order, std::less<>> orders_;
  std::set<std::string> order_lost_;
  std::uint64_t moment_ = 0;
  std::uint64_t strict_requests_ = 0;
  std::uint64_t strict_pairs_ = 0;
  std::uint64_t orders_begun_ = 0;
  std::vector<Record> snowflakes_;
  std::map<std::uint64_t, std::size_t> last_snowflake_of_;
  std::map<std::pair<std::uint64_t, const void*>, Life> lives_;
  std::vector<std::string> violations_;
  std::uint64_t ids_ = 0;
  std::uint64_t grants_ = 0;
};

}  // namespace leaf::sim
