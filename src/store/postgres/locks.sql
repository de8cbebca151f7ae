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

-- name: locks
WITH n AS MATERIALIZED (SELECT weir.clock_us() AS now_us)
SELECT k.name, k.holder, k.fence, k.since, k.lease_until
  FROM n
 CROSS JOIN weir.locks AS k
 WHERE NOT k.once AND (k.lease_until = 0 OR k.lease_until > n.now_us)
 ORDER BY k.name;
