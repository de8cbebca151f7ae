-- schema.sql - the tables of the events side: schema 1, together with targets_schema.sql.
--
-- Everything is prefixed weir_, because a store may live in somebody's own database. Times are
-- microseconds since 1970, UTC. Texts compare bytewise (BINARY, the default collation).
-- Columns that are asked for alone stand before the long ones: SQLite walks a row's overflow pages
-- to reach what is behind a long text.

-- name: schema

-- One row. clock_us: the latest time any process has used that no event carries (events carry their
-- own). The bases are where positions and versions begin: 0 outside of tests.
CREATE TABLE weir_store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    schema INTEGER NOT NULL,
    epoch TEXT NOT NULL,
    created INTEGER NOT NULL,
    clock_us INTEGER NOT NULL,
    position_base INTEGER NOT NULL DEFAULT 0,
    version_base INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The part of a stream's name before its first '-'.
CREATE TABLE weir_categories (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

-- version, last_id, updated: of its last event. There is no row without an event.
CREATE TABLE weir_streams (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    category INTEGER NOT NULL,
    version INTEGER NOT NULL,
    last_id INTEGER NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    closed INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The log. stream: weir_streams.id; category: weir_categories.id. created never goes back with id.
CREATE TABLE weir_events (
    id INTEGER PRIMARY KEY,
    stream INTEGER NOT NULL,
    version INTEGER NOT NULL,
    category INTEGER NOT NULL,
    created INTEGER NOT NULL,
    name TEXT NOT NULL,
    meta TEXT NOT NULL,
    data TEXT NOT NULL,
    UNIQUE (stream, version)
) STRICT;

CREATE INDEX weir_events_by_category ON weir_events (category, id);
CREATE INDEX weir_events_by_name ON weir_events (name, id);

-- Facts do not change. Inserting does not look at these.
CREATE TRIGGER weir_events_no_update BEFORE UPDATE ON weir_events
BEGIN
    SELECT RAISE(ABORT, 'weir: events are immutable');
END;

CREATE TRIGGER weir_events_no_delete BEFORE DELETE ON weir_events
BEGIN
    SELECT RAISE(ABORT, 'weir: events are immutable');
END;

-- Idempotency keys: what was asked for (a digest) and what was answered (see append.c).
CREATE TABLE weir_keys (
    key TEXT PRIMARY KEY,
    expires INTEGER NOT NULL,
    fingerprint BLOB NOT NULL,
    result BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX weir_keys_by_expiry ON weir_keys (expires);

-- Unique business keys. stream is a name: an owner needs no event.
CREATE TABLE weir_reserved (
    key TEXT PRIMARY KEY,
    stream TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Folded states of streams, by name.
CREATE TABLE weir_snapshots (
    stream TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL,
    revision TEXT NOT NULL,
    data BLOB NOT NULL
) STRICT;

-- The log for people who read it in SQL.
CREATE VIEW weir_log AS
SELECT
    e.id AS id,
    s.name AS stream,
    e.version AS version,
    e.name AS name,
    e.data AS data,
    e.meta AS meta,
    strftime('%Y-%m-%dT%H:%M:%S', e.created / 1000000, 'unixepoch')
        || printf('.%06dZ', e.created % 1000000) AS created
FROM weir_events AS e
JOIN weir_streams AS s ON s.id = e.stream
ORDER BY e.id;

-- name: schema_new_row
INSERT INTO weir_store (one, schema, epoch, created, clock_us) VALUES (1, ?1, ?2, ?3, ?3);

-- name: schema_set_version
UPDATE weir_store SET schema = ?1;

-- Whether anything is in the database at all, and whether a store is.
-- name: schema_look
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM main.sqlite_schema LIMIT 1)),
    (SELECT count(*) FROM main.sqlite_schema WHERE type = 'table' AND name = 'weir_store');

-- name: schema_version
SELECT schema FROM weir_store WHERE one = 1;

-- What schema 1 got last: the table of workers, and what they count; the table of locks.
-- name: schema_has_workers
SELECT
    (SELECT count(*) FROM main.sqlite_schema WHERE type = 'table' AND name = 'weir_workers'),
    (SELECT count(*) FROM pragma_table_info('weir_reactions', 'main') WHERE name = 'attempts');

-- name: schema_has_locks
SELECT count(*) FROM main.sqlite_schema WHERE type = 'table' AND name = 'weir_locks';
