-- subscribe.sql - targets and subscriptions as they are found and made.

-- name: target_by_name
SELECT id, lane FROM weir_targets WHERE name = ?1;

-- name: target_insert
INSERT INTO weir_targets (name, lane) VALUES (?1, ?2) RETURNING id;

-- name: lane_ensure
INSERT INTO weir_lanes (lane) VALUES (?1) ON CONFLICT DO NOTHING;
