-- The tables leafctl uses on MySQL and MariaDB: what `leafctl db init --print-sql --set segment.store=mysql` prints.
CREATE TABLE IF NOT EXISTS leaf_alloc (
  biz_tag varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  max_id bigint(20) NOT NULL DEFAULT '1',
  step int(11) NOT NULL,
  description varchar(256) CHARACTER SET utf8mb4 DEFAULT NULL,
  update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (biz_tag)
) ENGINE=InnoDB;
CREATE TABLE IF NOT EXISTS leafctl_removed_tags (
  biz_tag varbinary(512) NOT NULL,
  max_id bigint(20) NOT NULL,
  removed_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (biz_tag)
) ENGINE=InnoDB;
CREATE TABLE IF NOT EXISTS leaf_workerid_alloc (
  id bigint(20) NOT NULL AUTO_INCREMENT,
  ip varchar(127) DEFAULT NULL,
  port varchar(127) DEFAULT NULL,
  ip_port varchar(127) NOT NULL,
  max_timestamp bigint(20) DEFAULT NULL,
  create_time timestamp NULL DEFAULT NULL,
  update_time timestamp NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (id),
  UNIQUE KEY idx_ipport (ip_port)
) ENGINE=InnoDB;
CREATE TABLE IF NOT EXISTS leafctl_cluster (
  one int NOT NULL,
  name varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  layout varchar(32) NOT NULL,
  epoch_ms bigint(20) NOT NULL,
  PRIMARY KEY (one)
) ENGINE=InnoDB;
CREATE TABLE IF NOT EXISTS leafctl_workers (
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
) ENGINE=InnoDB;
CREATE TABLE IF NOT EXISTS leafctl_audit (
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
) ENGINE=InnoDB;
CREATE TABLE IF NOT EXISTS leafctl_orders (
  biz_tag varbinary(512) NOT NULL,
  version bigint(20) NOT NULL,
  strict int NOT NULL DEFAULT 0,
  since bigint(20) DEFAULT NULL,
  PRIMARY KEY (biz_tag)
) ENGINE=InnoDB;
CREATE TABLE IF NOT EXISTS leafctl_nodes (
  id varchar(64) NOT NULL,
  process varchar(255) CHARACTER SET utf8mb4 NOT NULL,
  place varbinary(4608) NOT NULL,
  fallback int NOT NULL,
  acknowledged bigint(20) NOT NULL,
  since_ms bigint(20) NOT NULL,
  PRIMARY KEY (id)
) ENGINE=InnoDB;
CREATE TABLE IF NOT EXISTS leafctl_codes (
  biz_tag varbinary(512) NOT NULL,
  alphabet varchar(32) NOT NULL,
  has_check int NOT NULL,
  lengths varchar(255) NOT NULL,
  key_fingerprint varchar(64) NOT NULL,
  since_ms bigint(20) NOT NULL,
  PRIMARY KEY (biz_tag)
) ENGINE=InnoDB;
