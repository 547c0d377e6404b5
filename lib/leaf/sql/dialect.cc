#include "leaf/sql/dialect.h"

#include <array>

namespace leaf::sql {
namespace {

constexpr std::array<std::string_view, 2> kMysqlSchema{
    R"(CREATE TABLE IF NOT EXISTS leaf_alloc (
  biz_tag varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  max_id bigint(20) NOT NULL DEFAULT '1',
  step int(11) NOT NULL,
  description varchar(256) CHARACTER SET utf8mb4 DEFAULT NULL,
  update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (biz_tag)
) ENGINE=InnoDB)",
    R"(CREATE TABLE IF NOT EXISTS leafctl_removed_tags (
  biz_tag varbinary(512) NOT NULL,
  max_id bigint(20) NOT NULL,
  removed_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (biz_tag)
) ENGINE=InnoDB)"};

constexpr std::array<std::string_view, 2> kSqliteSchema{
    R"(CREATE TABLE IF NOT EXISTS leaf_alloc (
  biz_tag TEXT NOT NULL PRIMARY KEY,
  max_id INTEGER NOT NULL DEFAULT 1,
  step INTEGER NOT NULL,
  description TEXT DEFAULT NULL,
  update_time TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
))",
    R"(CREATE TABLE IF NOT EXISTS leafctl_removed_tags (
  biz_tag TEXT NOT NULL PRIMARY KEY,
  max_id INTEGER NOT NULL,
  removed_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
))"};

}  // namespace

const Dialect kMysql{
    .name = "mysql",
    .begin = "START TRANSACTION",
    .for_update = " FOR UPDATE",
    .tag_matches = "biz_tag = :tag AND BINARY CONVERT(biz_tag USING utf8mb4) = :tag",
    .update_time_ms = "CAST(UNIX_TIMESTAMP(update_time) * 1000 AS SIGNED)",
    .touch = "",
    .remember_removed =
        "INSERT INTO leafctl_removed_tags (biz_tag, max_id) VALUES (:tag, :max_id) "
        "ON DUPLICATE KEY UPDATE max_id = GREATEST(max_id, VALUES(max_id))",
    .schema = kMysqlSchema,
};

const Dialect kSqlite{
    .name = "sqlite",
    // A deferred transaction that turns to writing can fail where the busy time-out no longer helps.
    .begin = "BEGIN IMMEDIATE",
    .for_update = "",
    .tag_matches = "biz_tag = :tag",
    .update_time_ms = "CAST(strftime('%s', update_time) AS INTEGER) * 1000",
    .touch = ", update_time = CURRENT_TIMESTAMP",
    .remember_removed =
        "INSERT INTO leafctl_removed_tags (biz_tag, max_id) VALUES (:tag, :max_id) "
        "ON CONFLICT (biz_tag) DO UPDATE SET max_id = max(max_id, excluded.max_id)",
    .schema = kSqliteSchema,
};

}  // namespace leaf::sql
