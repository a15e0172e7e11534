-- One row for each change of an item's total during a sale, in the transaction that changes it: a change whose commit is
-- in doubt is repeated under the same id and counts once (S39).
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS stock_change (
  change_id    varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  activity_id  varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  commodity_id varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  delta        bigint NOT NULL,
  stock_total  bigint NOT NULL COMMENT 'after the change',
  node         varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  at           bigint NOT NULL,
  PRIMARY KEY (change_id),
  KEY idx_activity_id (activity_id, commodity_id)
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE stock_change;
