-- append.sql - judging and writing appends; every statement is inside a write transaction.

-- The version is that of the stream's last event; NULL: it has none.
-- name: append_stream
SELECT s.id, (SELECT max(e.version) FROM weir_events AS e WHERE e.stream = s.id), s.category, s.closed
FROM weir_streams AS s
WHERE s.name = ?1;

-- name: append_stream_new
INSERT INTO weir_streams (name, category, created) VALUES (?1, ?2, ?3);

-- name: append_stream_close
UPDATE weir_streams SET closed = 1 WHERE id = ?1;

-- name: append_event
INSERT INTO weir_events (id, stream, version, category, created, name, meta, data)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8);

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
