-- Tables that are not sharded. Ids are ASCII and compared byte by byte; titles are utf8mb4; times are epoch
-- milliseconds in bigint, so that no time zone of a server, session or process can move them (FS-034).
-- IF NOT EXISTS, because MySQL commits each statement by itself: a migration that was cut short runs again.
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS activity (
  id             varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  title          varchar(120) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  starts_at      bigint NOT NULL,
  ends_at        bigint NOT NULL,
  pay_within_s   bigint NOT NULL,
  close_grace_s  bigint NOT NULL,
  waitlist_until bigint NOT NULL,
  allow_list     tinyint NOT NULL DEFAULT 0,
  state          varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  epoch          bigint NOT NULL DEFAULT 0,
  epoch_at       bigint NOT NULL DEFAULT 0,
  boundary_epoch bigint NOT NULL DEFAULT 0,
  fence          bigint NOT NULL DEFAULT 0,
  created_at     bigint NOT NULL,
  updated_at     bigint NOT NULL,
  PRIMARY KEY (id),
  KEY idx_starts_at (starts_at)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS epoch_boundary (
  activity_id varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  epoch       bigint NOT NULL,
  `partition` int NOT NULL,
  `offset`    bigint NOT NULL,
  PRIMARY KEY (activity_id, epoch, `partition`)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS stock_table (
  activity_id  varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  commodity_id varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  position     int NOT NULL,
  title        varchar(120) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  price        decimal(10,2) NOT NULL,
  stock_total  bigint NOT NULL,
  sold_count   bigint NOT NULL DEFAULT 0,
  max_per_user int NOT NULL,
  PRIMARY KEY (activity_id, commodity_id),
  CONSTRAINT ck_stock CHECK (sold_count >= 0 AND sold_count <= stock_total)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS lease (
  name       varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  holder     varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  fence      bigint NOT NULL,
  expires_at bigint NOT NULL,
  PRIMARY KEY (name)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS waitlist (
  activity_id  varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  commodity_id varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  user_id      bigint NOT NULL,
  joined_at    bigint NOT NULL,
  state        varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  token        varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  updated_at   bigint NOT NULL,
  PRIMARY KEY (activity_id, commodity_id, user_id),
  KEY idx_head (activity_id, commodity_id, state, joined_at)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS user_list (
  activity_id varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  list        varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  user_id     bigint NOT NULL,
  added_at    bigint NOT NULL,
  PRIMARY KEY (activity_id, list, user_id)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS admin_log (
  id          bigint NOT NULL AUTO_INCREMENT,
  at          bigint NOT NULL,
  who         varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  what        varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  activity_id varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  detail      text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (id),
  KEY idx_activity_id (activity_id)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS payment (
  payment_id  varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  order_no    varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  amount      decimal(10,2) NOT NULL,
  outcome     varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  paid_at     bigint NOT NULL,
  received_at bigint NOT NULL,
  PRIMARY KEY (payment_id),
  KEY idx_order_no (order_no)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS dead_letter (
  id          bigint NOT NULL AUTO_INCREMENT,
  topic       varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `partition` int NOT NULL,
  `offset`    bigint NOT NULL,
  msg_key     varbinary(128) NOT NULL,
  msg_value   mediumblob NOT NULL,
  trace_id    varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  reason      varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  detail      text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  state       varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  replays     int NOT NULL DEFAULT 0,
  at          bigint NOT NULL,
  updated_at  bigint NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY uk_message (topic, `partition`, `offset`),
  KEY idx_state (state, at)
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE dead_letter;
DROP TABLE payment;
DROP TABLE admin_log;
DROP TABLE user_list;
DROP TABLE waitlist;
DROP TABLE lease;
DROP TABLE stock_table;
DROP TABLE epoch_boundary;
DROP TABLE activity;
