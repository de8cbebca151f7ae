-- route.sql - raising marks for what the router found.

-- name: route_reaction
SELECT name, number, routed, reread_to, retired,
       (SELECT rule FROM weir_definitions AS d WHERE d.reaction = r.id AND d.number = r.number)
  FROM weir_reactions AS r
 WHERE id = ?1;

-- name: route_subscription
SELECT at, mark, was_reset, priority FROM weir_subscriptions WHERE target = ?1 AND reaction = ?2;

-- name: route_subscribe
INSERT INTO weir_subscriptions (target, reaction, at, mark, priority, source, value)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7);

-- name: route_mark
UPDATE weir_subscriptions
   SET at = ?3, mark = ?4, priority = ?5, source = ?6, value = ?7
 WHERE target = ?1 AND reaction = ?2;

-- name: route_work
INSERT INTO weir_work (target, reaction, event) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING;

-- Sixteen at once: starting and ending a statement costs about as much as a row.
-- name: route_work_many
INSERT INTO weir_work (target, reaction, event)
VALUES (?1, ?2, ?3), (?4, ?5, ?6), (?7, ?8, ?9), (?10, ?11, ?12),
       (?13, ?14, ?15), (?16, ?17, ?18), (?19, ?20, ?21), (?22, ?23, ?24),
       (?25, ?26, ?27), (?28, ?29, ?30), (?31, ?32, ?33), (?34, ?35, ?36),
       (?37, ?38, ?39), (?40, ?41, ?42), (?43, ?44, ?45), (?46, ?47, ?48)
    ON CONFLICT DO NOTHING;

-- Not one that is blocked like this already: see weir__target_is_passed.
-- name: route_block
UPDATE weir_targets
   SET held = 1, blocked = ?2, error = ?3, event = ?4, reaction = ?5, attempts = 0,
       fence = fence + 1, holder = NULL, lease_until = 0
 WHERE id = ?1 AND (blocked IS NULL OR reaction = 0 OR event = 0 OR attempts <> 0);

-- name: route_advance
UPDATE weir_reactions SET routed = ?2, reread_to = ?3 WHERE id = ?1;

-- name: route_end_reread
UPDATE weir_subscriptions SET was_reset = 0 WHERE reaction = ?1 AND was_reset = 1;
