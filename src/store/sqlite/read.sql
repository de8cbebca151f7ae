-- read.sql - chunks of streams and of the log. Every query of events gives the same columns, so that
-- one piece of code takes them in: id, version, created, stream, name, meta, data. Meta and data only
-- if ?4 and ?5 say so: SQLite does not look into a row further than it is asked.

-- name: read_stream_row
SELECT s.id, (SELECT max(e.version) FROM weir_events AS e WHERE e.stream = s.id)
FROM weir_streams AS s
WHERE s.name = ?1;

-- name: read_category
SELECT id FROM weir_categories WHERE name = ?1;

-- name: read_stream_forward
SELECT id, version, created, NULL, name,
       CASE WHEN ?4 THEN meta END, CASE WHEN ?5 THEN data END
FROM weir_events
WHERE stream = ?1 AND version BETWEEN ?2 AND ?3
ORDER BY version;

-- name: read_stream_backward
SELECT id, version, created, NULL, name,
       CASE WHEN ?4 THEN meta END, CASE WHEN ?5 THEN data END
FROM weir_events
WHERE stream = ?1 AND version BETWEEN ?2 AND ?3
ORDER BY version DESC;

-- name: read_log_forward
SELECT {read_columns}
FROM weir_events AS e CROSS JOIN weir_streams AS s ON s.id = e.stream
WHERE e.id BETWEEN ?1 AND ?2
ORDER BY e.id;

-- name: read_log_backward
SELECT {read_columns}
FROM weir_events AS e CROSS JOIN weir_streams AS s ON s.id = e.stream
WHERE e.id BETWEEN ?1 AND ?2
ORDER BY e.id DESC;

-- name: read_category_forward
SELECT {read_columns}
FROM weir_events AS e INDEXED BY weir_events_by_category
CROSS JOIN weir_streams AS s ON s.id = e.stream
WHERE e.id BETWEEN ?1 AND ?2 AND e.category = ?3
ORDER BY e.id;

-- name: read_category_backward
SELECT {read_columns}
FROM weir_events AS e INDEXED BY weir_events_by_category
CROSS JOIN weir_streams AS s ON s.id = e.stream
WHERE e.id BETWEEN ?1 AND ?2 AND e.category = ?3
ORDER BY e.id DESC;

-- Positions alone, from the index alone; the names of a filter are merged in C.
-- name: read_name_forward
SELECT id FROM weir_events INDEXED BY weir_events_by_name
WHERE id BETWEEN ?1 AND ?2 AND name = ?3
ORDER BY id LIMIT ?4;

-- name: read_name_backward
SELECT id FROM weir_events INDEXED BY weir_events_by_name
WHERE id BETWEEN ?1 AND ?2 AND name = ?3
ORDER BY id DESC LIMIT ?4;

-- For searching a version by position and a position by time, half by half.
-- name: read_version_probe
SELECT id, created FROM weir_events WHERE stream = ?1 AND version = ?2;

-- name: read_position_probe
SELECT id, created FROM weir_events WHERE id >= ?1 ORDER BY id LIMIT 1;
