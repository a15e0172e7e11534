CREATE TABLE IF NOT EXISTS seckill_order_NN (
  id             bigint NOT NULL AUTO_INCREMENT,
  order_no       varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  request_token  varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  user_id        bigint NOT NULL,
  commodity_id   varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  activity_id    varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  quantity       int NOT NULL,
  pay_amount     decimal(10,2) NOT NULL,
  status         tinyint NOT NULL DEFAULT 0 COMMENT '0 pending payment, 1 paid, 2 cancelled, 3 closed',
  version        bigint NOT NULL DEFAULT 1,
  pay_before     bigint NOT NULL,
  created_at     bigint NOT NULL,
  paid_at        bigint NULL,
  closed_at      bigint NULL,
  stock_returned tinyint NULL COMMENT 'NULL not closed, 0 unit on its way back, 1 returned',
  told_version   bigint NOT NULL DEFAULT 1,
  todo           tinyint GENERATED ALWAYS AS
                 (CASE WHEN stock_returned = 0 OR told_version < version THEN 1 END) STORED
                 COMMENT '1 while the reconciler has something to do with this row',
  PRIMARY KEY (id),
  UNIQUE KEY uk_order_no (order_no),
  UNIQUE KEY uk_request_token (request_token),
  UNIQUE KEY uk_activity_user (activity_id, user_id),
  KEY idx_user_id (user_id, created_at),
  KEY idx_commodity_id (commodity_id),
  KEY idx_status_pay_before (status, pay_before),
  KEY idx_todo (todo)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS stock_token_log_NN (
  token        varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  version      bigint NOT NULL,
  user_id      bigint NOT NULL,
  activity_id  varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  commodity_id varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  quantity     int NOT NULL,
  from_state   varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  to_state     varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  status       tinyint NULL COMMENT 'NULL undecided, 0-3 as the order, 4 sold out, 5 failed',
  reason       varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  first_token  varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  role         varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  node         varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  trace_id     varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  at           bigint NOT NULL,
  PRIMARY KEY (token, version),
  KEY idx_activity_status (activity_id, status)
) ENGINE = InnoDB;
