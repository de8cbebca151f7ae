-- schema_3.sql - what schema 3 changes: streams have no rows of their own any more. A stream is its
-- events; its head is the last of them. A new store gets schema 1, 2 and this.

-- name: schema_3
-- Whoever appends has touched weir.store before anything else, and then holds the store's lock until
-- its transaction ends. So first the table: who is already in goes on, who comes waits there, holding
-- nothing that is wanted below. Then nobody is left who appends by the old rules.
LOCK TABLE weir.store IN ACCESS EXCLUSIVE MODE;
SELECT pg_advisory_xact_lock({store_lock}, s.number) FROM weir.store AS s;

-- Clients of schema 1 and 2 hold streams by their rows, which is not what others look at now. They are
-- told that a function is not there, or a column, and have written nothing.
DROP FUNCTION IF EXISTS weir.append;
DROP FUNCTION IF EXISTS weir.append_one;
DROP FUNCTION IF EXISTS weir.append_batch;
DROP FUNCTION IF EXISTS weir.append_single;
DROP FUNCTION IF EXISTS weir.append_write;
DROP FUNCTION IF EXISTS weir.append_wait;
DROP FUNCTION IF EXISTS weir.append_create;
DROP FUNCTION IF EXISTS weir.append_hash;
DROP FUNCTION IF EXISTS weir.append_time;
DROP FUNCTION IF EXISTS weir.settle_with;
DROP FUNCTION IF EXISTS weir.subscribe;

-- The number that tells this store's locks from those of others, as a constant: whoever takes a lock and
-- whoever looks for it must have the same one.
DO $number$
BEGIN
    EXECUTE $sql$CREATE OR REPLACE FUNCTION weir.number() RETURNS integer
        LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$SELECT $sql$
        || (SELECT s.number FROM weir.store AS s) || $sql$$body$$sql$;
END
$number$;

-- Where versions begin. Tests of large numbers have another one.
CREATE OR REPLACE FUNCTION weir.version_base() RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT 0::bigint';
ALTER TABLE weir.store DROP COLUMN IF EXISTS version_base;

-- Streams that have lost their first events, and the version of the first that is still there. removed:
-- how often events were removed. Nothing removes any yet; clients of this schema know what to expect.
CREATE TABLE IF NOT EXISTS weir.truncated (
    stream text COLLATE "C" PRIMARY KEY,
    first bigint NOT NULL
);
ALTER TABLE weir.store ADD COLUMN IF NOT EXISTS removed bigint NOT NULL DEFAULT 0;

-- The names of all streams, in order. An operator may have made it before, to keep the upgrade short.
CREATE UNIQUE INDEX IF NOT EXISTS events_first ON weir.events (stream) WHERE version = 0;
DO $streams$
BEGIN
    IF (SELECT c.relkind FROM pg_class AS c WHERE c.oid = to_regclass('weir.streams')) = 'r' THEN
        DROP TABLE weir.streams;
    END IF;
END
$streams$;

-- For people, and for what asks for one stream by its name.
CREATE OR REPLACE VIEW weir.streams AS
SELECT f.stream AS name, l.version, l.id AS last_id, f.created, l.created AS updated,
       l.name = '$closed' AS closed
  FROM (SELECT e.stream, e.created FROM weir.events AS e WHERE e.version = 0
        UNION ALL
        SELECT t.stream, e.created
          FROM weir.truncated AS t
          JOIN weir.events AS e ON e.stream = t.stream AND e.version = t.first) AS f
 CROSS JOIN LATERAL (SELECT e.version, e.id, e.created, e.name FROM weir.events AS e
                      WHERE e.stream = f.stream ORDER BY e.version DESC LIMIT 1) AS l;
