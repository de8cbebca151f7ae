-- Work while rows are locked, advisory locks, keys of idempotency.

-- case: a call to another machine
BEGIN;
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
SELECT status FROM http_post('https://example.org', '{}', 'application/json'); -- expect: work-under-lock
UPDATE jobs SET status = 'done' WHERE id = $1;
COMMIT;

-- case: a call after the commit
-- skip: function
BEGIN;
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
UPDATE jobs SET status = 'running' WHERE id = $1;
COMMIT;
SELECT status FROM http_post('https://example.org', '{}', 'application/json');
UPDATE jobs SET status = 'done' WHERE id = $1;

-- case: a request that is only queued
BEGIN;
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
SELECT net.http_post('https://example.org');
NOTIFY jobs;
UPDATE jobs SET status = 'done' WHERE id = $1;
COMMIT;

-- case: a program and a second database
BEGIN;
SELECT balance FROM accounts WHERE id = 1 FOR UPDATE;
COPY (SELECT 1) TO PROGRAM 'mail -s paid someone@example.org'; -- expect: work-under-lock
SELECT * FROM dblink('host=other', 'SELECT 1') AS t (n integer); -- expect: work-under-lock
UPDATE accounts SET balance = balance - 1 WHERE id = 1;
COMMIT;

-- case: a shell while psql holds the row
-- skip: function, line, comments
BEGIN;
SELECT balance FROM accounts WHERE id = 1 FOR UPDATE;
\! ./pay
UPDATE accounts SET balance = balance - 1 WHERE id = 1; -- expect-above: work-under-lock
COMMIT;

-- case: sleeping before anything is locked
BEGIN;
SELECT pg_sleep(1);
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
UPDATE jobs SET status = 'running' WHERE id = $1;
COMMIT;

-- case: 32 bits in every way
SELECT pg_try_advisory_lock(hashtext($1)); -- expect: lock-key-collides
SELECT pg_advisory_lock(7, hashtext($1)); -- expect: lock-key-collides
SELECT pg_advisory_xact_lock(('x' || substr(md5($1), 1, 8))::bit(32)::int); -- expect: lock-key-collides
SELECT pg_advisory_xact_lock_shared(crc32($1)); -- expect: lock-key-collides
SELECT pg_advisory_lock(hashtextextended($1, 0)::int); -- expect: lock-key-collides

-- case: 64 bits, and plain numbers
SELECT pg_advisory_lock(hashtextextended($1, 0));
SELECT pg_advisory_xact_lock(('x' || substr(md5($1), 1, 16))::bit(64)::bigint);
SELECT pg_advisory_lock(1, 42);
SELECT pg_advisory_unlock(hashtext($1));
SELECT hashtext(name) % 16 AS shard FROM jobs;

-- case: locks of rows that are not returned
SELECT id FROM jobs WHERE status = 'pending' AND pg_try_advisory_xact_lock(id) ORDER BY id LIMIT 1; -- expect: lock-not-returned
SELECT pg_advisory_lock(id) FROM jobs WHERE id > 100 LIMIT 100; -- expect: lock-not-returned

-- case: locks of rows that are
SELECT pg_advisory_lock(q.id) FROM (SELECT id FROM jobs WHERE id > 100 LIMIT 100) AS q;
SELECT id FROM jobs WHERE pg_try_advisory_lock(id);

-- case: a time in a key
INSERT INTO emails (run_id, idempotency_key) VALUES ($1, 'mail-' || $1 || '-' || now()); -- expect: key-changes
INSERT INTO emails (idempotency_key, run_id) SELECT run_id || clock_timestamp()::text, run_id FROM runs; -- expect: key-changes
UPDATE emails SET idempotency_key = md5(run_id || current_timestamp) WHERE id = $1; -- expect: key-changes
SELECT gen_random_uuid() AS idempotency_key; -- expect: key-changes
INSERT INTO outbox (dedup_key) VALUES (random()::text); -- expect: key-changes

-- case: what belongs into a key
INSERT INTO emails (run_id, idempotency_key, sent_at) VALUES ($1, 'mail-' || $1, now());
INSERT INTO emails (id, idempotency_key) SELECT gen_random_uuid(), 'mail-' || run_id FROM runs;
INSERT INTO runs (idempotency_key) VALUES ('nightly-' || current_date);
INSERT INTO runs (idempotency_key) VALUES ('nightly-' || now()::date);
INSERT INTO runs (idempotency_key) VALUES ('hourly-' || date_trunc('hour', now()));
INSERT INTO runs (idempotency_key) VALUES ('nightly-' || to_char(now(), 'YYYY-MM-DD'));

-- case: a key with seconds
INSERT INTO runs (idempotency_key) VALUES ('run-' || to_char(now(), 'YYYYMMDDHH24MISS')); -- expect: key-changes
INSERT INTO runs (idempotency_key) VALUES ('run-' || date_trunc('second', now())); -- expect: key-changes

-- case: the second row of several
INSERT INTO runs (name, idempotency_key) VALUES ('a', 'a-1'),
  ('b', 'b-' || now()); -- expect: key-changes
