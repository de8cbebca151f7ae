-- listener.sql - what the connection that listens says (listener.c).
--
-- LISTEN and NOTIFY have no parameters: listener.c puts the name of a channel in the place of
-- `weir_channel`. The path of the session that listens is the role's own, so whatever is called is named
-- with its schema.
--
-- Who listens holds a lock, shared, for as long as its session lasts: that is how writers know that
-- there is somebody to notify.

-- name: listener_notify
SELECT pg_catalog.pg_notify($1, '');

-- The same if there is somebody else; no row: there is nobody, and nothing was written.
-- name: listener_notify_others
SELECT pg_catalog.pg_notify($1, '')
 WHERE EXISTS (
       SELECT FROM pg_catalog.pg_locks AS l
         JOIN pg_catalog.pg_database AS d ON d.oid OPERATOR(pg_catalog.=) l.database
        WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
          AND l.classid OPERATOR(pg_catalog.=) {listen_lock}::pg_catalog.oid
          AND l.objid OPERATOR(pg_catalog.=)
              pg_catalog.hashtext($1)::pg_catalog.oid
          AND l.objsubid OPERATOR(pg_catalog.=) 2::pg_catalog.int2
          AND l.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()
          AND d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database());

-- Who answers, and the test's channel.
-- name: listener_greet
SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery();
LISTEN weir_channel;

-- The test has passed: the store's channel in place of the test's. One transaction: whoever looks for
-- the lock finds it before the first notification that we hear. Others that listen are told of us, so
-- that they need not look.
-- name: listener_join
UNLISTEN *;
SELECT pg_catalog.pg_advisory_lock_shared({listen_lock}, pg_catalog.hashtext('weir_channel'));
LISTEN weir_channel;
NOTIFY weir_channel, 'listening';

-- name: listener_leave
UNLISTEN *;

-- Is anybody there?
-- name: listener_alive
SELECT 1;
