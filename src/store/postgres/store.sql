-- store.sql - what a connection asks first, and the store's time.

-- name: connection_hello
SELECT pg_backend_pid(),
       pg_is_in_recovery(),
       pg_postmaster_start_time(),
       (SELECT system_identifier FROM pg_control_system()),
       current_setting('server_version_num')::integer,
       current_setting('default_transaction_isolation') = 'read committed',
       current_setting('server_encoding') = 'UTF8';

-- name: connection_hello_bare
-- The same to a database that need not have a store, and what must be set there: as SQL for the
-- session, and for each transaction when there is a pooler in between. Results are then the same
-- whatever the role or the database was set to, and commits are durable.
WITH wanted (name, value, fits) AS (
    VALUES ('synchronous_commit', 'on',
            current_setting('synchronous_commit') IN ('on', 'remote_apply')),
           ('lock_timeout', '0', current_setting('lock_timeout') = '0'),
           ('datestyle', 'ISO', current_setting('datestyle') LIKE 'ISO%'),
           ('intervalstyle', 'postgres', current_setting('intervalstyle') = 'postgres'),
           ('extra_float_digits', '1', current_setting('extra_float_digits')::integer > 0)
)
SELECT pg_backend_pid(),
       pg_is_in_recovery(),
       pg_postmaster_start_time(),
       0::bigint,
       current_setting('server_version_num')::integer,
       current_setting('default_transaction_isolation') = 'read committed',
       current_setting('server_encoding') <> 'SQL_ASCII',
       (SELECT coalesce(string_agg(format('SET SESSION %s = %s', name, value), '; '), '')
          FROM wanted WHERE NOT fits),
       (SELECT coalesce(string_agg(format('SET LOCAL %s = %s', name, value), '; '), '')
          FROM wanted WHERE NOT fits);

-- name: connection_read_committed
SET default_transaction_isolation = 'read committed';

-- name: connection_test_clock
SELECT set_config('weir_test.clock', $1, false);

-- name: store_now
SELECT weir.clock_us();

-- Once for a store: processes that replace the same function at the same time fail.
-- name: store_test_clock
DO $once$
BEGIN
    PERFORM pg_advisory_xact_lock(1465207122, hashtext('test clock'));
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

-- name: store_seed_versions
UPDATE weir.store SET version_base = $1
 WHERE NOT EXISTS (SELECT FROM weir.events)
RETURNING one;

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
