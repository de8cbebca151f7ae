-- streams.sql - what is known about streams, and who owns a business key.

-- name: stream_info
SELECT name, version, last_id, created, updated, closed FROM weir.streams WHERE name = $1;

-- Names above $1, from $2 on. Where they end is decided by the client: the least text that no longer
-- begins with a prefix need not be valid UTF-8.
-- name: streams_page
SELECT name, version, last_id, created, updated, closed
  FROM weir.streams
 WHERE name > $1 AND name >= $2
 ORDER BY name LIMIT $3;

-- name: key_owner
SELECT stream FROM weir.reserved WHERE key = $1;
