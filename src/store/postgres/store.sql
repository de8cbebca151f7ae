-- store.sql - what a connection asks first, and the store's time.
--
-- What must stay true: another role may be able to make functions and operators in a schema of the
-- session's path, and would have them run with our rights. So sessions of a store look in pg_catalog
-- alone (connection_hello); what runs before that, or on a connection that keeps the path of the role
-- because the user's own names are meant, names the schema of everything that it calls.

-- $1: the process that libpq was told of. A session that is another one's is a pooler's to give to the
-- next: nothing is set there.
-- name: connection_hello
SELECT pg_catalog.pg_backend_pid(),
       pg_catalog.pg_is_in_recovery(),
       pg_catalog.pg_postmaster_start_time(),
       (SELECT c.system_identifier FROM pg_catalog.pg_control_system() AS c),
       pg_catalog.current_setting('server_version_num')::integer,
       pg_catalog.current_setting('default_transaction_isolation')
           OPERATOR(pg_catalog.=) 'read committed',
       pg_catalog.current_setting('server_encoding') OPERATOR(pg_catalog.=) 'UTF8',
       CASE WHEN pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) $1
            THEN pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false) END;


-- name: connection_hello_bare
-- The same to a database that need not have a store, and what must be set there: as SQL for the
-- session, and for each transaction when there is a pooler in between. Results are then the same
-- whatever the role or the database was set to, and commits are durable.
WITH wanted (name, value, fits) AS (
    VALUES ('synchronous_commit', 'on',
            pg_catalog.current_setting('synchronous_commit')
                OPERATOR(pg_catalog.=) ANY ('{on, remote_apply}'::pg_catalog.text[])),
           ('lock_timeout', '0',
            pg_catalog.current_setting('lock_timeout') OPERATOR(pg_catalog.=) '0'),
           ('datestyle', 'ISO',
            pg_catalog.starts_with(pg_catalog.current_setting('datestyle'), 'ISO')),
           ('intervalstyle', 'postgres',
            pg_catalog.current_setting('intervalstyle') OPERATOR(pg_catalog.=) 'postgres'),
           ('extra_float_digits', '1',
            pg_catalog.current_setting('extra_float_digits')::integer OPERATOR(pg_catalog.>) 0)
), unfit (line) AS (
    SELECT pg_catalog.concat(name, ' = ', value) FROM wanted WHERE NOT fits
)
SELECT pg_catalog.pg_backend_pid(),
       pg_catalog.pg_is_in_recovery(),
       pg_catalog.pg_postmaster_start_time(),
       0::bigint,
       pg_catalog.current_setting('server_version_num')::integer,
       pg_catalog.current_setting('default_transaction_isolation')
           OPERATOR(pg_catalog.=) 'read committed',
       pg_catalog.current_setting('server_encoding') OPERATOR(pg_catalog.<>) 'SQL_ASCII',
       (SELECT coalesce(pg_catalog.string_agg(pg_catalog.concat('SET SESSION ', line), '; '), '')
          FROM unfit),
       (SELECT coalesce(pg_catalog.string_agg(pg_catalog.concat('SET LOCAL ', line), '; '), '')
          FROM unfit);

-- name: connection_read_committed
SET default_transaction_isolation = 'read committed';

-- name: connection_test_clock
SELECT pg_catalog.set_config('weir_test.clock', $1, false);

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
