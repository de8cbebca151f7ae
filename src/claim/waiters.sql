-- SQL of waiters.c: who waits for a backend.

-- name: waiters
-- The backend itself, if it still exists, and all that wait for it, directly or behind others who do.
-- pg_locks and pg_blocking_pids() tell everybody; of pg_stat_activity the application's name is told
-- to everybody, addresses to members of the role.
WITH RECURSIVE edges AS MATERIALIZED (
  SELECT w.pid, pg_catalog.unnest(pg_catalog.pg_blocking_pids(w.pid)) AS blocker
    FROM (SELECT DISTINCT l.pid FROM pg_catalog.pg_locks AS l
           WHERE NOT l.granted AND l.pid IS NOT NULL) AS w
), blocked AS (
  SELECT e.pid FROM edges AS e WHERE e.blocker OPERATOR(pg_catalog.=) $1
  UNION
  SELECT e.pid FROM edges AS e JOIN blocked AS b ON e.blocker OPERATOR(pg_catalog.=) b.pid
)
SELECT a.pid::bigint, pg_catalog.host(a.client_addr), a.client_port::bigint, a.application_name
  FROM pg_catalog.pg_stat_activity AS a
 WHERE a.pid OPERATOR(pg_catalog.=) $1
    OR a.pid OPERATOR(pg_catalog.=) ANY (SELECT b.pid FROM blocked AS b);

-- name: waiter_end
-- Its statement is undone, and it is gone when this answers; false: it would not go within a second.
SELECT pg_catalog.pg_terminate_backend($1::integer, 1000);
