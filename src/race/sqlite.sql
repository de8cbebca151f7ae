-- sqlite.sql - a race on SQLite. weir_race_table stands for the name of its table.

-- name: sqlite_make
CREATE TABLE weir_race_table (
    id INTEGER PRIMARY KEY,
    status TEXT NOT NULL DEFAULT 'pending',
    claimed_by TEXT,
    claimed_at TEXT
);

-- name: sqlite_fill
-- $1: how many rows.
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < $1)
INSERT INTO weir_race_table (id) SELECT n FROM number WHERE n <= $1;

-- name: sqlite_look
-- What --mode none does; and what --mode autocommit does, which has the database to itself
-- (BEGIN IMMEDIATE), but only until it has looked.
SELECT id FROM weir_race_table WHERE status = 'pending' ORDER BY id LIMIT $1;

-- name: sqlite_mark
-- $1: a row, $2: a worker. Asks nothing about who has the row: it is the UPDATE of the wrong ways,
-- and that of a worker that holds the database.
UPDATE weir_race_table
   SET status = 'done', claimed_by = $2, claimed_at = strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')
 WHERE id = $1
RETURNING status;

-- name: sqlite_rows
SELECT id, status, claimed_by, claimed_at FROM weir_race_table ORDER BY id;

-- name: sqlite_left
SELECT name FROM sqlite_schema
 WHERE type = 'table' AND name GLOB 'weir_race_' || replace(hex(zeroblob(8)), '0', '[0-9a-f]')
 ORDER BY name
 LIMIT 100;

-- name: sqlite_drop
DROP TABLE weir_race_table;
