-- unhandled.sql - which reactions have something left to do with a stream.

-- name: unhandled_reactions
SELECT id FROM weir_reactions WHERE retired = 0 ORDER BY id;

-- name: unhandled_at_any
SELECT min(at) FROM weir_subscriptions WHERE reaction = ?1;

-- name: unhandled_at
SELECT min(at) FROM weir_subscriptions WHERE reaction = ?1 AND value = ?2;

-- name: unhandled_events
SELECT id, name FROM weir_events WHERE stream = ?1 AND version >= ?2 ORDER BY version;

-- name: unhandled_work
SELECT 1 FROM weir_work WHERE reaction = ?1 AND event = ?2 LIMIT 1;
