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
