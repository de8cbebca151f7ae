-- operate.sql - what operators ask for. The functions: operate_functions.sql.

-- The first of the names that is no target.
-- name: operate_unknown
SELECT n.name
  FROM unnest($1::text[]) WITH ORDINALITY AS n (name, ordinal)
 WHERE NOT EXISTS (SELECT 1 FROM weir.targets AS t WHERE t.name = n.name)
 ORDER BY n.ordinal
 LIMIT 1;

-- name: operate_position_of_time
SELECT weir.position_of_time($1);

-- name: operate
SELECT weir.operate($1, $2, $3, $4, $5);

-- What it would change: see weir.operate.
-- name: operate_count
SELECT count(*)
  FROM weir.targets AS t
 WHERE t.id = ANY ($2::bigint[]) AND (NOT $3::boolean OR t.blocked IS NOT NULL)
   AND CASE $1::integer
       WHEN {verb_unblock} THEN (t.blocked IS NOT NULL OR t.due IS NOT NULL)
           AND NOT ({is_passed})
       WHEN {verb_prioritize} THEN t.override IS DISTINCT FROM $4::bigint
       WHEN {verb_pause} THEN NOT t.paused
       WHEN {verb_resume} THEN t.paused
       END;

-- name: operate_reset
SELECT weir.operate_reset($1, $2, $3);

-- What it would change: see weir.operate_reset.
-- name: operate_reset_count
SELECT count(*)
  FROM weir.targets AS t
 WHERE t.id = ANY ($1::bigint[]) AND (NOT $2::boolean OR t.blocked IS NOT NULL)
   AND (t.holder IS NOT NULL OR t.blocked IS NOT NULL OR t.due IS NOT NULL OR t.lost <> 0
        OR t.error <> '' OR t.event <> 0 OR t.reaction <> 0 OR t.attempts <> 0
        OR EXISTS (SELECT 1
                     FROM weir.subscriptions AS s
                     JOIN weir.reactions AS r ON r.id = s.reaction
                    CROSS JOIN LATERAL (
                          SELECT least(greatest(r.routed, r.reread_to),
                                       (SELECT coalesce(max(e.id), 0) FROM weir.events AS e))
                                     AS routed) AS b
                    CROSS JOIN LATERAL (
                          SELECT least(s.at, greatest(least($3::bigint, b.routed), r.since))
                                     AS new_at) AS n
                    WHERE s.target = t.id
                      AND (s.retries <> 0 OR s.at > n.new_at
                           OR s.mark <> greatest(n.new_at, least(s.mark, b.routed)))));

-- What the choice of the event to skip is made on, in one snapshot: for each target that is behind,
-- and was not blocked by routing, a row of its own (kind 0: what failed, as it says, and its state), its subscriptions that are
-- behind (kind 1: at and mark in the place of the event) and its events that were sent back (kind
-- 2). In the order of their names, in which they are parked.
-- name: skip_read
SELECT t.id, 0 AS kind, t.reaction, t.event, 0::bigint AS mark, t.attempts,
       t.blocked IS NOT NULL AS is_blocked, weir.skip_state(t.id) AS state, t.name
  FROM weir.targets AS t
 WHERE t.id = ANY ($1::bigint[]) AND t.behind
   AND NOT ({is_passed})
UNION ALL
SELECT t.id, 1, s.reaction, s.at, s.mark, s.retries, false, '', t.name
  FROM weir.targets AS t
  JOIN weir.subscriptions AS s ON s.target = t.id
  JOIN weir.reactions AS r ON r.id = s.reaction
 WHERE t.id = ANY ($1::bigint[]) AND t.behind AND s.at < s.mark AND NOT r.retired
UNION ALL
SELECT t.id, 2, p.reaction, p.event, 0, p.attempts, false, '', t.name
  FROM weir.targets AS t
  JOIN weir.parked AS p ON p.target = t.id
  JOIN weir.reactions AS r ON r.id = p.reaction
 WHERE t.id = ANY ($1::bigint[]) AND t.behind AND p.sent_back AND NOT r.retired
 ORDER BY name, kind, reaction, event;

-- name: operate_skip
SELECT c.id FROM weir.operate_skip($1, $2, $3, $4, $5) AS c (id);

-- name: lane_pause
SELECT weir.lane_pause($1, $2, $3);

-- A million targets that were changed leave a million dead entries in the indexes that leasing
-- walks.
-- name: operate_vacuum
VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE FALSE) weir.targets, weir.subscriptions;
