-- store.sql - the store's time, and whether there is a store.

-- name: connection_test_clock
SELECT pg_catalog.set_config('weir_test.clock', $1, false);

-- name: store_now
SELECT weir.clock_us();

-- Once for a store: processes that replace the same function at the same time fail.
-- name: store_test_clock
DO $once$
BEGIN
    PERFORM pg_advisory_xact_lock({store_lock}, hashtext('test clock'));
    IF (SELECT prosrc FROM pg_proc WHERE oid = 'weir.clock()'::regprocedure) !~ 'weir_test' THEN
        CREATE OR REPLACE FUNCTION weir.clock() RETURNS timestamptz
        LANGUAGE sql VOLATILE AS $$
            SELECT coalesce('epoch'::timestamptz
                + nullif(current_setting('weir_test.clock', true), '')::bigint
                * interval '1 microsecond', clock_timestamp())
        $$;
    END IF;
END
$once$;

-- Whoever makes or upgrades a store adds the two.
-- name: store_versions
UPDATE weir.store SET (schema, client_least) =

-- name: store_row
SELECT schema, client_least, epoch, number FROM weir.store;

-- name: store_seed_positions
SELECT setval('weir.positions', greatest($1, 1), $1 > 0)
 WHERE NOT EXISTS (SELECT FROM weir.events);

-- Tests add the body.
-- name: store_seed_versions
CREATE OR REPLACE FUNCTION weir.version_base() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS

-- name: store_exists
-- $1: the schema's name. Whether there is a store, whether there is at least the schema, and whether
-- the store has what schema 1 got last: the table of workers, and what they count; locks.
SELECT to_regclass('weir.store') IS NOT NULL,
       EXISTS (SELECT FROM pg_catalog.pg_namespace AS n WHERE n.nspname = $1),
       to_regclass('weir.workers') IS NOT NULL,
       EXISTS (SELECT FROM pg_catalog.pg_attribute AS a
                WHERE a.attrelid = to_regclass('weir.reactions') AND a.attname = 'attempts'
                  AND NOT a.attisdropped),
       to_regclass('weir.locks') IS NOT NULL;
