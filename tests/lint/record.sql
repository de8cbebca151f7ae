-- A queue of outgoing messages: rows are found first and claimed one by one, or found and claimed in
-- one statement. Names in angle brackets are those of a template.

-- case: found, then claimed by a guarded update
SELECT id FROM outbox WHERE status IN ('pending', 'failed') ORDER BY id LIMIT 10;
UPDATE outbox SET status = 'processing', locked_by = :worker
 WHERE id = :id AND status IN ('pending', 'failed');

-- case: found, then claimed without the guard
SELECT id FROM outbox WHERE status IN ('pending', 'failed') ORDER BY id LIMIT 10; -- expect: no-row-lock
UPDATE outbox SET status = 'processing', locked_by = :worker -- expect: not-one-transaction
 WHERE id = :id;

-- case: the one statement, as a template
UPDATE <table> SET <claim_fields>
 WHERE id IN (
       SELECT id FROM <table> WHERE <criteria> -- expect: limit-not-kept
        ORDER BY <order> LIMIT <n> FOR UPDATE SKIP LOCKED
       )
RETURNING *;

-- case: the guarded update, as a template
SELECT id FROM <table> WHERE <criteria> ORDER BY <order> LIMIT <n>;
UPDATE <table> SET <claim_fields> WHERE id = :id AND <criteria>;

-- case: the one statement, with names
UPDATE outbox SET status = 'processing', locked_by = 'w1'
 WHERE id IN (
       SELECT id FROM outbox WHERE status IN ('pending', 'failed') -- expect: limit-not-kept
        ORDER BY priority DESC, id LIMIT 10 FOR UPDATE SKIP LOCKED
       )
RETURNING *;

-- case: its order has ties
UPDATE outbox SET status = 'processing'
 WHERE id IN (
       SELECT id FROM outbox WHERE status = 'pending' -- expect: limit-not-kept
        ORDER BY priority DESC -- expect: no-tie-break
        LIMIT 10 FOR UPDATE SKIP LOCKED
       )
RETURNING *;

-- case: locked, then updated after the lock has gone
SELECT id FROM outbox WHERE status = 'pending' ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED;
UPDATE outbox SET status = 'processing' WHERE id = :id; -- expect: not-one-transaction

-- case: rows whose lock has expired are claimed again
WITH picked AS MATERIALIZED (
     SELECT id FROM outbox
      WHERE status = 'pending' OR (status = 'processing' AND locked_until < now())
      ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED)
UPDATE outbox SET status = 'processing', locked_until = now() + interval '5 minutes'
  FROM picked WHERE outbox.id = picked.id
RETURNING outbox.*;

-- case: the version check of an aggregate
UPDATE aggregates SET data = :data, version = version + 1 WHERE id = :id AND version = :expected;
