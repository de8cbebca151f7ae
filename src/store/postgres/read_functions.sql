-- read_functions.sql - what the statements of read.sql and safe.sql have in common.
--
-- What must stay true: the planner puts their text in the place of a call, so that a statement costs
-- what it would cost with everything written out. For that they are single SELECTs in LANGUAGE sql,
-- without SECURITY DEFINER and settings of their own; no more stable than what they call; those that
-- read tables return sets and are called in FROM. positions_test sees to it that no call is left.

-- name: read_functions
-- When this server was started, negative on a standby: which server it is that answers; and which
-- table of events there, because a dump can be restored while the server runs.
CREATE OR REPLACE FUNCTION weir.server() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN pg_is_in_recovery() THEN -1 ELSE 1 END
        * ((extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint
           + 'weir.events'::regclass::oid::bigint)
$$;

-- The data of an event that is neither compressed nor too large for a thousand of them; else NULL.
CREATE OR REPLACE FUNCTION weir.small_data(data json, meta json) RETURNS json
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN pg_column_compression(data) IS NULL AND pg_column_compression(meta) IS NULL
                 AND pg_column_size(data) + pg_column_size(meta) < 2100 THEN data END
$$;

-- About how many bytes an event has when it is sent: a compressed text counts eight times, which is
-- more than JSON usually gains, and bounds what a chunk can be in the worst case.
CREATE OR REPLACE FUNCTION weir.sent_bytes(data json, meta json) RETURNS integer
LANGUAGE sql STABLE AS $$
    SELECT pg_column_size(data) * CASE WHEN pg_column_compression(data) IS NULL THEN 1 ELSE 8 END
        + pg_column_size(meta) * CASE WHEN pg_column_compression(meta) IS NULL THEN 1 ELSE 8 END
$$;

-- Whether a filter may want an event; NULL: everything. The client looks closer.
CREATE OR REPLACE FUNCTION weir.is_wanted(name text, stream text, created timestamptz, names text[],
    category text, prefix text, since timestamptz, until timestamptz) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT (names IS NULL OR name = ANY (names))
       AND (category IS NULL OR split_part(stream, '-', 1) = category)
       AND (prefix IS NULL OR starts_with(stream, prefix))
       AND (since IS NULL OR created >= since)
       AND (until IS NULL OR created <= until)
$$;

-- The first version of a stream at or after a position: positions grow with versions, so it is found
-- half by half. One after the last when all are before it; NULL: no such stream.
CREATE OR REPLACE FUNCTION weir.version_from(of_stream text, from_id bigint)
RETURNS TABLE (version bigint)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE halves (low, high) AS (
        SELECT (SELECT version_base FROM weir.store), s.version + 1
          FROM weir.streams AS s WHERE s.name = of_stream
        UNION ALL
        SELECT CASE WHEN e.id < from_id THEN h.middle + 1 ELSE h.low END,
               CASE WHEN e.id < from_id THEN h.high ELSE h.middle END
          FROM (SELECT low, high, low + (high - low) / 2 AS middle
                  FROM halves WHERE low < high) AS h
          JOIN weir.events AS e ON e.stream = of_stream AND e.version = h.middle
    )
    SELECT max(low) FROM halves
$$;
