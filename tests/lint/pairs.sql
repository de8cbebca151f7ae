-- Claims of two statements, and what keeps them together.

-- case: a key from the list
BEGIN;
SELECT ticket FROM calls WHERE state = 'waiting' ORDER BY opened, ticket LIMIT 1 FOR UPDATE SKIP LOCKED;
UPDATE calls SET state = 'taken' WHERE ticket = $1;
COMMIT;

-- case: an order without the key
BEGIN;
SELECT ticket FROM calls WHERE state = 'waiting'
 ORDER BY opened LIMIT 1 FOR UPDATE SKIP LOCKED; -- expect: no-tie-break
UPDATE calls SET state = 'taken' WHERE ticket = $1;
COMMIT;

-- case: an order by a foreign key
BEGIN;
SELECT id FROM calls WHERE state = 'waiting'
 ORDER BY customer_id LIMIT 1 FOR UPDATE SKIP LOCKED; -- expect: no-tie-break
UPDATE calls SET state = 'taken' WHERE id = $1;
COMMIT;

-- case: an order by position
BEGIN;
SELECT id FROM calls WHERE state = 'waiting' ORDER BY 1 LIMIT 1 FOR UPDATE SKIP LOCKED;
UPDATE calls SET state = 'taken' WHERE id = $1;
COMMIT;

-- case: an order by the position of something else
BEGIN;
SELECT id, opened FROM calls WHERE state = 'waiting'
 ORDER BY 2 LIMIT 1 FOR UPDATE SKIP LOCKED; -- expect: no-tie-break
UPDATE calls SET state = 'taken' WHERE id = $1;
COMMIT;

-- case: the key is declared
-- skip: function
CREATE TABLE calls (number integer PRIMARY KEY, opened timestamptz, state text);
BEGIN;
SELECT * FROM calls WHERE state = 'waiting' ORDER BY opened, number LIMIT 1 FOR UPDATE SKIP LOCKED;
UPDATE calls SET state = 'taken' WHERE number = $1;
COMMIT;

-- case: the key is declared, and id is not it
-- skip: function
CREATE TABLE calls (id integer, number bigint GENERATED ALWAYS AS IDENTITY, state text);
BEGIN;
SELECT number FROM calls WHERE state = 'waiting'
 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED; -- expect: no-tie-break
UPDATE calls SET state = 'taken' WHERE number = $1;
COMMIT;

-- case: a key of two columns
-- skip: function
CREATE TABLE calls (site text, number integer, state text, CONSTRAINT calls_pkey PRIMARY KEY (site, number));
BEGIN;
SELECT site, number FROM calls WHERE state = 'waiting' ORDER BY number, site LIMIT 1 FOR UPDATE SKIP LOCKED;
UPDATE calls SET state = 'taken' WHERE site = $1 AND number = $2;
COMMIT;

-- case: half of a key
-- skip: function
CREATE TABLE calls (site text, number integer, state text);
ALTER TABLE ONLY calls ADD CONSTRAINT calls_pkey PRIMARY KEY (site, number);
WITH picked AS (
     SELECT ctid FROM calls WHERE state = 'waiting'
      ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED) -- expect: no-tie-break
UPDATE calls SET state = 'taken' FROM picked WHERE calls.ctid = picked.ctid RETURNING calls.number;

-- case: a unique index
-- skip: function
CREATE TABLE calls (number integer, state text);
CREATE UNIQUE INDEX ON calls USING btree (number);
BEGIN;
SELECT * FROM calls WHERE state = 'waiting' ORDER BY number LIMIT 1 FOR UPDATE SKIP LOCKED;
UPDATE calls SET state = 'taken' WHERE number = $1;
COMMIT;

-- case: names tell their table's key
BEGIN;
SELECT call_id FROM calls WHERE state = 'waiting' ORDER BY opened, call_id LIMIT 1 FOR UPDATE SKIP LOCKED;
UPDATE calls SET state = 'taken' WHERE call_id = $1;
COMMIT;

-- case: ORDER BY random() spreads workers on purpose
BEGIN;
SELECT id FROM calls WHERE state = 'waiting' ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED;
UPDATE calls SET state = 'taken' WHERE id = $1;
COMMIT;

-- case: the row is deleted after the work
BEGIN;
SELECT * FROM queue ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
DELETE FROM queue WHERE id = $1;
COMMIT;

-- case: committed in between
-- skip: function
BEGIN;
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
COMMIT;
BEGIN;
UPDATE jobs SET status = 'running' WHERE id = $1; -- expect: not-one-transaction
COMMIT;

-- case: START TRANSACTION and END
START TRANSACTION;
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
SAVEPOINT tried;
ROLLBACK TO SAVEPOINT tried;
UPDATE jobs SET status = 'running' WHERE id = $1;
END;

-- case: the beginning of the transaction is somewhere else
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
UPDATE jobs SET status = 'running' WHERE id = $1;
COMMIT;

-- case: autocommit is off
-- skip: function, cte, line, upper, lower, comments
\set AUTOCOMMIT off
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
UPDATE jobs SET status = 'running' WHERE id = $1;
COMMIT;

-- case: psql carries the key
-- skip: function, line, upper, comments
BEGIN;
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED \gset
UPDATE jobs SET status = 'running' WHERE id = :id;
COMMIT;

-- case: psql carries the key, and nothing was begun
-- skip: function, line, upper, comments
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED \gset job_
UPDATE jobs SET status = 'running' WHERE id = :'job_id'; -- expect: not-one-transaction

-- case: a lock alone
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED; -- expect: no-flip, not-one-transaction

-- case: a lock alone that also waits
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE; -- expect: no-skip-locked, no-flip, not-one-transaction

-- case: queries with names stand alone
-- skip: function, cte, comments, line
-- name: next_job :one
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
-- name: mark_job :exec
UPDATE jobs SET status = 'running' WHERE id = $1;

-- case: a query with a name still needs an order
-- skip: function, cte, comments, line
-- name: next_job :one
SELECT id FROM jobs WHERE status = 'pending' LIMIT 1 FOR UPDATE SKIP LOCKED; -- expect: no-order
-- name: mark_job :exec
UPDATE jobs SET status = 'running' WHERE id = $1;

-- case: waiting with a limit is a decision
BEGIN;
SET LOCAL lock_timeout = '5s';
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE;
UPDATE jobs SET status = 'running' WHERE id = $1;
COMMIT;

-- case: the table is locked
BEGIN;
LOCK TABLE jobs IN EXCLUSIVE MODE;
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1;
UPDATE jobs SET status = 'running' WHERE id = $1;
COMMIT;

-- case: one at a time by an advisory lock
BEGIN;
SELECT pg_advisory_xact_lock(4711);
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1;
UPDATE jobs SET status = 'running' WHERE id = $1;
COMMIT;

-- case: the second writer fails
-- skip: function
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1;
UPDATE jobs SET status = 'running' WHERE id = $1;
COMMIT;

-- case: the first UPDATE of the table is not the one that counts
BEGIN;
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
UPDATE jobs SET worker = 'w1' WHERE id = $1;
UPDATE jobs SET status = 'running' WHERE id = $1;
COMMIT;

-- case: waiting for a row, and then taking what is free
BEGIN;
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE;
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
UPDATE jobs SET status = 'running' WHERE id = $1;
COMMIT;

-- case: the rows are picked in a WITH
BEGIN;
WITH picked AS (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5) -- expect: no-row-lock
SELECT id FROM picked;
UPDATE jobs SET status = 'running' WHERE id = $1;
COMMIT;
