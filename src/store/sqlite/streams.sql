-- streams.sql - what is known about streams.

-- A stream and its last event.
-- name: stream_info
SELECT s.name, e.version, e.id, s.created, e.created, s.closed
FROM weir_streams AS s
CROSS JOIN weir_events AS e ON e.stream = s.id
    AND e.version = (SELECT max(l.version) FROM weir_events AS l WHERE l.stream = s.id)
WHERE s.name = ?1;

-- name: streams_page
SELECT s.name, e.version, e.id, s.created, e.created, s.closed
FROM weir_streams AS s
CROSS JOIN weir_events AS e ON e.stream = s.id
    AND e.version = (SELECT max(l.version) FROM weir_events AS l WHERE l.stream = s.id)
WHERE s.name >= ?1 AND s.name < ?2
ORDER BY s.name;
