-- unhandled_functions.sql - which reactions have something left to do with a stream: what closing it
-- asks.
--
-- What must stay true: nothing here locks or writes. weir.append_any asks while it holds the lock of the
-- stream, in a later statement, so no event can come in between.

-- name: unhandled_functions
-- Whether a source pattern (a name, a prefix with *, a /regular expression/, *) means this stream.
CREATE OR REPLACE FUNCTION weir.source_matches(source text, stream text)
RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN source = '*' THEN true
        WHEN length(source) > 1 AND left(source, 1) = '/' AND right(source, 1) = '/'
            THEN stream COLLATE "C" ~ substr(source, 2, length(source) - 2)
        WHEN right(source, 1) = '*' THEN starts_with(stream, left(source, -1))
        ELSE stream = source
    END
$$;

-- The names of the reactions that have something left to do with a stream: what closing asks. An
-- event is unhandled when a reaction that is not retired listens to it, it lies above where the
-- reaction began, and it is not yet routed, or lies above the position of the subscription it
-- belongs to, or has a work row.
CREATE OR REPLACE FUNCTION weir.unhandled(stream_name text) RETURNS text[]
{reading}
AS $$
DECLARE
    r record;
    found_names text[] := '{}';
    handled bigint;
    low bigint;
    high bigint;
    middle bigint;
    middle_id bigint;
BEGIN
    FOR r IN
        SELECT q.id, q.name, q.since, q.routed, d.names, d.rule
          FROM weir.reactions AS q
          JOIN weir.definitions AS d ON d.reaction = q.id AND d.number = q.number
         WHERE NOT q.retired AND weir.source_matches(d.source, stream_name)
         ORDER BY q.id
    LOOP
        -- Up to here nothing of the stream can be unhandled.
        handled := CASE r.rule
            WHEN {rule_stream} THEN (SELECT min(s.at) FROM weir.subscriptions AS s
                          WHERE s.reaction = r.id AND s.value = stream_name)
            WHEN {rule_category} THEN (SELECT min(s.at) FROM weir.subscriptions AS s
                          WHERE s.reaction = r.id AND s.value = split_part(stream_name, '-', 1))
            WHEN {rule_work} THEN r.since
            ELSE (SELECT min(s.at) FROM weir.subscriptions AS s WHERE s.reaction = r.id)
        END;
        handled := greatest(least(coalesce(handled, r.routed), r.routed), r.since);
        -- The first version above that: positions grow with versions, which have no gaps.
        SELECT min(e.version), max(e.version) + 1 INTO low, high
          FROM weir.events AS e WHERE e.stream = stream_name;
        WHILE low < high LOOP
            middle := low + (high - low) / 2;
            SELECT e.id INTO middle_id
              FROM weir.events AS e WHERE e.stream = stream_name AND e.version = middle;
            IF middle_id > handled THEN
                high := middle;
            ELSE
                low := middle + 1;
            END IF;
        END LOOP;
        PERFORM FROM weir.events AS e
          WHERE e.stream = stream_name AND e.version >= low
            AND CASE WHEN r.names IS NULL THEN left(e.name, 1) <> '$'
                     ELSE e.name = ANY (r.names) END
            AND (e.id > r.routed OR CASE r.rule
                WHEN {rule_name} THEN e.id > (SELECT min(s.at) FROM weir.subscriptions AS s
                                     WHERE s.reaction = r.id AND s.value = e.name)
                WHEN {rule_work} THEN EXISTS (SELECT FROM weir.work AS w
                                     WHERE w.reaction = r.id AND w.event = e.id)
                ELSE true END)
          LIMIT 1;
        IF FOUND THEN
            found_names := found_names || r.name;
        END IF;
    END LOOP;
    RETURN found_names;
END
$$;
