-- listener.sql - what the connection that listens says (listener.c).
--
-- Neither LISTEN nor NOTIFY has parameters: where a statement ends without a name, a channel's is
-- added.

-- name: listener_notify
NOTIFY

-- Who answers, and the test's channel.
-- name: listener_greet
SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery();
LISTEN

-- The test has passed: the store's channel in place of the test's.
-- name: listener_join
UNLISTEN *;
LISTEN

-- name: listener_leave
UNLISTEN *;

-- Is anybody there?
-- name: listener_alive
SELECT 1;
