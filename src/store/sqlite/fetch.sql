-- fetch.sql - the events of a subscription, found by the index that fits its rule. All cursors give
-- the same columns, so that one piece of code takes them in; data only of events whose name is between
-- ?5 and ?6: where many are not wanted, their long texts are not read.

-- name: fetch_subscription
SELECT value FROM weir_subscriptions WHERE target = ?1 AND reaction = ?2;

-- A stream, and the version behind position ?2 if that is one of its own events: a subscription
-- stands there most of the time, and nothing has to be searched.
-- name: fetch_stream_row
SELECT s.id, (SELECT max(e.version) FROM weir_events AS e WHERE e.stream = s.id),
       (SELECT e.version + 1 FROM weir_events AS e WHERE e.id = ?2 AND e.stream = s.id)
  FROM weir_streams AS s
 WHERE s.name = ?1;

-- name: fetch_stream_last
SELECT max(version) FROM weir_events WHERE stream = ?1;

-- ?2: where versions begin.
-- name: fetch_stream_first
SELECT coalesce((SELECT first FROM weir_truncated WHERE stream = ?1), ?2);

-- name: fetch_stream_position
SELECT id FROM weir_events WHERE stream = ?1 AND version = ?2;

-- name: fetch_category_row
SELECT id FROM weir_categories WHERE name = ?1;

-- Versions and positions of a stream grow together, so the range of positions is a range of
-- versions; ?2 is its first version.
-- name: fetch_by_stream
SELECT e.id, {fetch_columns}
  FROM weir_events AS e
  JOIN weir_streams AS s ON s.id = e.stream
 WHERE e.stream = ?1 AND e.version >= ?2
 ORDER BY e.version;

-- name: fetch_by_category
SELECT e.id, {fetch_columns}
  FROM weir_events AS e INDEXED BY weir_events_by_category
 CROSS JOIN weir_streams AS s ON s.id = e.stream
 WHERE e.category = ?1 AND e.id > ?2 AND e.id <= ?3
 ORDER BY e.id;

-- name: fetch_by_name
SELECT e.id, {fetch_columns}
  FROM weir_events AS e INDEXED BY weir_events_by_name
 CROSS JOIN weir_streams AS s ON s.id = e.stream
 WHERE e.name = ?1 AND e.id > ?2 AND e.id <= ?3
 ORDER BY e.id;

-- name: fetch_by_log
SELECT e.id, {fetch_columns}
  FROM weir_events AS e
 CROSS JOIN weir_streams AS s ON s.id = e.stream
 WHERE e.id > ?2 AND e.id <= ?3
 ORDER BY e.id;

-- name: fetch_by_work
SELECT w.event, {fetch_columns}
  FROM weir_work AS w
 CROSS JOIN weir_events AS e ON e.id = w.event
 CROSS JOIN weir_streams AS s ON s.id = e.stream
 WHERE w.target = ?1 AND w.reaction = ?4 AND w.event > ?2 AND w.event <= ?3
 ORDER BY w.event;

-- name: fetch_event
SELECT e.id, {fetch_columns}
  FROM weir_events AS e
  JOIN weir_streams AS s ON s.id = e.stream
 WHERE e.id = ?1;
