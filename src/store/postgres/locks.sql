-- locks.sql - named locks and keys of once, as the client asks for them.

-- name: lock_take
SELECT * FROM weir.lock_take($1, $2, $3, $4);

-- name: lock_extend
SELECT weir.lock_extend($1, $2, $3, $4, $5);

-- name: lock_release
SELECT weir.lock_release($1, $2, $3);

-- name: once_finish
SELECT weir.once_finish($1, $2, $3, $4, $5);

-- name: once_forget
SELECT * FROM weir.once_forget($1);

-- The running ones first, then the newest. $1: how each key begins; $2: the key itself, or NULL;
-- $3: how many, or NULL where the client decides which of them match.
-- name: once_runs
WITH n AS MATERIALIZED (SELECT weir.clock_us() AS now_us)
SELECT k.name, k.holder, k.fence, k.since, k.lease_until,
       CASE WHEN k.state = {lock_held} AND k.lease_until <= n.now_us THEN {lock_died} ELSE k.state END,
       k.exit_status, k.ended
  FROM n
 CROSS JOIN weir.locks AS k
 WHERE k.once AND k.state <> 0 AND starts_with(k.name, $1) AND ($2 IS NULL OR k.name = $2)
 ORDER BY k.state = {lock_held} AND k.lease_until > n.now_us DESC, k.since DESC, k.name
 LIMIT $3;

-- name: locks
WITH n AS MATERIALIZED (SELECT weir.clock_us() AS now_us)
SELECT k.name, k.holder, k.fence, k.since, k.lease_until
  FROM n
 CROSS JOIN weir.locks AS k
 WHERE NOT k.once AND (k.lease_until = 0 OR k.lease_until > n.now_us)
 ORDER BY k.name;
