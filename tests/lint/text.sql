-- What is a comment, a string or a name, and what is not.

-- case: a lock in a comment locks nothing
-- skip: comments
BEGIN;
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 -- FOR UPDATE SKIP LOCKED
; -- expect-above: no-row-lock
UPDATE jobs SET status = 'running' WHERE id = $1;
COMMIT;

-- case: comments nest
BEGIN;
SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 /* a /* b */ FOR UPDATE SKIP LOCKED */; -- expect: no-row-lock
UPDATE jobs SET status = 'running' WHERE id = $1;
COMMIT;

-- case: a string that looks like a statement
SELECT 'it''s BEGIN; SELECT id FROM jobs LIMIT 1 FOR UPDATE SKIP LOCKED; -- ', E'\'; /* ', U&'\0041; ';

-- case: a backslash ends nothing in a plain string
BEGIN;
SELECT id FROM jobs WHERE status = 'a\' LIMIT 1 FOR UPDATE SKIP LOCKED; -- expect: no-order
UPDATE jobs SET status = 'b' WHERE id = $1;
COMMIT;

-- case: a backslash in E'' escapes the quote
SELECT E'\' FOR UPDATE SKIP LOCKED; SELECT id FROM jobs FOR UPDATE SKIP LOCKED; --';

-- case: dollar quotes with tags
SELECT $a$ $b$ ; SELECT id FROM jobs FOR UPDATE SKIP LOCKED; $b$ ' $a$, $$ /* $$;

-- case: keywords as names
SELECT j."from", j.limit, j."for" AS "order", "select" FROM "update" AS j WHERE j."set" = 'FOR UPDATE' ORDER BY j."where";

-- case: operators, casts and jsonb
SELECT a::jsonb ? 'limit', b @> '{"for": "update"}', c->>'x', d #>> '{a,b}', -1, 2 - -3, 1.5e-3, x[1:2]
  FROM t WHERE a IS NOT DISTINCT FROM b AND c <> d;

-- case: the data of COPY is not SQL
-- skip: function, line, comments, lower, upper
COPY jobs (id, status) FROM stdin;
1	it's FOR UPDATE SKIP LOCKED; SELECT (
2	\N
\.
SELECT 1;

-- case: COPY and then a claim
-- skip: function, line, comments, lower, upper
COPY jobs (id, status) FROM stdin WITH (FORMAT csv);
1,'
\.
SELECT id FROM jobs WHERE status = 'pending' LIMIT 1 FOR UPDATE SKIP LOCKED; -- expect: no-order, no-flip, not-one-transaction

-- case: lines for psql
-- skip: function, line, comments, lower, upper
\set ON_ERROR_STOP on
\echo it's a line; with (everything
SELECT 1 AS "a"
\set x 'in the middle'
     , 2;
SELECT id FROM jobs WHERE status = 'pending' LIMIT 1 FOR UPDATE SKIP LOCKED \; SELECT 2 \g /tmp/it's -- expect: no-order, no-flip, not-one-transaction

-- case: what was allowed is not found
-- skip: function, comments, line
-- weir:allow no-order: any row will do
SELECT id FROM jobs WHERE status = 'pending' LIMIT 1 FOR UPDATE SKIP LOCKED; -- expect: no-flip, not-one-transaction
SELECT id FROM jobs WHERE status = 'pending' LIMIT 1 FOR UPDATE SKIP LOCKED; -- weir:allow no-flip, not-one-transaction, no-order
SELECT id FROM jobs WHERE status = 'pending' /* weir:allow no-flip */ LIMIT 1 FOR UPDATE SKIP LOCKED; -- expect: no-order, not-one-transaction

-- case: a name with an umlaut, and a claim after it
UPDATE aufträge SET zustand = 'läuft', bearbeiter = 'ö'
 WHERE id IN (SELECT id FROM aufträge WHERE zustand = 'offen' ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED) -- expect: limit-not-kept
RETURNING *;
