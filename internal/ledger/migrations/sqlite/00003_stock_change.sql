-- The same table as for MySQL.
-- +goose Up
CREATE TABLE stock_change (
  change_id    TEXT NOT NULL PRIMARY KEY,
  activity_id  TEXT NOT NULL,
  commodity_id TEXT NOT NULL,
  delta        INTEGER NOT NULL,
  stock_total  INTEGER NOT NULL,
  node         TEXT NOT NULL,
  at           INTEGER NOT NULL
) STRICT;
CREATE INDEX idx_stock_change_activity_id ON stock_change (activity_id, commodity_id);

-- +goose Down
DROP TABLE stock_change;
