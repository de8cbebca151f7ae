-- streams.sql - what is known about streams.

-- name: stream_info
SELECT l.stream, l.version, l.id, f.created, l.created, l.name = '$closed'
  FROM (SELECT stream, version, id, name, created FROM weir.events
         WHERE stream = $1 ORDER BY version DESC LIMIT 1) AS l
 CROSS JOIN (SELECT created FROM weir.events WHERE stream = $1 ORDER BY version LIMIT 1) AS f;

-- Names above $1, from $2 on. Where they end is decided by the client: the least text that no longer
-- begins with a prefix need not be valid UTF-8.
-- name: streams_page
SELECT name, version, last_id, created, updated, closed FROM weir.streams_page($1, $2, $3);
