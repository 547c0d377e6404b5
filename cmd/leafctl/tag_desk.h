// What a daemon does for those who list and change tags over HTTP: what the tag commands do, on the daemon's
// own store, which then serves what was changed at once.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "context.h"
#include "leaf/base/logger.h"
#include "leaf/config/loader.h"
#include "leaf/embed/node.h"
#include "leaf/server/http/tag_desk.h"
#include "tag_book.h"

namespace leaf::cmd {

// Thread-safe. What it is given outlives it; the node has segment mode when it is called.
class NodeTagDesk final : public server::TagDesk {
 public:
  NodeTagDesk(CommandContext& context, const config::Resolved& resolved, embed::Node& node, Logger& log)
      : context_(context), resolved_(resolved), node_(node), log_(log) {}

  // What waits for other nodes ends soon. Once.
  void Stop() { ending_.store(true); }

  Result<Json> List(const Listing& listing) override;
  Result<Json> Show(const std::string& tag) override;
  Result<Json> History(const std::string& tag, std::uint64_t limit) override;
  Result<Json> Add(const core::NewTag& tag, const Caller& caller) override;
  Result<Outcome<Json>> Change(const std::string& tag, const core::TagChange& change,
                               const std::string& confirm, const Caller& caller) override;
  Result<Outcome<Json>> Remove(const std::string& tag, const std::string& confirm,
                               const Caller& caller) override;
  Result<Json> Repair(const std::string& tag, std::optional<std::uint64_t> to, const std::string& confirm,
                      const Caller& caller) override;
  void Paused(const std::string& tag, bool paused, const Caller& caller) override;

 private:
  using Warnings = std::vector<std::string>;

  // The store for one call. `warnings` outlives it.
  StoreBook BookFor(const std::string& who, Warnings& warnings);
  core::AuditListener Listener();
  // A change whose outcome is not known is in the log, too: it may have been made.
  template <typename Done>
  Result<Done> Watched(Result<Done> done, const std::string& who);
  Result<Json> DoRepair(const std::string& tag, std::uint64_t to, bool has_to, const std::string& confirm,
                        const Caller& caller);

  CommandContext& context_;
  const config::Resolved& resolved_;
  embed::Node& node_;
  Logger& log_;
  std::atomic<bool> ending_{false};
  std::atomic<bool> gap_told_{false};
  std::atomic<bool> repairing_{false};
};

}  // namespace leaf::cmd
