-- postgres.sql - named locks of sessions. :key is the number of a name, :high and :low its halves,
-- :pid the process that the connection was opened with; they are written in as numbers, because
-- several of these go together in one round trip, which has no parameters.
--
-- Another role may have made functions and operators in a schema of the session's path: statements
-- look in pg_catalog alone, or write it out where they stand alone in their text.

-- name: lock_begin
-- Each statement has a snapshot of its own, whatever the role was set to.
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL search_path = pg_catalog, pg_temp;

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
       set_config('tcp_user_timeout', ':idle000', false)
 WHERE pg_backend_pid() = :pid;

-- name: lock_try
-- Not in a session that is a pooler's to give to the next, and not on a standby, whose locks are its
-- own. The answer is kept until the transaction ends.
SELECT set_config('weir_lock.held',
                  (CASE WHEN pg_backend_pid() = :pid AND NOT pg_is_in_recovery()
                        THEN pg_try_advisory_lock(:key) ELSE false END)::text, true);

-- name: lock_wait
SELECT set_config('weir_lock.held',
                  (CASE WHEN pg_backend_pid() = :pid AND NOT pg_is_in_recovery()
                        THEN pg_advisory_lock(:key)::text = '' ELSE false END)::text, true);

-- name: lock_acquired
-- Whether this session has it; and only then, because what was there before proves nothing, whether
-- there is a store, whose leases count as well.
SELECT current_setting('weir_lock.held'),
       EXISTS (SELECT FROM pg_catalog.pg_class
                WHERE relname = 'locks' AND relnamespace = to_regnamespace(:schema)
                  AND relkind = 'r'),
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       pg_backend_pid() = :pid,
       pg_is_in_recovery();

-- name: lock_commit
COMMIT;

-- name: lock_check
SELECT EXISTS (SELECT FROM pg_catalog.pg_locks AS l
                WHERE l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()
                  AND l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
                  AND l.classid OPERATOR(pg_catalog.=) :high
                  AND l.objid OPERATOR(pg_catalog.=) :low
                  AND l.objsubid OPERATOR(pg_catalog.=) 1);

-- Before the session ends: a server that is busy notices only later that its client is gone.
-- name: lock_end
SELECT pg_catalog.pg_advisory_unlock_all();

-- name: lock_free
-- For who holds a lease: that no session has the name. It is free again at once.
SELECT pg_catalog.pg_try_advisory_xact_lock(:key);

-- name: lock_sessions
-- Who has the number, and who waits for it. Of others' sessions a role may see little more than the
-- application's name.
SET LOCAL search_path = pg_catalog, pg_temp;
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
