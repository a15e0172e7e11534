CREATE TABLE seckill_order_NN (
  id             INTEGER PRIMARY KEY AUTOINCREMENT,
  order_no       TEXT NOT NULL,
  request_token  TEXT NOT NULL,
  user_id        INTEGER NOT NULL,
  commodity_id   TEXT NOT NULL,
  activity_id    TEXT NOT NULL,
  quantity       INTEGER NOT NULL,
  pay_amount     TEXT NOT NULL,
  status         INTEGER NOT NULL DEFAULT 0,
  version        INTEGER NOT NULL DEFAULT 1,
  pay_before     INTEGER NOT NULL,
  created_at     INTEGER NOT NULL,
  paid_at        INTEGER,
  closed_at      INTEGER,
  stock_returned INTEGER,
  told_version   INTEGER NOT NULL DEFAULT 1,
  todo           INTEGER GENERATED ALWAYS AS
                 (CASE WHEN stock_returned = 0 OR told_version < version THEN 1 END) STORED
) STRICT;
CREATE UNIQUE INDEX uk_order_no_NN ON seckill_order_NN (order_no);
CREATE UNIQUE INDEX uk_request_token_NN ON seckill_order_NN (request_token);
CREATE UNIQUE INDEX uk_activity_user_NN ON seckill_order_NN (activity_id, user_id);
CREATE INDEX idx_user_id_NN ON seckill_order_NN (user_id, created_at);
CREATE INDEX idx_commodity_id_NN ON seckill_order_NN (commodity_id);
CREATE INDEX idx_status_pay_before_NN ON seckill_order_NN (status, pay_before);
CREATE INDEX idx_todo_NN ON seckill_order_NN (todo) WHERE todo = 1;

CREATE TABLE stock_token_log_NN (
  token        TEXT NOT NULL,
  version      INTEGER NOT NULL,
  user_id      INTEGER NOT NULL,
  activity_id  TEXT NOT NULL,
  commodity_id TEXT NOT NULL,
  quantity     INTEGER NOT NULL,
  from_state   TEXT NOT NULL,
  to_state     TEXT NOT NULL,
  status       INTEGER,
  reason       TEXT NOT NULL,
  first_token  TEXT NOT NULL,
  role         TEXT NOT NULL,
  node         TEXT NOT NULL,
  trace_id     TEXT NOT NULL,
  at           INTEGER NOT NULL,
  PRIMARY KEY (token, version)
) STRICT, WITHOUT ROWID;
CREATE INDEX idx_activity_status_NN ON stock_token_log_NN (activity_id, status);
