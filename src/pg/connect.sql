-- connect.sql - what a connection asks first.

-- name: connection_hello
SELECT pg_backend_pid(),
       pg_is_in_recovery(),
       pg_postmaster_start_time(),
       (SELECT system_identifier FROM pg_control_system()),
       current_setting('server_version_num')::integer,
       current_setting('default_transaction_isolation') = 'read committed',
       current_setting('server_encoding') = 'UTF8';

-- name: connection_hello_foreign
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
