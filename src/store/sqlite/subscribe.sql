-- subscribe.sql - targets and subscriptions as they are found and made.

-- name: target_by_name
SELECT id, lane FROM weir_targets WHERE name = ?1;

-- name: target_insert
INSERT INTO weir_targets (name, lane) VALUES (?1, ?2) RETURNING id;

-- name: lane_ensure
INSERT INTO weir_lanes (lane) VALUES (?1) ON CONFLICT DO NOTHING;

-- name: subscribe_reaction
SELECT 1 FROM weir_reactions WHERE id = ?1;

-- A subscription that is there already keeps its position.
-- name: subscribe
INSERT INTO weir_subscriptions (target, reaction, at, mark, priority, source, value)
VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6)
    ON CONFLICT (target, reaction)
    DO UPDATE SET priority = excluded.priority, source = excluded.source, value = excluded.value;
