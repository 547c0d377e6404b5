#include "leaf/sql/dialect.h"

#include <array>

namespace leaf::sql {
namespace {

constexpr std::array<std::string_view, 9> kMysqlSchema{
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
) ENGINE=InnoDB)",
    R"(CREATE TABLE IF NOT EXISTS leaf_workerid_alloc (
  id bigint(20) NOT NULL AUTO_INCREMENT,
  ip varchar(127) DEFAULT NULL,
  port varchar(127) DEFAULT NULL,
  ip_port varchar(127) NOT NULL,
  max_timestamp bigint(20) DEFAULT NULL,
  create_time timestamp NULL DEFAULT NULL,
  update_time timestamp NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (id),
  UNIQUE KEY idx_ipport (ip_port)
) ENGINE=InnoDB)",
    R"(CREATE TABLE IF NOT EXISTS leafctl_cluster (
  one int NOT NULL,
  name varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  layout varchar(32) NOT NULL,
  epoch_ms bigint(20) NOT NULL,
  PRIMARY KEY (one)
) ENGINE=InnoDB)",
    R"(CREATE TABLE IF NOT EXISTS leafctl_workers (
  worker bigint(20) NOT NULL,
  ip_port varchar(127) NOT NULL,
  uuid varchar(64) NOT NULL,
  host varchar(255) CHARACTER SET utf8mb4 NOT NULL,
  url varchar(512) CHARACTER SET utf8mb4 NOT NULL,
  claims bigint(20) NOT NULL,
  ceiling_ms bigint(20) NOT NULL,
  reported_ms bigint(20) NOT NULL,
  since_ms bigint(20) NOT NULL,
  live int NOT NULL,
  PRIMARY KEY (worker)
) ENGINE=InnoDB)",
    R"(CREATE TABLE IF NOT EXISTS leafctl_audit (
  id bigint(20) NOT NULL AUTO_INCREMENT,
  at_ms bigint(20) NOT NULL,
  biz_tag varbinary(512) NOT NULL,
  action varchar(32) NOT NULL,
  who varchar(255) CHARACTER SET utf8mb4 NOT NULL,
  origin varchar(255) CHARACTER SET utf8mb4 NOT NULL,
  max_id_before bigint(20) DEFAULT NULL,
  max_id_after bigint(20) DEFAULT NULL,
  step_before bigint(20) DEFAULT NULL,
  step_after bigint(20) DEFAULT NULL,
  description_before varchar(256) CHARACTER SET utf8mb4 DEFAULT NULL,
  description_after varchar(256) CHARACTER SET utf8mb4 DEFAULT NULL,
  PRIMARY KEY (id),
  KEY idx_tag (biz_tag, id)
) ENGINE=InnoDB)",
    R"(CREATE TABLE IF NOT EXISTS leafctl_orders (
  biz_tag varbinary(512) NOT NULL,
  version bigint(20) NOT NULL,
  strict int NOT NULL DEFAULT 0,
  since bigint(20) DEFAULT NULL,
  PRIMARY KEY (biz_tag)
) ENGINE=InnoDB)",
    R"(CREATE TABLE IF NOT EXISTS leafctl_nodes (
  id varchar(64) NOT NULL,
  process varchar(255) CHARACTER SET utf8mb4 NOT NULL,
  place varbinary(4608) NOT NULL,
  fallback int NOT NULL,
  acknowledged bigint(20) NOT NULL,
  since_ms bigint(20) NOT NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB)",
    R"(CREATE TABLE IF NOT EXISTS leafctl_codes (
  biz_tag varbinary(512) NOT NULL,
  alphabet varchar(32) NOT NULL,
  has_check int NOT NULL,
  lengths varchar(255) NOT NULL,
  key_fingerprint varchar(64) NOT NULL,
  since_ms bigint(20) NOT NULL,
  PRIMARY KEY (biz_tag)
) ENGINE=InnoDB)"};

constexpr std::array<std::string_view, 9> kSqliteSchema{
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
))",
    R"(CREATE TABLE IF NOT EXISTS leaf_workerid_alloc (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  ip TEXT DEFAULT NULL,
  port TEXT DEFAULT NULL,
  ip_port TEXT NOT NULL UNIQUE,
  max_timestamp INTEGER DEFAULT NULL,
  create_time TEXT DEFAULT NULL,
  update_time TEXT DEFAULT NULL
))",
    R"(CREATE TABLE IF NOT EXISTS leafctl_cluster (
  one INTEGER NOT NULL PRIMARY KEY,
  name TEXT NOT NULL,
  layout TEXT NOT NULL,
  epoch_ms INTEGER NOT NULL
))",
    R"(CREATE TABLE IF NOT EXISTS leafctl_workers (
  worker INTEGER NOT NULL PRIMARY KEY,
  ip_port TEXT NOT NULL,
  uuid TEXT NOT NULL,
  host TEXT NOT NULL,
  url TEXT NOT NULL,
  claims INTEGER NOT NULL,
  ceiling_ms INTEGER NOT NULL,
  reported_ms INTEGER NOT NULL,
  since_ms INTEGER NOT NULL,
  live INTEGER NOT NULL
))",
    R"(CREATE TABLE IF NOT EXISTS leafctl_audit (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms INTEGER NOT NULL,
  biz_tag TEXT NOT NULL,
  action TEXT NOT NULL,
  who TEXT NOT NULL,
  origin TEXT NOT NULL,
  max_id_before INTEGER DEFAULT NULL,
  max_id_after INTEGER DEFAULT NULL,
  step_before INTEGER DEFAULT NULL,
  step_after INTEGER DEFAULT NULL,
  description_before TEXT DEFAULT NULL,
  description_after TEXT DEFAULT NULL,
  UNIQUE (biz_tag, id)
))",
    R"(CREATE TABLE IF NOT EXISTS leafctl_orders (
  biz_tag TEXT NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL,
  strict INTEGER NOT NULL DEFAULT 0,
  since INTEGER DEFAULT NULL
))",
    R"(CREATE TABLE IF NOT EXISTS leafctl_nodes (
  id TEXT NOT NULL PRIMARY KEY,
  process TEXT NOT NULL,
  place TEXT NOT NULL,
  fallback INTEGER NOT NULL,
  acknowledged INTEGER NOT NULL,
  since_ms INTEGER NOT NULL
))",
    R"(CREATE TABLE IF NOT EXISTS leafctl_codes (
  biz_tag TEXT NOT NULL PRIMARY KEY,
  alphabet TEXT NOT NULL,
  has_check INTEGER NOT NULL,
  lengths TEXT NOT NULL,
  key_fingerprint TEXT NOT NULL,
  since_ms INTEGER NOT NULL
))"};

}  // namespace

const Dialect kMysql{
    .name = "mysql",
    .begin = "START TRANSACTION",
    // Else a server's completion_type may begin the next transaction, and grants would be a part of it, which
    // nothing commits.
    .commit = "COMMIT AND NO CHAIN NO RELEASE",
    .rollback = "ROLLBACK AND NO CHAIN NO RELEASE",
    .for_update = " FOR UPDATE",
    .for_update_now = " FOR UPDATE NOWAIT",
    // A word since MariaDB 12.0: OFF, ON and others. As a number each word is 0.
    .read_only = "(CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF'))",
    .tag_matches = "biz_tag = :tag AND BINARY CONVERT(biz_tag USING utf8mb4) = :tag",
    .update_time_ms = "CAST(UNIX_TIMESTAMP(update_time) * 1000 AS SIGNED)",
    .touch = "",
    .raises_in_one_statement = true,
    .last_insert_id = "SELECT LAST_INSERT_ID()",
    // Not by way of local time, of which an hour comes twice in autumn.
    .now_ms = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)",
    .remember_removed =
        "INSERT INTO leafctl_removed_tags (biz_tag, max_id) VALUES (:tag, :max_id) "
        "ON DUPLICATE KEY UPDATE max_id = GREATEST(max_id, VALUES(max_id))",
    // The column since of this row has the nonce.
    .raise_orders_version =
        "INSERT INTO leafctl_orders (biz_tag, version, since) VALUES (:tag, 1, FLOOR(RAND() * 1e12)) "
        "ON DUPLICATE KEY UPDATE version = version + 1, since = VALUES(since)",
    .schema = kMysqlSchema,
};

const Dialect kSqlite{
    .name = "sqlite",
    // A deferred transaction that turns to writing can fail where the busy time-out no longer helps.
    .begin = "BEGIN IMMEDIATE",
    .commit = "COMMIT",
    .rollback = "ROLLBACK",
    .for_update = "",
    .for_update_now = "",
    .read_only = "0",
    .tag_matches = "biz_tag = :tag",
    .update_time_ms = "CAST(strftime('%s', update_time) AS INTEGER) * 1000",
    .touch = ", update_time = CURRENT_TIMESTAMP",
    .raises_in_one_statement = false,
    .last_insert_id = "SELECT last_insert_rowid()",
    .now_ms = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    .remember_removed =
        "INSERT INTO leafctl_removed_tags (biz_tag, max_id) VALUES (:tag, :max_id) "
        "ON CONFLICT (biz_tag) DO UPDATE SET max_id = max(max_id, excluded.max_id)",
    .raise_orders_version =
        "INSERT INTO leafctl_orders (biz_tag, version, since) VALUES (:tag, 1, abs(random() % "
        "1000000000000)) "
        "ON CONFLICT (biz_tag) DO UPDATE SET version = version + 1, since = excluded.since",
    .schema = kSqliteSchema,
};

}  // namespace leaf::sql
