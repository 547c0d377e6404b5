// The durable marks of a state directory, in a small SQLite file of their own.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "leaf/base/clock.h"
#include "leaf/core/membership.h"
#include "leaf/core/ports.h"
#include "leaf/sql/database.h"
#include "leaf/sql/group_commit.h"

namespace leaf::sql {

// Thread-safe. Marks that are raised at the same time are raised in one transaction.
class SqliteMarkStore final : public core::MarkStore, public core::ClusterMemoryStore {
 public:
  // Serialises grants of a tag between processes; the file that does it is not this one's business.
  using Locker = std::function<Result<std::unique_ptr<Hold>>(std::string_view tag)>;

  // `path`: made at first use. Nothing is opened before. `writer`: what raises marks here, for people.
  SqliteMarkStore(const std::string& path, Locker locker, const Clock& clock, std::string writer);
  // Without a Locker: Acquire is not to be called. For a look at a file that exists.
  SqliteMarkStore(const SqliteOptions& options, const Clock& clock);

  Result<std::unique_ptr<Hold>> Acquire(std::string_view tag) override { return locker_(tag); }
  Result<std::vector<core::Mark>> LoadAll() override;
  Result<core::Mark> Load(std::string_view tag) override;
  Result<void> Raise(const core::MarkRaise& raise) override;
  Result<void> BeginRun() override;
  Result<void> EndRun(const std::vector<core::UnissuedIds>& unissued) override;
  Result<std::vector<core::OrderRow>> LoadOrders() override;
  Result<void> KeepOrders(const std::vector<core::OrderRow>& rows) override;

  Result<core::ClusterMemory> LoadMemory(std::string_view cluster) override;
  Result<void> SaveMemory(std::string_view cluster, const core::ClusterMemory& memory) override;
  Result<void> RaiseWitnesses(const std::vector<std::pair<std::string, std::uint64_t>>& ends) override;

  // Raises that wait for the transaction of others to end.
  std::size_t raises_waiting() const { return raises_.waiting(); }

 private:
  Result<void> EnsureTable();
  Result<void> EnsureMemoryTable();
  Result<void> EnsureOrderTable();
  // The rows of `where`, a clause on column tag with the parameter :tag, or "" for all.
  Result<std::vector<core::Mark>> Read(std::string_view what, std::string_view where, const std::string& tag);
  Result<void> RaiseAll(const std::vector<const core::MarkRaise*>& raises);

  Database database_;
  const Locker locker_;
  const Clock& clock_;
  const std::string writer_;
  std::atomic<bool> table_ready_{false};
  std::atomic<bool> has_witness_{false};  // false for an older file that may only be read
  std::atomic<bool> memory_ready_{false};
  std::atomic<bool> orders_ready_{false};
  GroupCommit<core::MarkRaise> raises_{
      [this](const std::vector<const core::MarkRaise*>& raises) { return RaiseAll(raises); }};
};

}  // namespace leaf::sql
