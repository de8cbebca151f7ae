-- schema_2.sql - what schema 2 adds to schema 1. A new store gets both.

-- name: schema_2
-- Also in a session whose session_replication_role is `replica`: facts do not change there either.
-- Inserting does not look at these triggers, so logical replication and restores of dumps go on.
ALTER TABLE weir.events ENABLE ALWAYS TRIGGER events_no_change;
ALTER TABLE weir.events ENABLE ALWAYS TRIGGER events_no_truncate;

-- token: a random number that each lease and each lock gets. Fences begin again where a
-- log was cut off (a failover, a restore), so a fence alone may be that of two leases, one of which
-- was lost with the log; the tokens of the two differ. log: the log on which a lease was taken
-- (weir.log). Its holder has seen events of that log, so on another one it may write nothing.
-- Functions whose arguments or columns have changed are made again.
ALTER TABLE weir.targets ADD COLUMN IF NOT EXISTS token bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS log bigint NOT NULL DEFAULT 0;
ALTER TABLE weir.locks ADD COLUMN IF NOT EXISTS token bigint NOT NULL DEFAULT 0;
DROP FUNCTION IF EXISTS weir.lease;
DROP FUNCTION IF EXISTS weir.turn;
DROP FUNCTION IF EXISTS weir.check_fence;
DROP FUNCTION IF EXISTS weir.settle;
DROP FUNCTION IF EXISTS weir.settle_with;
DROP FUNCTION IF EXISTS weir.fenced;
DROP FUNCTION IF EXISTS weir.route;
DROP FUNCTION IF EXISTS weir.lock_take;
DROP FUNCTION IF EXISTS weir.lock_extend;
DROP FUNCTION IF EXISTS weir.lock_release;
DROP FUNCTION IF EXISTS weir.once_finish;

-- What a proof that is under way has seen (weir.safe_prove): the highest position then, who held the
-- store's lock after that, and on which server.
ALTER TABLE weir.safe
    ADD COLUMN IF NOT EXISTS top bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS holders text[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS server bigint NOT NULL DEFAULT 0;
