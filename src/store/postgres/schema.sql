-- schema.sql - the tables of the events side: schema 1, together with targets_schema.sql. What came
-- later is in schema_2.sql and schema_3.sql, which takes weir.streams and version_base away again.
--
-- Everything lives in one PostgreSQL schema. It is written `weir.` in all .sql files of this
-- directory; schema.c puts another name in its place when the store
-- URL asks for one. `weir.` must therefore never stand for anything else, comments apart.
--
-- What must stay true:
--   * whoever writes events holds the store's shared advisory lock (weir.store.number) from before
--     its first position until its commit. That is what readers look at (safe.sql);
--   * rows of streams are never deleted, and there is none without an event;
--   * everything is written through the functions of the other files, which are SECURITY DEFINER:
--     a role that may call them needs no right to write these tables.
-- Texts compare bytewise (COLLATE "C").

-- name: schema
-- One row. schema: its version; client_least: the oldest version of client that can still work with
-- it. number: the second half of the advisory lock's key, random. version_base: where versions
-- begin, 0 outside of tests.
CREATE TABLE weir.store (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    schema integer NOT NULL,
    client_least integer NOT NULL,
    epoch text NOT NULL,
    number integer NOT NULL,
    created timestamptz NOT NULL,
    version_base bigint NOT NULL DEFAULT 0
);

-- One row, a hint that only grows: everything at or below it was final when it was written. Readers
-- begin there (safe.sql). Apart from weir.store, which is read all the time, because it is written.
CREATE TABLE weir.safe (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    position bigint NOT NULL
) WITH (fillfactor = 10);

-- version, last_id, updated: of its last event. Updated in place at every append: no column of it
-- but the name is indexed and pages have room, so that updates are HOT.
CREATE TABLE weir.streams (
    name text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    last_id bigint NOT NULL,
    created timestamptz NOT NULL,
    updated timestamptz NOT NULL,
    closed boolean NOT NULL DEFAULT false
) WITH (fillfactor = 70);

-- Positions. CACHE 1: a backend that kept some back would hand them out long after later ones.
CREATE SEQUENCE weir.positions AS bigint CACHE 1;

-- The log. data and meta are json, not jsonb: they come back as they were given.
CREATE TABLE weir.events (
    id bigint PRIMARY KEY,
    stream text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    data json NOT NULL,
    meta json NOT NULL,
    created timestamptz NOT NULL
);

-- The last guard of C06 and C08.
CREATE UNIQUE INDEX events_version ON weir.events (stream, version);
-- The part of a stream's name before its first '-', and names of events: what targets and filters
-- ask for by position.
CREATE INDEX events_category ON weir.events (split_part(stream, '-', 1), id);
CREATE INDEX events_name ON weir.events (name, id);

-- Idempotency keys: what was asked for (a digest) and what was answered.
CREATE TABLE weir.keys (
    key text COLLATE "C" PRIMARY KEY,
    expires bigint NOT NULL,
    fingerprint bytea NOT NULL,
    result bytea NOT NULL
);
CREATE INDEX keys_expires ON weir.keys (expires);

-- Unique business keys and the stream each belongs to.
CREATE TABLE weir.reserved (
    key text COLLATE "C" PRIMARY KEY,
    stream text COLLATE "C" NOT NULL
);

-- Folded states of streams.
CREATE TABLE weir.snapshots (
    stream text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    revision text COLLATE "C" NOT NULL,
    data bytea NOT NULL
);

-- Facts do not change. Inserting does not look at these.
-- name: schema_immutable
CREATE OR REPLACE FUNCTION weir.events_are_immutable() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'weir: events are immutable'
        USING HINT = 'append an event that corrects the other one';
END
$$;

CREATE TRIGGER events_no_change BEFORE UPDATE OR DELETE ON weir.events
    FOR EACH ROW EXECUTE FUNCTION weir.events_are_immutable();
CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON weir.events
    FOR EACH STATEMENT EXECUTE FUNCTION weir.events_are_immutable();

-- The store's time. Tests put a clock of their own in the place of the first (test_clock.sql).
-- name: schema_clock
CREATE OR REPLACE FUNCTION weir.clock() RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
    SELECT clock_timestamp()
$$;

CREATE OR REPLACE FUNCTION weir.clock_us() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM weir.clock()) * 1000000)::bigint
$$;

-- What is acknowledged must survive, whatever the role's or the database's default is. The setting
-- ends with the transaction. Every writing function calls this but the router's.
-- name: schema_durable
CREATE OR REPLACE FUNCTION weir.commit_durably() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END
$$;

-- Which log this is. It differs on another cluster, after a failover or a recovery to a point in time
-- (both begin a timeline), and after a dump was restored (the tables are new). Such a log may have only
-- the first part of the one before. The timeline of the last checkpoint (pg_control_checkpoint) would
-- be wrong: it stays the old one for a while. A copy of the data directory that is put back without
-- recovery has the same value; tokens and safe.c take care of that.
-- name: schema_log
-- The cluster cannot change while a session lasts, and to ask for it means to read a file. So a
-- session keeps it in a setting of its own; whoever writes something else there only loses leases of
-- its own. The timeline can change (a promotion ends no session), and costs little.
CREATE OR REPLACE FUNCTION weir.cluster() RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN set_config('weir_cluster.id',
                      (SELECT c.system_identifier::text FROM pg_control_system() AS c), false);
END
$$;

-- One expression, without a SELECT inside: the planner puts it in the place of a call.
CREATE OR REPLACE FUNCTION weir.log() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT hashtextextended(
        coalesce(nullif(current_setting('weir_cluster.id', true), ''), weir.cluster()) || '/'
        || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) || '/'
        || 'weir.targets'::regclass::oid, 0)
$$;

CREATE OR REPLACE FUNCTION weir.new_token() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT 1 + floor(random() * 9007199254740992)::bigint
$$;

-- Only roles that were granted (weir init --grant) may call functions. They are given what an upgrade
-- adds for their kind.
-- name: schema_private
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA weir FROM PUBLIC;
SELECT weir.grant_role(g.role, g.kind) FROM weir.granted_roles() AS g;

-- The SQL that lets a role work on the store: the role and the kind are added.
-- name: schema_grant
SELECT weir.grant_role(

-- Only when it is not there: who may not make schemas can still use one that was made for it.
-- name: schema_make
CREATE SCHEMA weir;

-- name: schema_rows
INSERT INTO weir.store (schema, client_least, epoch, number, created)
VALUES (1, 1, gen_random_uuid()::text, (random() * 2147483646)::integer, weir.clock());
INSERT INTO weir.safe (position) VALUES (0);

-- Whoever runs the SQL of weir init --plan has a path of his own; and a client that is gone is not
-- worked for.
-- name: schema_begin
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL client_connection_check_interval = '1s';

-- All tables of a store that is upgraded, before the first is changed: whoever has one of them, if
-- only by an open transaction that has read it, would be waited for with the others in hand, and
-- everybody would wait with us. Nobody waits for longer than this; then all is let go and begun again.
-- name: schema_tables
SET LOCAL lock_timeout = '500ms';
DO $do$
BEGIN
    EXECUTE (SELECT format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE',
                           string_agg(c.oid::regclass::text, ', ' ORDER BY c.relname))
               FROM pg_class AS s
               JOIN pg_class AS c
                 ON c.relnamespace = s.relnamespace AND c.relowner = s.relowner AND c.relkind = 'r'
              WHERE s.oid = 'weir.store'::regclass);
END
$do$;

-- Who has had one of them for the longest time, since when, and what ends it.
-- name: schema_blocker
SELECT CASE WHEN l.pid IS NULL THEN 'a prepared transaction'
            ELSE format('process %s (%s)', l.pid, concat_ws(', ',
                     'application ' || nullif(a.application_name, ''), 'user ' || a.usename,
                     a.state)) END,
       a.xact_start,
       CASE WHEN l.pid IS NULL THEN 'see pg_prepared_xacts'
            ELSE format('SELECT pg_terminate_backend(%s)', l.pid) END
  FROM pg_class AS s
  JOIN pg_class AS c ON c.relnamespace = s.relnamespace AND c.relowner = s.relowner
  JOIN pg_locks AS l
    ON l.locktype = 'relation' AND l.relation = c.oid AND l.granted
   AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
  LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
 WHERE s.oid = 'weir.store'::regclass AND l.pid IS DISTINCT FROM pg_backend_pid()
 ORDER BY a.xact_start NULLS LAST
 LIMIT 1;

-- name: schema_lock
SELECT pg_advisory_xact_lock({store_lock}, hashtext($1));
