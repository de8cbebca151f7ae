-- Claims in one statement, in PostgreSQL.

-- case: a materialized CTE
WITH picked AS MATERIALIZED (
     SELECT id FROM jobs WHERE status = 'pending' ORDER BY run_at, id LIMIT 5 FOR UPDATE SKIP LOCKED)
UPDATE jobs SET status = 'running' FROM picked WHERE jobs.id = picked.id RETURNING jobs.*;

-- case: a CTE with a row lock is never folded into the statement, whatever it says
WITH picked AS NOT MATERIALIZED (
     SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED)
UPDATE jobs SET status = 'running' WHERE id IN (SELECT id FROM picked) RETURNING *;

-- case: an array is made once
UPDATE jobs SET status = 'running'
 WHERE id = ANY (ARRAY(SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED))
RETURNING *;

-- case: a single value is found once
UPDATE jobs SET status = 'running'
 WHERE id = (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING *;

-- case: = ANY of a query is IN
UPDATE jobs SET status = 'running'
 WHERE id = ANY (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED) -- expect: limit-not-kept
RETURNING *;

-- case: a subquery in FROM is joined like any table
UPDATE jobs SET status = 'running'
  FROM (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED) AS picked -- expect: limit-not-kept
 WHERE jobs.id = picked.id
RETURNING jobs.*;

-- case: the same when rows are deleted
DELETE FROM jobs
 WHERE id IN (SELECT id FROM jobs ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED) -- expect: limit-not-kept
RETURNING *;

-- case: and in USING
DELETE FROM jobs
 USING (SELECT id FROM jobs ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED) AS picked -- expect: limit-not-kept
 WHERE jobs.id = picked.id
RETURNING jobs.*;

-- case: without SKIP the limit is not kept either
UPDATE jobs SET status = 'running'
 WHERE id IN (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5 FOR UPDATE) -- expect: no-skip-locked, limit-not-kept
RETURNING *;

-- case: a subquery in two pairs of parentheses
UPDATE jobs SET status = 'running'
 WHERE id IN ((SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED)) -- expect: limit-not-kept
RETURNING *;

-- case: dequeued by deleting
DELETE FROM jobs
 WHERE id = (SELECT id FROM jobs ORDER BY priority DESC, id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING *;

-- case: no lock in the subquery
UPDATE jobs SET status = 'running'
 WHERE id = (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1) -- expect: no-row-lock
RETURNING *;

-- case: no lock, but the update asks again
UPDATE jobs SET status = 'running'
 WHERE id = (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1) AND status = 'pending'
RETURNING *;

-- case: no lock in the CTE
WITH picked AS (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5) -- expect: no-row-lock
UPDATE jobs SET status = 'running' FROM picked WHERE jobs.id = picked.id RETURNING jobs.id;

-- case: no lock and a holder instead of RETURNING
UPDATE jobs SET status = 'running', worker = $1
 WHERE id IN (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5); -- expect: no-row-lock

-- case: FOR NO KEY UPDATE is a lock, too
UPDATE jobs SET status = 'running', worker = $1
 WHERE id = (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED);

-- case: deleting without a lock waits
DELETE FROM jobs
 WHERE id = (SELECT id FROM jobs ORDER BY id LIMIT 1) -- expect: no-skip-locked
RETURNING *;

-- case: NOWAIT is a decision
UPDATE jobs SET status = 'running'
 WHERE id = (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE NOWAIT)
RETURNING *;

-- case: no order, no limit
WITH picked AS (SELECT id FROM jobs WHERE status = 'pending' FOR UPDATE SKIP LOCKED) -- expect: no-order, no-limit
UPDATE jobs SET status = 'running' FROM picked WHERE jobs.id = picked.id RETURNING jobs.id;

-- case: LIMIT ALL is none
WITH picked AS (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT ALL FOR UPDATE SKIP LOCKED) -- expect: no-limit
UPDATE jobs SET status = 'running' FROM picked WHERE jobs.id = picked.id RETURNING jobs.id;

-- case: FETCH FIRST is a limit
-- args: --limit 5
WITH picked AS (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id FETCH FIRST 5 ROWS ONLY FOR UPDATE SKIP LOCKED)
UPDATE jobs SET status = 'running' FROM picked WHERE jobs.id = picked.id RETURNING jobs.id;

-- case: FETCH FIRST ROW is one
-- args: --limit 5
WITH picked AS (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id FETCH FIRST ROW ONLY FOR UPDATE SKIP LOCKED) -- expect: wrong-limit
UPDATE jobs SET status = 'running' FROM picked WHERE jobs.id = picked.id RETURNING jobs.id;

-- case: a limit that is a parameter is not known
-- args: --limit 5
WITH picked AS (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)
UPDATE jobs SET status = 'running' FROM picked WHERE jobs.id = picked.id RETURNING jobs.id;

-- case: the lock may stand before the limit
WITH picked AS (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 5)
UPDATE jobs SET status = 'running' FROM picked WHERE jobs.id = picked.id RETURNING jobs.id;

-- case: a counter is no flip
WITH picked AS (
     SELECT id FROM jobs WHERE status = 'pending' AND attempts < 5 ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED)
UPDATE jobs SET attempts = attempts + 1, worker = 'w1' -- expect: no-flip
  FROM picked WHERE jobs.id = picked.id RETURNING jobs.id;

-- case: the value it has already is no flip
WITH picked AS (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED)
UPDATE jobs SET status = 'pending', worker = 'w1' -- expect: no-flip
  FROM picked WHERE jobs.id = picked.id RETURNING jobs.id;

-- case: a time that is moved on is a flip
WITH picked AS (SELECT id FROM jobs WHERE visible_at <= now() ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED)
UPDATE jobs SET visible_at = now() + interval '30 seconds', reads = reads + 1
  FROM picked WHERE jobs.id = picked.id RETURNING jobs.id;

-- case: a holder that must be NULL is a flip
WITH picked AS (SELECT id FROM jobs WHERE worker IS NULL ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED)
UPDATE jobs SET worker = 'w1' FROM picked WHERE jobs.id = picked.id RETURNING jobs.id;

-- case: several columns at once
WITH picked AS (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED)
UPDATE jobs SET (status, worker) = ('running', 'w1') FROM picked WHERE jobs.id = picked.id RETURNING jobs.id;

-- case: a condition that only a function knows
WITH picked AS (SELECT id FROM jobs AS j WHERE is_ready(j) ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED)
UPDATE jobs SET state = 2 FROM picked WHERE jobs.id = picked.id RETURNING jobs.id;

-- case: the claim is kept in another table
WITH picked AS (
     SELECT id FROM jobs
      WHERE NOT EXISTS (SELECT 1 FROM claims WHERE claims.job_id = jobs.id)
      ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED)
INSERT INTO claims (job_id, worker) SELECT id, 'w1' FROM picked RETURNING job_id;

-- case: the update is in a CTE, too
WITH picked AS (
     SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED),
     marked AS (
     UPDATE jobs SET status = 'running' FROM picked WHERE jobs.id = picked.id RETURNING jobs.id, jobs.payload)
SELECT id, payload FROM marked ORDER BY id;

-- case: the update is in a CTE and the limit is not kept
WITH marked AS (
     UPDATE jobs SET status = 'running'
      WHERE id IN (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED) -- expect: limit-not-kept
     RETURNING id)
SELECT id FROM marked ORDER BY id;

-- case: one of several tables is locked
WITH picked AS (
     SELECT j.id FROM queues AS q JOIN jobs AS j ON j.queue = q.name AND j.status = 'pending'
      WHERE NOT q.paused
      ORDER BY j.id LIMIT 5 FOR UPDATE OF j SKIP LOCKED)
UPDATE jobs SET status = 'running' FROM picked WHERE jobs.id = picked.id RETURNING jobs.id;

-- case: two locking clauses
WITH picked AS (
     SELECT j.id FROM jobs AS j JOIN queues AS q ON j.queue = q.name
      WHERE j.status = 'pending'
      ORDER BY j.id LIMIT 5 FOR UPDATE OF j SKIP LOCKED FOR SHARE OF q)
UPDATE jobs SET status = 'running' FROM picked WHERE jobs.id = picked.id RETURNING jobs.id;

-- case: a schema and quoted names
UPDATE "app"."Jobs" SET "Status" = 'running'
 WHERE "Id" IN (SELECT "Id" FROM "app"."Jobs" WHERE "Status" = 'pending' ORDER BY "Id" LIMIT 5 FOR UPDATE SKIP LOCKED) -- expect: limit-not-kept
RETURNING *;

-- case: explained and prepared
-- skip: cte
EXPLAIN (ANALYZE, BUFFERS) UPDATE jobs SET status = 'running'
 WHERE id IN (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED) -- expect: limit-not-kept
RETURNING *;
PREPARE claim (text, int) AS UPDATE jobs SET status = $1
 WHERE id IN (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED) -- expect: limit-not-kept
RETURNING *;

-- case: placeholders of many drivers
UPDATE jobs SET status=%s, worker=%(worker)s
 WHERE id IN (SELECT id FROM jobs WHERE status=? ORDER BY id LIMIT ?2 FOR UPDATE SKIP LOCKED); -- expect: limit-not-kept
UPDATE {table} SET status=@status
 WHERE id IN (SELECT id FROM {table} WHERE status=:old ORDER BY id LIMIT ${limit} FOR UPDATE SKIP LOCKED); -- expect: limit-not-kept

-- case: the update asks again, with a query in what it asks
UPDATE jobs SET locked_until = now() + interval '5 minutes'
 WHERE id = (SELECT id FROM jobs WHERE locked_until < now() ORDER BY id LIMIT 1)
   AND (status = 'pending' OR locked_until < (SELECT max(at) FROM clock))
RETURNING *;

-- case: the next row of every queue
WITH picked AS (
     SELECT j.id FROM queues AS q
      CROSS JOIN LATERAL (
            SELECT id FROM jobs -- expect: no-order
             WHERE jobs.queue = q.name AND jobs.status = 'pending' LIMIT 1 FOR UPDATE SKIP LOCKED) AS j)
UPDATE jobs SET status = 'running' FROM picked WHERE jobs.id = picked.id RETURNING jobs.id;
