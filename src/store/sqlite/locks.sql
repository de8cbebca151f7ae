-- locks.sql - named locks and keys of once. ?1: whether it is a key; ?2: its name.

-- name: lock_find
SELECT fence, holder, since, lease_until, state, exit_status, ended, output
  FROM weir_locks
 WHERE once = ?1 AND name = ?2;

-- The row that was there is removed, and the new one has a fence that was never used.
-- name: lock_put
INSERT OR REPLACE INTO weir_locks (once, name, holder, since, lease_until)
VALUES (?1, ?2, ?3, ?4, ?5);

-- name: lock_extend
UPDATE weir_locks
   SET lease_until = CASE lease_until WHEN 0 THEN 0 ELSE ?4 END
 WHERE once = ?1 AND name = ?2 AND fence = ?3 AND state = {once_running};

-- name: lock_remove
DELETE FROM weir_locks WHERE once = ?1 AND name = ?2 AND fence = ?3;

-- name: once_end
UPDATE weir_locks
   SET state = CASE ?4 WHEN 0 THEN {once_done} ELSE {once_failed} END, exit_status = ?4, ended = ?5, output = ?6
 WHERE once = ?1 AND name = ?2 AND fence = ?3 AND state = {once_running};

-- ?1: now, of the machine's clock. The running ones first, then the newest.
-- name: once_runs
SELECT name, holder, fence, since, lease_until, state, exit_status, ended
  FROM weir_locks
 WHERE once = 1
 ORDER BY state = {once_running} AND lease_until > ?1 DESC, since DESC, name;

-- ?1: now, of the machine's clock.
-- name: locks_list
SELECT name, holder, fence, since, lease_until
  FROM weir_locks
 WHERE once = 0 AND (lease_until = 0 OR lease_until > ?1)
 ORDER BY name;
