-- postgres.sql - named locks of sessions. :key is the number of a name, :high and :low its halves;
-- they are written in as numbers, because several of these go together in one round trip, which has
-- no parameters. Each of them has a snapshot of its own.

-- name: lock_setup
-- A session that may be idle or wait for as long as it takes, and that the server ends when nothing
-- has been heard from the client for longer than its program may still be running.
SELECT set_config('statement_timeout', '0', false),
       set_config('idle_session_timeout', '0', false),
       set_config('lock_timeout', ':wait', true),
       set_config('client_connection_check_interval', '2s', false),
       set_config('tcp_keepalives_idle', ':idle', false),
       set_config('tcp_keepalives_interval', '5', false),
       set_config('tcp_keepalives_count', '3', false),
       set_config('tcp_user_timeout', ':idle000', false);

-- name: lock_try
SELECT pg_try_advisory_lock(:key);

-- name: lock_wait
SELECT pg_advisory_lock(:key);

-- name: lock_acquired
-- Whether this session has it; and only then, because what was there before proves nothing, whether
-- there is a store, whose leases count as well.
SELECT EXISTS (SELECT FROM pg_catalog.pg_locks
                WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND granted
                  AND classid = :high AND objid = :low AND objsubid = 1),
       EXISTS (SELECT FROM pg_catalog.pg_class AS c
                 JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
                WHERE n.nspname = :schema AND c.relname = 'locks' AND c.relkind = 'r'),
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- name: lock_check
SELECT EXISTS (SELECT FROM pg_catalog.pg_locks
                WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND granted
                  AND classid = :high AND objid = :low AND objsubid = 1);

-- name: lock_free
-- For who holds a lease: that no session has the name. It is free again at once.
SELECT pg_try_advisory_xact_lock(:key);

-- name: lock_sessions
-- Who has the number, and who waits for it. Of others' sessions a role may see little more than the
-- application's name.
SELECT l.classid::bigint << 32 | l.objid::bigint, l.granted, l.pid, a.application_name,
       a.query, a.usename,
       (extract(epoch FROM coalesce(CASE WHEN l.granted THEN a.query_start ELSE l.waitstart END,
                                    a.query_start)) * 1000000)::bigint
  FROM pg_catalog.pg_locks AS l
  JOIN pg_catalog.pg_stat_activity AS a USING (pid)
 WHERE l.locktype = 'advisory' AND l.objsubid = 1
   AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
   AND (l.classid = :high AND l.objid = :low OR :all AND a.application_name LIKE 'weir lock %')
 ORDER BY l.granted DESC, l.pid;
