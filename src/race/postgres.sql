-- postgres.sql - a race on PostgreSQL. weir_race_table stands for the name of its table.

-- name: postgres_make
CREATE TABLE weir_race_table (
    id integer PRIMARY KEY,
    status text NOT NULL DEFAULT 'pending',
    claimed_by text,
    claimed_at timestamptz
);

-- name: postgres_fill
-- $1: how many rows.
INSERT INTO weir_race_table (id) SELECT generate_series(1, CAST($1 AS integer));

-- name: postgres_look
-- What --mode none does: nothing keeps another from seeing the same rows.
SELECT id FROM weir_race_table WHERE status = 'pending' ORDER BY id LIMIT $1;

-- name: postgres_look_locked
-- What --mode autocommit does, in a transaction that ends before anything was written.
SELECT id FROM weir_race_table WHERE status = 'pending' ORDER BY id LIMIT $1 FOR UPDATE;

-- name: postgres_mark
-- $1: a row, $2: a worker. Asks nothing about who has the row: it is the UPDATE of the wrong ways,
-- and that of a worker that holds its lock.
UPDATE weir_race_table SET status = 'done', claimed_by = $2, claimed_at = now()
 WHERE id = $1
RETURNING status;

-- name: postgres_rows
SELECT id, status, claimed_by,
       to_char(claimed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
  FROM weir_race_table
 ORDER BY id;

-- name: postgres_left
-- Tables of races, where this session would find them.
SELECT relname
  FROM pg_catalog.pg_class
 WHERE relkind = 'r' AND relname ~ '^weir_race_[0-9a-f]{16}$' AND pg_catalog.pg_table_is_visible(oid)
 ORDER BY relname
 LIMIT 100;

-- name: postgres_drop
DROP TABLE weir_race_table;
