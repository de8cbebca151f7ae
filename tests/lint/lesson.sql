-- Two workers and one table: the three patterns that every introduction shows, the claim in full,
-- and what is left when one of its parts is taken away.

-- case: a lock on a known row
BEGIN;
SELECT id, amount FROM expenses WHERE id = 42 FOR UPDATE;
COMMIT;

-- case: a lock on a known row that is then written
BEGIN;
SELECT id, amount FROM expenses WHERE id = 42 FOR UPDATE;
UPDATE expenses SET amount = amount + 5 WHERE id = 42;
COMMIT;

-- case: a pull whose rows stay as they are
BEGIN;
SELECT id FROM pending_transactions -- expect: no-flip
 WHERE status = 'pending'
 ORDER BY id
 LIMIT 1
   FOR UPDATE SKIP LOCKED;
COMMIT;

-- case: a singleton by a hashed name
BEGIN;
SELECT pg_advisory_xact_lock(hashtext('expense-reconciler')); -- expect: lock-key-collides
COMMIT;

-- case: the claim in full
BEGIN;
SELECT id
  FROM pending_transactions
 WHERE status = 'pending'
 ORDER BY id
 LIMIT 1
   FOR UPDATE SKIP LOCKED;
UPDATE pending_transactions
   SET status = 'claimed',
       claimed_by = $worker_id,
       claimed_at = now()
 WHERE id = $id;
COMMIT;

-- case: the claim on two lines
BEGIN;
SELECT id FROM pending_transactions WHERE status = 'pending'
 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
UPDATE pending_transactions SET status = 'claimed' WHERE id = $id;
COMMIT;

-- case: looking at the outcome
SELECT id, status, claimed_by FROM pending_transactions ORDER BY id;

-- case: the claim without SKIP LOCKED
BEGIN;
SELECT id -- expect: no-skip-locked
  FROM pending_transactions
 WHERE status = 'pending'
 ORDER BY id
 LIMIT 1
   FOR UPDATE;
UPDATE pending_transactions SET status = 'claimed', claimed_by = $worker_id WHERE id = $id;
COMMIT;

-- case: the claim without a lock
BEGIN;
SELECT id -- expect: no-row-lock
  FROM pending_transactions
 WHERE status = 'pending'
 ORDER BY id
 LIMIT 1;
UPDATE pending_transactions SET status = 'claimed', claimed_by = $worker_id WHERE id = $id;
COMMIT;

-- case: the claim without an order
BEGIN;
SELECT id -- expect: no-order
  FROM pending_transactions
 WHERE status = 'pending'
 LIMIT 1
   FOR UPDATE SKIP LOCKED;
UPDATE pending_transactions SET status = 'claimed' WHERE id = $id;
COMMIT;

-- case: the claim without a limit
BEGIN;
SELECT id -- expect: no-limit
  FROM pending_transactions
 WHERE status = 'pending'
 ORDER BY id
   FOR UPDATE SKIP LOCKED;
UPDATE pending_transactions SET status = 'claimed' WHERE id = $id;
COMMIT;

-- case: the claim whose UPDATE flips nothing
BEGIN;
SELECT id
  FROM pending_transactions
 WHERE status = 'pending'
 ORDER BY id
 LIMIT 1
   FOR UPDATE SKIP LOCKED;
UPDATE pending_transactions SET claimed_by = $worker_id, claimed_at = now() WHERE id = $id; -- expect: no-flip
COMMIT;

-- case: the claim outside a transaction
SELECT id
  FROM pending_transactions
 WHERE status = 'pending'
 ORDER BY id
 LIMIT 1
   FOR UPDATE SKIP LOCKED;
UPDATE pending_transactions SET status = 'claimed' WHERE id = $id; -- expect: not-one-transaction

-- case: a batch of ten
-- args: --limit 10
BEGIN;
SELECT id FROM pending_transactions WHERE status = 'pending'
 ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED;
UPDATE pending_transactions SET status = 'claimed' WHERE id = ANY($ids);
COMMIT;

-- case: one row where ten were asked for
-- args: --limit 10
BEGIN;
SELECT id FROM pending_transactions WHERE status = 'pending'
 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED; -- expect: wrong-limit
UPDATE pending_transactions SET status = 'claimed' WHERE id = $id;
COMMIT;

-- case: ten rows where one was asked for
-- args: --limit 1
BEGIN;
SELECT id FROM pending_transactions WHERE status = 'pending'
 ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED; -- expect: wrong-limit
UPDATE pending_transactions SET status = 'claimed' WHERE id = ANY($ids);
COMMIT;

-- case: the work is done between the two statements
BEGIN;
SELECT id FROM pending_transactions WHERE status = 'pending'
 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
SELECT pg_sleep(5); -- expect: work-under-lock
UPDATE pending_transactions SET status = 'claimed' WHERE id = $id;
COMMIT;

-- case: everything is missing
SELECT id FROM pending_transactions WHERE status = 'pending'; -- expect: no-row-lock, no-order, no-limit
UPDATE pending_transactions SET status = 'claimed' WHERE id = $id; -- expect: not-one-transaction
