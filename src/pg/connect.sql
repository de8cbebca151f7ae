-- connect.sql - what a connection asks first.
--
-- What must stay true: another role may be able to make functions and operators in a schema of the
-- session's path, and would have them run with our rights. So sessions that are ours look in pg_catalog
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

-- name: connection_hello_foreign
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
