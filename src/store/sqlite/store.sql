-- store.sql - the store about itself.

-- name: store_epoch
SELECT epoch FROM weir_store WHERE one = 1;

-- name: store_streams_count
SELECT count(*) FROM weir_streams;

-- name: store_seed
UPDATE weir_store SET position_base = ?1, version_base = ?2 WHERE one = 1;
