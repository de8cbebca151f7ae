-- streams.sql - what is known about streams, and who owns a business key.

-- name: stream_info
SELECT name, version, last_id, created, updated, closed FROM weir_streams WHERE name = ?1;

-- name: streams_page
SELECT name, version, last_id, created, updated, closed
FROM weir_streams
WHERE name >= ?1 AND name < ?2
ORDER BY name;

-- name: key_owner
SELECT stream FROM weir_reserved WHERE key = ?1;
