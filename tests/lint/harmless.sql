-- Statements without a claim, or with a good one: nothing is to be found.

-- case: a list of pages
SELECT id, title FROM posts WHERE published ORDER BY created_at DESC LIMIT 10 OFFSET 20;

-- case: a list, and a counter of one of its rows
SELECT id, title FROM posts ORDER BY created_at DESC LIMIT 10;
UPDATE posts SET views = views + 1 WHERE id = $1;

-- case: a bulk update
UPDATE employees SET salary = salary * 1.02 WHERE department IN (SELECT id FROM departments WHERE city = 'Graz');

-- case: a bulk update of the same table
UPDATE employees SET salary = salary * 1.02 WHERE id IN (SELECT id FROM employees WHERE grade = 3);

-- case: a change of state of all rows
UPDATE invoices SET status = 'overdue' WHERE status = 'open' AND due < current_date;

-- case: everything taken at once, guarded
UPDATE jobs SET status = 'running' WHERE status = 'pending' RETURNING id;

-- case: a migration in portions
UPDATE users SET name_folded = lower(name) WHERE id IN (SELECT id FROM users WHERE name_folded IS NULL LIMIT 1000);

-- case: old rows deleted in portions
DELETE FROM log WHERE id IN (SELECT id FROM log WHERE at < now() - interval '30 days' LIMIT 1000);

-- case: old rows deleted in portions, in order
DELETE FROM log WHERE id IN (SELECT id FROM log WHERE at < now() - interval '30 days' ORDER BY at LIMIT 1000);

-- case: rows locked in order, so that nobody waits in a circle
BEGIN;
SELECT id FROM accounts WHERE id IN ($1, $2) ORDER BY id FOR UPDATE;
UPDATE accounts SET balance = balance - 10 WHERE id = $1;
UPDATE accounts SET balance = balance + 10 WHERE id = $2;
COMMIT;

-- case: somebody's rows
BEGIN;
SELECT id, quantity FROM lines WHERE order_id = $1 ORDER BY id FOR UPDATE;
UPDATE lines SET quantity = 0 WHERE order_id = $1;
COMMIT;

-- case: the last entry of an account
BEGIN;
SELECT balance FROM ledger WHERE account_id = $1 ORDER BY id DESC LIMIT 1 FOR UPDATE;
INSERT INTO ledger (account_id, balance) VALUES ($1, $2);
COMMIT;

-- case: a known row, or none
BEGIN;
SELECT * FROM jobs WHERE id = $1 FOR UPDATE SKIP LOCKED;
UPDATE jobs SET status = 'running' WHERE id = $1;
COMMIT;

-- case: a known row, at once or not at all
BEGIN;
SELECT * FROM jobs WHERE id = $1 AND status = 'pending' FOR UPDATE NOWAIT;
UPDATE jobs SET status = 'running' WHERE id = $1;
COMMIT;

-- case: a share lock on a parent
BEGIN;
SELECT 1 FROM customers WHERE active AND region = 'at' LIMIT 1 FOR KEY SHARE;
INSERT INTO orders (customer_id) VALUES ($1);
COMMIT;

-- case: an upsert
INSERT INTO counters (name, n) VALUES ('a', 1) ON CONFLICT (name) DO UPDATE SET n = counters.n + 1 RETURNING n;

-- case: a queue that is filled
INSERT INTO jobs (status, payload) SELECT 'pending', payload FROM incoming WHERE valid ORDER BY id LIMIT 100;

-- case: a report
SELECT status, count(*) FROM jobs GROUP BY status HAVING count(*) > 5 ORDER BY 2 DESC LIMIT 3;

-- case: a report, and then one row
SELECT count(*) FROM jobs WHERE status = 'pending';
UPDATE jobs SET status = 'cancelled' WHERE id = 7;

-- case: tables, views and rights
CREATE TABLE jobs (id bigserial PRIMARY KEY, status text NOT NULL DEFAULT 'pending');
CREATE INDEX jobs_ready ON jobs (id) WHERE status = 'pending';
CREATE VIEW ready AS SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 10;
GRANT SELECT, UPDATE ON jobs TO worker;
CREATE TRIGGER touched BEFORE UPDATE OF status ON jobs FOR EACH ROW EXECUTE FUNCTION touch();
CREATE POLICY own ON jobs FOR UPDATE USING (owner = current_user);
CREATE RULE gone AS ON DELETE TO ready DO INSTEAD (UPDATE jobs SET status = 'gone' WHERE id = old.id; NOTIFY jobs);

-- case: finishing what was claimed
UPDATE jobs SET status = 'done', finished_at = now() WHERE id = $1 AND worker = $2 AND fence = $3;

-- case: a lease given back
UPDATE jobs SET status = 'pending', worker = NULL, locked_until = NULL WHERE id = $1 AND worker = $2;

-- case: a lease made longer
UPDATE jobs SET locked_until = now() + interval '5 minutes' WHERE id = $1 AND worker = $2 AND locked_until > now();

-- case: leases that have ended
UPDATE jobs SET status = 'pending', worker = NULL WHERE status = 'running' AND locked_until < now();

-- case: a merge
MERGE INTO stock AS s USING arrivals AS a ON s.item = a.item
 WHEN MATCHED THEN UPDATE SET n = s.n + a.n WHEN NOT MATCHED THEN INSERT (item, n) VALUES (a.item, a.n);

-- case: a tree
WITH RECURSIVE tree (id, depth) AS (
     SELECT id, 0 FROM nodes WHERE parent IS NULL UNION ALL
     SELECT n.id, depth + 1 FROM nodes AS n JOIN tree AS t ON n.parent = t.id)
SELECT id FROM tree ORDER BY depth, id LIMIT 100;

-- case: a lock by name
BEGIN;
SELECT pg_advisory_xact_lock(hashtextextended('reconciler', 0));
UPDATE runs SET at = now() WHERE name = 'reconciler';
COMMIT;

-- case: sleeping without a lock
SELECT pg_sleep(0.1);
SELECT http_get('https://example.org');

-- case: identifiers made by the database
INSERT INTO orders (id, created_at) VALUES (gen_random_uuid(), now()) RETURNING id;

-- case: two tables, read and written apart
BEGIN;
SELECT id FROM templates WHERE kind = 'mail' ORDER BY id LIMIT 1;
UPDATE mails SET template_id = $1 WHERE id = $2;
COMMIT;

-- case: a window
SELECT id, row_number() OVER (PARTITION BY customer ORDER BY at DESC) FROM orders WHERE status = 'open';

-- case: a claim of a parent's children by a guarded update
BEGIN;
SELECT id FROM seats WHERE status = 'free' AND show_id = $1 ORDER BY id LIMIT 2;
UPDATE seats SET status = 'held' WHERE id = ANY ($2) AND status = 'free' RETURNING id;
COMMIT;

-- case: the first of a kind is read, and something else of it written
SELECT id, name FROM plans WHERE active ORDER BY price LIMIT 1;
UPDATE plans SET note = $2 WHERE id = $1;

-- case: the row that belongs to another one
BEGIN;
SELECT u.name, h.version
  FROM unnest($1) AS u (name)
  LEFT JOIN LATERAL (SELECT s.version FROM streams AS s WHERE s.name = u.name FOR NO KEY UPDATE SKIP LOCKED) AS h ON true;
UPDATE streams SET version = version + 1 WHERE name = ANY ($1);
COMMIT;

-- case: whether a row is free
BEGIN;
SELECT 1 FROM progress WHERE position < $1 FOR NO KEY UPDATE SKIP LOCKED;
UPDATE progress SET position = $1 WHERE position < $1;
COMMIT;
