-- workers.sql - who works on the store.
-- ?7 is now; ?8: when it ends; ?10: who ended at or before that was forgotten, and begins anew. The
-- last two are of the machine's clock.

-- name: worker_renew
UPDATE weir_workers
   SET host = ?2, pid = ?3, lanes = ?4, known = ?5, draining = ?6, lease_until = ?8,
       since = CASE WHEN lease_until <= ?10 THEN ?7 ELSE since END, metrics = ?9
 WHERE name = ?1;

-- Not one statement with the other: an upsert would use up an id each time.
-- name: worker_insert
INSERT INTO weir_workers (name, host, pid, lanes, known, draining, since, lease_until, metrics)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9);

-- name: worker_gone
DELETE FROM weir_workers WHERE name = ?1;

-- Rows are few: those of an hour.
-- name: workers_forget
DELETE FROM weir_workers
 WHERE id IN (SELECT id FROM weir_workers WHERE lease_until <= ?1 LIMIT ?2);

-- ?1: who ended later is listed; ?2: now, both of the machine's clock; ?3: whether to count what they hold. Leases are found by their index, which has no other
-- rows.
-- name: workers_list
SELECT w.id, w.name, w.host, w.pid, w.lanes, w.known, w.since, w.lease_until, w.draining,
       coalesce(h.holds, 0), w.metrics
  FROM weir_workers AS w
  LEFT JOIN (SELECT holder, count(*) AS holds
               FROM weir_targets INDEXED BY weir_targets_leased
              WHERE ?3 AND holder IS NOT NULL AND lease_until > ?2
              GROUP BY holder) AS h ON h.holder = w.name
 WHERE w.lease_until > ?1
 ORDER BY w.name;
