-- schema_3.sql - from schema 2 to schema 3.

-- name: schema_3

-- A stream's version, its last event and that event's time are found by the index on
-- (stream, version): an append to a known stream does not touch weir_streams.
ALTER TABLE weir_streams DROP COLUMN version;
ALTER TABLE weir_streams DROP COLUMN last_id;
ALTER TABLE weir_streams DROP COLUMN updated;

-- Streams whose earliest events were removed: the version of the first one that is left. The last
-- event of a stream is never removed.
CREATE TABLE weir_truncated (
    stream INTEGER PRIMARY KEY,
    first INTEGER NOT NULL
) STRICT;

-- removed grows with every removal; removing is 1 inside a transaction that removes events. This
-- version removes none.
ALTER TABLE weir_store ADD COLUMN removed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE weir_store ADD COLUMN removing INTEGER NOT NULL DEFAULT 0;

DROP TRIGGER weir_events_no_delete;

CREATE TRIGGER weir_events_no_delete BEFORE DELETE ON weir_events
WHEN (SELECT removing FROM weir_store) IS NOT 1
BEGIN
    SELECT RAISE(ABORT, 'weir: events are immutable');
END;
