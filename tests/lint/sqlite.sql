-- Claims in SQLite: a writer has the whole database, so BEGIN IMMEDIATE is the lock.

-- case: one statement
-- args: --dialect sqlite
-- skip: function
UPDATE jobs SET status = 'running'
 WHERE id IN (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5)
RETURNING *;

-- case: one statement in a transaction that says what it is
-- skip: function
BEGIN IMMEDIATE;
UPDATE jobs SET status = 'running', claimed_at = datetime('now')
 WHERE id IN (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5)
RETURNING *;
COMMIT;

-- case: two statements
-- skip: function
BEGIN IMMEDIATE;
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1;
UPDATE jobs SET status = 'running' WHERE id = ?1;
COMMIT;

-- case: two statements that a second writer can come between
-- skip: function
PRAGMA busy_timeout = 5000;
BEGIN;
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1; -- expect: no-row-lock
UPDATE jobs SET status = 'running' WHERE id = ?1;
COMMIT;

-- case: two statements, each for itself
-- skip: function
-- args: --dialect sqlite
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1; -- expect: no-row-lock
UPDATE jobs SET status = 'running' WHERE id = @id; -- expect: not-one-transaction

-- case: no order and no flip
-- skip: function
BEGIN IMMEDIATE;
UPDATE jobs SET worker = 'w1' -- expect: no-flip
 WHERE id IN (SELECT id FROM jobs WHERE status = 'pending' LIMIT 5) -- expect: no-order
RETURNING *;
COMMIT;

-- case: rowid
-- skip: function
BEGIN EXCLUSIVE;
UPDATE jobs SET status = 'running'
 WHERE rowid IN (SELECT rowid FROM jobs WHERE status = 'pending' ORDER BY priority, rowid LIMIT 5)
RETURNING *;
COMMIT;

-- case: a key of the second
-- skip: function
-- args: --dialect sqlite
INSERT INTO runs (idempotency_key) VALUES ('run-' || strftime('%s', 'now')); -- expect: key-changes
INSERT INTO runs (idempotency_key) VALUES ('run-' || date('now'));

-- case: a trigger is a body
-- skip: function, cte
CREATE TRIGGER taken AFTER UPDATE OF status ON jobs BEGIN
    INSERT INTO runs (idempotency_key) VALUES (hex(randomblob(8))); -- expect: key-changes
END;
.mode csv
.import "it's a file" jobs
SELECT 1;

-- case: the dialect can be told
-- skip: function
-- args: --dialect postgres
UPDATE jobs SET status = 'running'
 WHERE id IN (SELECT id FROM jobs WHERE status = 'pending' AND at < unixepoch() ORDER BY id LIMIT 5) -- expect: no-row-lock
RETURNING *;
