-- The highest position of each sale in Redis that a leading reconciler has seen, so that a loss is noticed also when
-- everybody who saw what is lost has died (R15).
-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS redis_seen (
  activity_id varchar(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  epoch       bigint NOT NULL,
  seq         bigint NOT NULL,
  server      varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  fence       bigint NOT NULL,
  seen_at     bigint NOT NULL,
  PRIMARY KEY (activity_id)
) ENGINE = InnoDB;

-- +goose Down
DROP TABLE redis_seen;
