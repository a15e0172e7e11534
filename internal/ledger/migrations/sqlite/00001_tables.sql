-- The same tables as for MySQL. TEXT compares byte by byte; money is TEXT with two places, never REAL (FS-060);
-- times are epoch milliseconds.
-- +goose Up
CREATE TABLE activity (
  id             TEXT NOT NULL PRIMARY KEY,
  title          TEXT NOT NULL,
  starts_at      INTEGER NOT NULL,
  ends_at        INTEGER NOT NULL,
  pay_within_s   INTEGER NOT NULL,
  close_grace_s  INTEGER NOT NULL,
  waitlist_until INTEGER NOT NULL,
  allow_list     INTEGER NOT NULL DEFAULT 0,
  state          TEXT NOT NULL,
  epoch          INTEGER NOT NULL DEFAULT 0,
  epoch_at       INTEGER NOT NULL DEFAULT 0,
  boundary_epoch INTEGER NOT NULL DEFAULT 0,
  fence          INTEGER NOT NULL DEFAULT 0,
  created_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL
) STRICT;
CREATE INDEX idx_activity_starts_at ON activity (starts_at);

CREATE TABLE epoch_boundary (
  activity_id TEXT NOT NULL,
  epoch       INTEGER NOT NULL,
  `partition` INTEGER NOT NULL,
  `offset`    INTEGER NOT NULL,
  PRIMARY KEY (activity_id, epoch, `partition`)
) STRICT, WITHOUT ROWID;

CREATE TABLE stock_table (
  activity_id  TEXT NOT NULL,
  commodity_id TEXT NOT NULL,
  position     INTEGER NOT NULL,
  title        TEXT NOT NULL,
  price        TEXT NOT NULL,
  stock_total  INTEGER NOT NULL,
  sold_count   INTEGER NOT NULL DEFAULT 0,
  max_per_user INTEGER NOT NULL,
  PRIMARY KEY (activity_id, commodity_id),
  CONSTRAINT ck_stock CHECK (sold_count >= 0 AND sold_count <= stock_total)
) STRICT, WITHOUT ROWID;

CREATE TABLE lease (
  name       TEXT NOT NULL PRIMARY KEY,
  holder     TEXT NOT NULL,
  fence      INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE waitlist (
  activity_id  TEXT NOT NULL,
  commodity_id TEXT NOT NULL,
  user_id      INTEGER NOT NULL,
  joined_at    INTEGER NOT NULL,
  state        TEXT NOT NULL,
  token        TEXT NOT NULL DEFAULT '',
  updated_at   INTEGER NOT NULL,
  PRIMARY KEY (activity_id, commodity_id, user_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_waitlist_head ON waitlist (activity_id, commodity_id, state, joined_at);

CREATE TABLE user_list (
  activity_id TEXT NOT NULL,
  list        TEXT NOT NULL,
  user_id     INTEGER NOT NULL,
  added_at    INTEGER NOT NULL,
  PRIMARY KEY (activity_id, list, user_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE admin_log (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  at          INTEGER NOT NULL,
  who         TEXT NOT NULL,
  what        TEXT NOT NULL,
  activity_id TEXT NOT NULL,
  detail      TEXT NOT NULL
) STRICT;
CREATE INDEX idx_admin_log_activity_id ON admin_log (activity_id);

CREATE TABLE payment (
  payment_id  TEXT NOT NULL PRIMARY KEY,
  order_no    TEXT NOT NULL,
  amount      TEXT NOT NULL,
  outcome     TEXT NOT NULL,
  paid_at     INTEGER NOT NULL,
  received_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_payment_order_no ON payment (order_no);

CREATE TABLE dead_letter (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  topic       TEXT NOT NULL,
  `partition` INTEGER NOT NULL,
  `offset`    INTEGER NOT NULL,
  msg_key     BLOB NOT NULL,
  msg_value   BLOB NOT NULL,
  trace_id    TEXT NOT NULL DEFAULT '',
  reason      TEXT NOT NULL,
  detail      TEXT NOT NULL,
  state       TEXT NOT NULL,
  replays     INTEGER NOT NULL DEFAULT 0,
  at          INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  UNIQUE (topic, `partition`, `offset`)
) STRICT;
CREATE INDEX idx_dead_letter_state ON dead_letter (state, at);

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
