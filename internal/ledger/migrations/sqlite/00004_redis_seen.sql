-- The same table as for MySQL.
-- +goose Up
CREATE TABLE redis_seen (
  activity_id TEXT NOT NULL PRIMARY KEY,
  epoch       INTEGER NOT NULL,
  seq         INTEGER NOT NULL,
  server      TEXT NOT NULL,
  fence       INTEGER NOT NULL,
  seen_at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE redis_seen;
