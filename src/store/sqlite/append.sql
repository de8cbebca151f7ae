-- append.sql - judging and writing appends; every statement is inside a write transaction.

-- name: append_stream
SELECT id, version, category, closed FROM weir_streams WHERE name = ?1;

-- name: append_stream_new
INSERT INTO weir_streams (name, category, version, last_id, created, updated, closed)
VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6);

-- name: append_stream_moved
UPDATE weir_streams SET version = ?2, last_id = ?3, updated = ?4, closed = ?5 WHERE id = ?1;

-- name: append_event
INSERT INTO weir_events (id, stream, version, category, created, name, meta, data)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8);

-- What the unique index knows better than weir_streams.
-- name: append_last_version
SELECT max(version) FROM weir_events WHERE stream = ?1;

-- name: append_category
SELECT id FROM weir_categories WHERE name = ?1;

-- name: append_category_new
INSERT INTO weir_categories (name) VALUES (?1);

-- name: append_key
SELECT expires, fingerprint, result FROM weir_keys WHERE key = ?1;

-- When the append of a known key was made.
-- name: append_created
SELECT created FROM weir_events WHERE id = ?1;

-- An expired key is unknown, and may still be there.
-- name: append_key_new
INSERT OR REPLACE INTO weir_keys (key, expires, fingerprint, result) VALUES (?1, ?2, ?3, ?4);

-- name: append_keys_expire
DELETE FROM weir_keys WHERE key IN (
    SELECT key FROM weir_keys WHERE expires <= ?1 ORDER BY expires LIMIT 64
);

-- name: append_reserved
SELECT stream FROM weir_reserved WHERE key = ?1;

-- name: append_reserve
INSERT OR REPLACE INTO weir_reserved (key, stream) VALUES (?1, ?2);

-- name: append_release
DELETE FROM weir_reserved WHERE key = ?1;
