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

-- A page of streams in the order of their names: above after_name, from from_name on. Here and not in
-- streams.sql because of its plan, made on tables that were never analyzed: names are read in order, as
-- many as are wanted, and of each the last event. Without these settings all streams were sorted first.
CREATE OR REPLACE FUNCTION weir.streams_page(after_name text, from_name text, wanted bigint)
RETURNS TABLE (name text, version bigint, last_id bigint, created timestamptz, updated timestamptz,
               closed boolean)
LANGUAGE plpgsql STABLE
{looked_up}
AS $$
BEGIN
    RETURN QUERY
        SELECT f.stream, l.version, l.id, f.created, l.created, l.name = '$closed'
          FROM ((SELECT e.stream, e.created FROM weir.events AS e
                  WHERE e.version = weir.version_base()
                    AND e.stream > after_name AND e.stream >= from_name
                  ORDER BY e.stream LIMIT wanted)
                UNION ALL
                (SELECT t.stream, e.created
                   FROM (SELECT * FROM weir.truncated AS x
                          WHERE x.stream > after_name AND x.stream >= from_name
                          ORDER BY x.stream LIMIT wanted) AS t
                   JOIN weir.events AS e ON e.stream = t.stream AND e.version = t.first)
                ORDER BY 1 LIMIT wanted) AS f
         CROSS JOIN LATERAL (SELECT e.version, e.id, e.created, e.name FROM weir.events AS e
                              WHERE e.stream = f.stream ORDER BY e.version DESC LIMIT 1) AS l
         ORDER BY f.stream;
END
$$;

-- The first version of a stream at or after a position: positions grow with versions, so it is found
-- half by half. One after the last when all are before it; NULL: no such stream.
CREATE OR REPLACE FUNCTION weir.version_from(of_stream text, from_id bigint)
RETURNS TABLE (version bigint)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE halves (low, high) AS (
        SELECT (SELECT e.version FROM weir.events AS e
                 WHERE e.stream = of_stream ORDER BY e.version LIMIT 1), l.version + 1
          FROM (SELECT e.version FROM weir.events AS e
                 WHERE e.stream = of_stream ORDER BY e.version DESC LIMIT 1) AS l
        UNION ALL
        SELECT CASE WHEN e.id < from_id THEN h.middle + 1 ELSE h.low END,
               CASE WHEN e.id < from_id THEN h.high ELSE h.middle END
          FROM (SELECT low, high, low + (high - low) / 2 AS middle
                  FROM halves WHERE low < high) AS h
          JOIN weir.events AS e ON e.stream = of_stream AND e.version = h.middle
    )
    SELECT max(low) FROM halves
$$;
