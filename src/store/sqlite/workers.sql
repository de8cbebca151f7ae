-- workers.sql - who works on the store.
-- ?7 is now; ?9: who ended at or before that was forgotten, and begins anew.

-- name: worker_renew
UPDATE weir_workers
   SET host = ?2, pid = ?3, lanes = ?4, known = ?5, draining = ?6, lease_until = ?8,
       since = CASE WHEN lease_until <= ?9 THEN ?7 ELSE since END
 WHERE name = ?1;

-- Not one statement with the other: an upsert would use up an id each time.
-- name: worker_insert
INSERT INTO weir_workers (name, host, pid, lanes, known, draining, since, lease_until)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8);

-- name: worker_gone
DELETE FROM weir_workers WHERE name = ?1;

-- Rows are few: those of an hour.
-- name: workers_forget
DELETE FROM weir_workers
 WHERE id IN (SELECT id FROM weir_workers WHERE lease_until <= ?1 LIMIT ?2);

-- name: workers_list
SELECT id, name, host, pid, lanes, known, since, lease_until, draining
  FROM weir_workers
 WHERE lease_until > ?1
 ORDER BY name;
