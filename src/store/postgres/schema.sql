-- schema.sql - the tables of the events side: schema 1, together with targets_schema.sql.
--
-- Everything lives in one PostgreSQL schema. It is written `weir.` in all .sql files of this
-- directory, so that they run as they stand; schema.c puts another name in its place when the store
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

-- Functions are for those who were given the right to call them (weir init --grant). Whoever may append
-- gets the rights to what an upgrade has added.
-- name: schema_private
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA weir FROM PUBLIC;
DO $$
DECLARE
    place name;
    role name;
BEGIN
    FOR place, role IN
        SELECT DISTINCT n.nspname, pg_get_userbyid(a.grantee)
        FROM pg_catalog.pg_class AS c
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        JOIN pg_catalog.pg_proc AS p ON p.pronamespace = n.oid
        CROSS JOIN LATERAL aclexplode(p.proacl) AS a
        WHERE c.oid = 'weir.store'::regclass
            AND p.proname = 'append'
            AND a.privilege_type = 'EXECUTE'
            AND a.grantee NOT IN (0, p.proowner)
    LOOP
        EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO %I', place, role);
        EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %I TO %I', place, role);
    END LOOP;
END
$$;

-- What a worker needs: to look at everything, and to call the functions, which run with the rights of
-- their owner. No right to write a table or to take a position. A role's name is added to each line.
-- name: schema_grant_schema
GRANT USAGE ON SCHEMA weir TO
-- name: schema_grant_tables
GRANT SELECT ON ALL TABLES IN SCHEMA weir TO
-- name: schema_grant_functions
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA weir TO

-- Only when it is not there: who may not make schemas can still use one that was made for it.
-- name: schema_make
CREATE SCHEMA weir;

-- name: schema_rows
INSERT INTO weir.store (schema, client_least, epoch, number, created)
VALUES (1, 1, gen_random_uuid()::text, (random() * 2147483646)::integer, weir.clock());
INSERT INTO weir.safe (position) VALUES (0);

-- name: schema_lock
SELECT pg_advisory_xact_lock(1465207122, hashtext($1));
