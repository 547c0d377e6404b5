// The durable marks of a state directory, in a small SQLite file of their own.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "leaf/core/ports.h"
#include "leaf/sql/database.h"

namespace leaf::sql {

// Thread-safe.
class SqliteMarkStore final : public core::MarkStore {
 public:
  // Serialises grants of a tag between processes; the file that does it is not this one's business.
  using Locker = std::function<Result<std::unique_ptr<Hold>>(std::string_view tag)>;

  // `path`: made at first use. Nothing is opened before.
  SqliteMarkStore(const std::string& path, Locker locker);

  Result<std::unique_ptr<Hold>> Acquire(std::string_view tag) override { return locker_(tag); }
  Result<std::vector<core::Mark>> LoadAll() override;
  Result<std::uint64_t> Load(std::string_view tag) override;
  Result<void> Raise(std::string_view tag, std::uint64_t end) override;

 private:
  Result<void> EnsureTable();

  Database database_;
  const Locker locker_;
  std::atomic<bool> table_ready_{false};
};

}  // namespace leaf::sql
