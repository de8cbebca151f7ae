-- append_functions.sql - appending: every call of these is one append, or one batch of them, judged
-- and written in one transaction and one round trip.
--
-- What must stay true:
--   * the store's shared advisory lock is taken by the first statement, on every call, before the
--     first position: a reader that sees a gap asks who holds it. It stands in a statement of its
--     own and not in a CTE, where it might not be run. Its number is read from weir.store and not
--     sent by the client: a client that remembers another store's number would hold a lock nobody
--     looks at, and one row read in the same statement was not measurable;
--   * locks in this order, each class bytewise: idempotency keys, reserved keys, stream heads. What
--     was locked is looked at in a later statement, with a new snapshot;
--   * in a batch (flag NOWAIT) nothing is waited for: heads are locked with SKIP LOCKED, what has
--     no row (a new stream, a key) by an advisory lock on its hash, taken by all who create one.
--     What somebody else holds makes that one append busy (-4) and no other. One append alone may
--     wait for a moment (append_one);
--   * an append is judged completely before its first position is taken: a refused one leaves no
--     trace, not even a gap (but see append_one);
--   * a refusal is a row of the result, never an error.
--
-- Advisory locks live in shared memory of a fixed size: a call that creates more than 256 streams
-- takes none for them. A concurrent writer that creates one of these streams waits; a batch waits for
-- 250 ms (55P03).
--
-- Plans are made once for a session, perhaps when the tables are empty. Heads are looked up in a
-- LATERAL subquery with a lock in it, which can only be an index lookup for each name, and moved by
-- the place of their row, so that no plan reads all of weir.streams.
--
-- flags of an append: 1 close, 2 force, 4 dry run, 8 chain, 16 no wait (STORE_APPEND_*).
-- options of a call: 1 judge set-based: no append closes, is a dry run, is chained (but see 8) or
-- changes keys;
-- a stream with an expectation, or without an event, is named by one append only; idempotency keys
-- are distinct. 2 recheck: look into events for what the heads do not know. 4 remove expired keys.
-- 8, with 1: all or none; when not every append is a new one that succeeds, nothing is written and
-- rows are given only for those.
-- Numbers of appends and streams are 1-based in arguments and 0-based in results.

-- name: append_functions
-- C01, for callers that do not use the library. A name that may be one of Weir's own.
CREATE OR REPLACE FUNCTION weir.is_text(name text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT octet_length(name) BETWEEN 1 AND 512
       AND name COLLATE "C" !~ '[\u0001-\u001f\u007f-\u009f]'
$$;

-- The same for a name that must not be one of Weir's own.
CREATE OR REPLACE FUNCTION weir.is_name(name text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT octet_length(name) BETWEEN 1 AND 512
       AND name COLLATE "C" !~ '^[$]|[\u0001-\u001f\u007f-\u009f]'
$$;

-- C01 and C02 of an event, as far as the type json does not see to it: names, sizes (the largest that
-- payload= allows, and what Weir adds to meta), an object as meta, all on one line (no string of a
-- json has a raw line break in it), no escape that stands for no character. The planner puts these
-- three in the place of their calls. Of the processor's time an append of one event takes 42 us, and
-- 51 with this; 70 with a CHECK of the table, which every INSERT prepares anew. In a batch 25 and 28.
CREATE OR REPLACE FUNCTION weir.is_event(
    stream text, name text, data json, meta json, closing boolean)
RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT weir.is_name(stream)
       AND CASE WHEN closing THEN name = '$closed' ELSE weir.is_name(name) END
       AND octet_length(data::text) <= 33554432 AND octet_length(meta::text) <= 33558528
       AND json_typeof(meta) = 'object'
       AND strpos(data::text, chr(10)) = 0 AND strpos(data::text, chr(13)) = 0
       AND strpos(meta::text, chr(10)) = 0 AND strpos(meta::text, chr(13)) = 0
       AND (strpos(data::text, chr(92) || 'u') = 0 OR json_strip_nulls(data) IS NOT NULL)
       AND (strpos(meta::text, chr(92) || 'u') = 0 OR json_strip_nulls(meta) IS NOT NULL)
$$;

-- Refuses an event that is not valid. Called in place of its name.
CREATE OR REPLACE FUNCTION weir.no_event(stream text, name text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RAISE EXCEPTION 'event "%" of stream "%" is refused', left(name, 80), left(stream, 80)
        USING ERRCODE = 'WR002',
              HINT = 'Names have 1 to 512 bytes without control characters and do not begin with $; '
                     'data and meta are JSON on one line of at most 32 MiB, and meta is an object.';
END
$$;

-- Refuses names if one of them is not valid. own: Weir's own are allowed.
CREATE OR REPLACE FUNCTION weir.check_names(what text, names text[], own boolean) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    wrong record;
BEGIN
    SELECT u.name INTO wrong
      FROM unnest(names) AS u (name)
     WHERE CASE WHEN own THEN weir.is_text(u.name) ELSE weir.is_name(u.name) END IS NOT TRUE
     LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% "%" is not a name', what, left(wrong.name, 80)
            USING ERRCODE = 'WR002',
                  HINT = 'Names have 1 to 512 bytes without control characters and do not begin '
                         'with $.';
    END IF;
END
$$;

-- Whether a list that others number has this size and is counted from 1. Numbers of what is not there
-- find NULL, and a comparison with NULL refuses nothing, so lists and numbers are looked at first:
-- numbers with n <= ALL (list), which no NULL passes.
CREATE OR REPLACE FUNCTION weir.is_list(list anyarray, size integer) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT cardinality(list) = size
       AND (size = 0 OR array_ndims(list) = 1 AND array_lower(list, 1) = 1)
$$;

-- Refuses a call whose lists do not fit together.
CREATE OR REPLACE FUNCTION weir.no_lists(what text, code text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RAISE EXCEPTION '%', what || ' do not fit together'
        USING ERRCODE = code,
              HINT = 'Lists of the same things have the same length and begin with 1, nothing of '
                     'them may be null, and every number is that of something in the list it '
                     'counts, in its order.';
END
$$;

-- The hash under which something that has no row is locked. kind: 0 stream, 1 idempotency key,
-- 2 reserved key.
CREATE OR REPLACE FUNCTION weir.append_hash(number integer, kind integer, name text)
RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT hashtextextended(name COLLATE "C", number::bigint * 4 + kind)
$$;

-- Removes some expired keys: never waits, never more than 64.
CREATE OR REPLACE FUNCTION weir.append_expire(now_us bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM weir.keys AS k
     WHERE k.key = ANY (ARRAY(
        SELECT x.key FROM weir.keys AS x
         WHERE x.expires <= now_us ORDER BY x.expires LIMIT 64
           FOR UPDATE SKIP LOCKED));
END
$$;

-- Locks the heads of these streams, waiting for each, in bytewise order: a name that has no row is
-- locked by its hash, and looked for again when the lock was got.
CREATE OR REPLACE FUNCTION weir.append_wait(number integer, stream_names text[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    one text;
    few boolean;
BEGIN
    IF cardinality(stream_names) > 256 THEN
        SELECT count(*) <= 256 INTO few
          FROM unnest(stream_names) AS u (name)
         WHERE NOT EXISTS (SELECT FROM weir.streams AS s WHERE s.name = u.name COLLATE "C");
    ELSE
        few := true;
    END IF;
    FOR one IN SELECT DISTINCT u.name COLLATE "C" AS name FROM unnest(stream_names) AS u (name)
                ORDER BY name
    LOOP
        PERFORM FROM weir.streams AS s WHERE s.name = one FOR NO KEY UPDATE;
        IF NOT FOUND AND few THEN
            PERFORM pg_advisory_xact_lock(weir.append_hash(number, 0, one));
            PERFORM FROM weir.streams AS s WHERE s.name = one FOR NO KEY UPDATE;
        END IF;
    END LOOP;
END
$$;

-- Of names that have no head that could be locked: those that nobody else holds. Never waits.
CREATE OR REPLACE FUNCTION weir.append_create(number integer, missing text[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    absent text[];
BEGIN
    SELECT array_agg(DISTINCT u.name) INTO absent
      FROM unnest(missing) AS u (name)
     WHERE NOT EXISTS (SELECT FROM weir.streams AS s WHERE s.name = u.name COLLATE "C");
    IF cardinality(absent) <= 256 THEN
        SELECT array_agg(u.name) INTO absent
          FROM unnest(absent) AS u (name)
         WHERE pg_try_advisory_xact_lock(weir.append_hash(number, 0, u.name));
    END IF;
    RETURN absent;
END
$$;

-- What the write of one or more judged appends gives: one row for each of these streams, but for
-- those of refused appends. head_*: the streams, their versions, and their rows; no row: it is new.
-- Ids follow the order of the events: nextval stands above the sort.
CREATE OR REPLACE FUNCTION weir.append_write(
    stream_appends integer[], stream_names text[], event_streams integer[], event_names text[],
    event_data json[], event_meta json[], refused integer[], head_names text[],
    head_versions bigint[], head_rows tid[], written timestamptz, closing boolean)
RETURNS TABLE (append_number integer, stream_number bigint, first_version bigint,
               last_version bigint, last_position bigint)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY
    WITH planned AS MATERIALIZED (
        SELECT nextval('weir.positions') AS id, o.*
          FROM (SELECT s.number AS stream_number, s.name AS stream,
                       h.version + row_number() OVER (
                           PARTITION BY s.name COLLATE "C" ORDER BY e.number)
                           AS version,
                       e.name, e.data, e.meta
                  FROM unnest(event_streams, event_names, event_data, event_meta) WITH ORDINALITY
                       AS e (stream, name, data, meta, number)
                  JOIN unnest(stream_appends, stream_names) WITH ORDINALITY
                       AS s (append, name, number) ON s.number = e.stream
                  JOIN unnest(head_names, head_versions) AS h (name, version) ON h.name = s.name
                 WHERE s.append <> ALL (refused)
                 ORDER BY e.number) AS o
    ), inserted AS (
        INSERT INTO weir.events (id, stream, version, name, data, meta, created)
        SELECT p.id, p.stream, p.version,
               CASE WHEN weir.is_event(p.stream, p.name, p.data, p.meta, closing) THEN p.name
                    ELSE weir.no_event(p.stream, p.name) END,
               p.data, p.meta, written
          FROM planned AS p
    ), ends AS MATERIALIZED (
        SELECT p.stream_number, p.stream, min(p.version) AS first, max(p.version) AS last,
               max(p.id) AS id
          FROM planned AS p GROUP BY p.stream_number, p.stream
    ), heads AS MATERIALIZED (
        SELECT h.name, h.version, h.place, g.last, g.id
          FROM unnest(head_names, head_versions, head_rows) AS h (name, version, place)
          JOIN (SELECT n.stream, max(n.last) AS last, max(n.id) AS id
                  FROM ends AS n GROUP BY n.stream) AS g ON g.stream = h.name
    ), moved AS (
        UPDATE weir.streams AS s
           SET version = h.last, last_id = h.id, updated = written, closed = closing
          FROM heads AS h
         WHERE s.ctid = h.place AND s.name = h.name
    ), made AS (
        INSERT INTO weir.streams (name, version, last_id, created, updated, closed)
        SELECT h.name, h.last, h.id, written, written, closing
          FROM heads AS h WHERE h.place IS NULL ORDER BY h.name COLLATE "C"
    )
    SELECT s.append, s.number, coalesce(n.first, -1), coalesce(n.last, h.version, -1),
           coalesce(n.id, 0)
      FROM unnest(stream_appends, stream_names) WITH ORDINALITY AS s (append, name, number)
      LEFT JOIN ends AS n ON n.stream_number = s.number
      LEFT JOIN unnest(head_names, head_versions, head_rows) AS h (name, version, place)
             ON n.first IS NULL AND h.name = s.name AND h.place IS NOT NULL
     WHERE s.append <> ALL (refused);
END
$$;

-- One append: judged, then written. Everything it needs is locked; busy_*: what could not be. Gives
-- one row for each stream, or one row with the refusal.
CREATE OR REPLACE FUNCTION weir.append_single(
    options integer, key_ttl bigint, append_flags integer, append_key text, fingerprint bytea,
    stream_names text[], stream_expects integer[], stream_versions bigint[],
    event_streams integer[], event_names text[], event_data json[], event_meta json[],
    change_streams integer[], change_keys text[], change_kinds integer[],
    version_base bigint, written timestamptz, now_us bigint, busy_names text[],
    busy_keys text[], busy_reserved text[],
    INOUT append_index integer,
    OUT stream_index integer, OUT status integer, OUT replayed boolean, OUT first_version bigint,
    OUT last_version bigint, OUT "position" bigint, OUT expected bigint, OUT actual bigint,
    OUT other text)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    kept record;
    held text[];
    head_names text[];
    head_versions bigint[];
    head_exist boolean[];
    head_closed boolean[];
    head_rows tid[];
    numbers bigint[];
    firsts bigint[];
    lasts bigint[];
    ids bigint[];
    closing boolean := append_flags & 1 <> 0;
BEGIN
    -- Of several appends each has a part of the lists: only here is it known which.
    IF (1 <= ALL (event_streams) AND cardinality(stream_names) >= ALL (event_streams)
        AND 1 <= ALL (change_streams) AND cardinality(stream_names) >= ALL (change_streams))
       IS NOT TRUE THEN
        PERFORM weir.no_lists('the streams of an append, its events and its keys', 'WR002');
    END IF;
    IF closing AND (cardinality(stream_names) <> 1 OR cardinality(event_names) <> 1) THEN
        RAISE EXCEPTION 'closing a stream appends its last event and nothing else'
            USING ERRCODE = 'WR002';
    END IF;
    status := 0;
    replayed := false;
    stream_index := -1;
    -- The idempotency key.
    IF append_key <> '' THEN
        IF append_key = ANY (busy_keys) THEN
            status := CASE WHEN append_flags & 16 <> 0 THEN -4 ELSE -9 END;
            RETURN NEXT;
            RETURN;
        END IF;
        SELECT k.fingerprint = append_single.fingerprint AS same, k.result INTO kept
          FROM weir.keys AS k WHERE k.key = append_key AND k.expires > now_us;
        IF FOUND AND kept.same IS NOT TRUE THEN
            status := -8;
            RETURN NEXT;
            RETURN;
        ELSIF FOUND THEN
            RETURN QUERY
                SELECT append_index, r.stream, 0, true, r.first, r.last, r.id, NULL::bigint,
                       weir.append_time(r.id), NULL::text
                  FROM weir.append_kept(kept.result) AS r;
            RETURN;
        END IF;
    END IF;
    -- The streams, as they are after the appends before this one.
    SELECT array_agg(u.name ORDER BY u.number),
           array_agg(coalesce(greatest(s.version, e.last), version_base - 1) ORDER BY u.number),
           array_agg(coalesce(s.version, e.last) IS NOT NULL ORDER BY u.number),
           array_agg(coalesce(s.closed, false) ORDER BY u.number),
           array_agg(s.ctid ORDER BY u.number)
      INTO head_names, head_versions, head_exist, head_closed, head_rows
      FROM unnest(stream_names) WITH ORDINALITY AS u (name, number)
      LEFT JOIN LATERAL (SELECT x.version, x.closed, x.ctid FROM weir.streams AS x
                          WHERE x.name = u.name) AS s ON true
      LEFT JOIN LATERAL (SELECT max(x.version) AS last FROM weir.events AS x
                          WHERE options & 2 <> 0 AND x.stream = u.name) AS e ON true;
    SELECT j.number - 1, j.status, j.actual INTO stream_index, status, actual
      FROM (SELECT u.number, CASE WHEN u.has THEN u.head ELSE -1 END AS actual,
                   CASE WHEN u.name = ANY (busy_names) THEN -4
                        WHEN closing AND u.number = 1 AND NOT u.has THEN -6
                        WHEN closing AND u.number = 1 AND u.closed THEN 1
                        WHEN u.closed THEN -7
                        WHEN u.expect = 1 AND u.has THEN -3
                        WHEN u.expect = 2 AND NOT u.has THEN -3
                        WHEN u.expect = 3 AND (NOT u.has OR u.head IS DISTINCT FROM u.version)
                            THEN -3
                        ELSE 0 END AS status
              FROM unnest(stream_names, stream_expects, stream_versions, head_versions,
                          head_exist, head_closed) WITH ORDINALITY
                   AS u (name, expect, version, head, has, closed, number)) AS j
     WHERE j.status <> 0 ORDER BY j.number LIMIT 1;
    IF status = 1 THEN -- closed already: nothing to do
        status := 0;
        first_version := -1;
        last_version := actual;
        actual := NULL;
        position := 0;
        RETURN NEXT;
        RETURN;
    ELSIF status <> 0 THEN
        RETURN NEXT;
        RETURN;
    END IF;
    status := 0;
    stream_index := -1;
    IF closing AND append_flags & 2 = 0 THEN
        held := weir.unhandled(stream_names[1]);
        IF cardinality(held) > 0 THEN
            stream_index := 0;
            status := -12;
            -- As many as a message can show, and one to tell that there are more.
            other := left(array_to_string(held, ', '), 1024);
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    -- Reserved keys, each change seeing those before it. Only the first refusal counts, and before
    -- it all went well, so the change before it is what the owner is.
    IF cardinality(change_keys) > 0 THEN
        SELECT c.number - 1, CASE WHEN c.busy THEN -4 ELSE -10 END, c.owner
          INTO expected, status, other
          FROM (SELECT u.number, stream_names[u.stream] AS stream,
                       u.key = ANY (busy_reserved) AS busy,
                       CASE lag(u.kind) OVER same
                            WHEN 1 THEN stream_names[lag(u.stream) OVER same]
                            WHEN 2 THEN NULL
                            ELSE r.stream END AS owner
                  FROM unnest(change_streams, change_keys, change_kinds) WITH ORDINALITY
                       AS u (stream, key, kind, number)
                  LEFT JOIN LATERAL (SELECT x.stream FROM weir.reserved AS x
                                      WHERE x.key = u.key) AS r ON true
                WINDOW same AS (PARTITION BY u.key COLLATE "C" ORDER BY u.number)) AS c
         WHERE c.busy OR c.owner IS NOT NULL AND c.owner IS DISTINCT FROM c.stream
         ORDER BY c.number LIMIT 1;
        IF FOUND THEN
            RETURN NEXT;
            RETURN;
        END IF;
        status := 0;
    END IF;
    IF append_flags & 4 <> 0 THEN -- a dry run: what it would give
        RETURN QUERY
            SELECT append_index, u.number::integer - 1, 0, false,
                   CASE WHEN e.count > 0 THEN u.head + 1 ELSE -1 END,
                   CASE WHEN u.has OR e.count > 0 THEN u.head + e.count ELSE -1 END,
                   CASE WHEN e.count > 0 THEN q.next + e.last - 1 ELSE 0 END,
                   NULL::bigint, CASE WHEN e.count > 0 THEN now_us END, NULL::text
              FROM unnest(head_versions, head_exist) WITH ORDINALITY AS u (head, has, number)
             CROSS JOIN LATERAL (SELECT count(*), max(v.number) AS last
                                   FROM unnest(event_streams) WITH ORDINALITY
                                        AS v (stream, number)
                                  WHERE v.stream = u.number) AS e
             CROSS JOIN (SELECT p.last_value + p.is_called::integer AS next
                           FROM weir.positions AS p) AS q;
        RETURN;
    END IF;
    SELECT array_agg(w.stream_number ORDER BY w.stream_number),
           array_agg(w.first_version ORDER BY w.stream_number),
           array_agg(w.last_version ORDER BY w.stream_number),
           array_agg(w.last_position ORDER BY w.stream_number)
      INTO numbers, firsts, lasts, ids
      FROM weir.append_write(array_fill(1, ARRAY[cardinality(stream_names)]), stream_names,
                             event_streams, event_names, event_data, event_meta, '{}', head_names,
                             head_versions, head_rows, written, closing) AS w;
    IF cardinality(change_keys) > 0 THEN
        WITH last AS MATERIALIZED (
            SELECT DISTINCT ON (u.key COLLATE "C") u.key, u.kind, stream_names[u.stream] AS stream
              FROM unnest(change_streams, change_keys, change_kinds) WITH ORDINALITY
                   AS u (stream, key, kind, number)
             ORDER BY u.key COLLATE "C", u.number DESC
        ), freed AS (
            DELETE FROM weir.reserved AS r
             WHERE r.key = ANY (ARRAY(SELECT l.key FROM last AS l WHERE l.kind = 2))
        )
        INSERT INTO weir.reserved AS r (key, stream)
        SELECT l.key, l.stream FROM last AS l WHERE l.kind = 1
        ON CONFLICT (key) DO UPDATE SET stream = excluded.stream WHERE r.stream <> excluded.stream;
    END IF;
    IF append_key <> '' THEN
        PERFORM weir.append_keep(append_key, fingerprint, now_us, key_ttl, r.result)
           FROM (SELECT string_agg(int8send(u.first) || int8send(u.last) || int8send(u.id), ''
                                   ORDER BY u.number) AS result
                   FROM unnest(numbers, firsts, lasts, ids) AS u (number, first, last, id)) AS r;
    END IF;
    RETURN QUERY
        SELECT append_index, u.number::integer - 1, 0, false, u.first, u.last, u.id, NULL::bigint,
               CASE WHEN u.id > 0 THEN now_us END, NULL::text
          FROM unnest(numbers, firsts, lasts, ids) AS u (number, first, last, id);
END
$$;

-- A kept result is first, last and id of each stream of the append, in its order, 8 bytes each.
CREATE OR REPLACE FUNCTION weir.append_kept(result bytea)
RETURNS TABLE (stream integer, first bigint, last bigint, id bigint)
LANGUAGE sql IMMUTABLE AS $$
    SELECT n, ('x' || encode(substr(result, n * 24 + 1, 8), 'hex'))::bit(64)::bigint,
           ('x' || encode(substr(result, n * 24 + 9, 8), 'hex'))::bit(64)::bigint,
           ('x' || encode(substr(result, n * 24 + 17, 8), 'hex'))::bit(64)::bigint
      FROM generate_series(0, length(result) / 24 - 1) AS n
$$;

-- The time of an event in microseconds: what a replay says of its first run.
CREATE OR REPLACE FUNCTION weir.append_time(event bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT (extract(epoch FROM e.created) * 1000000)::bigint FROM weir.events AS e WHERE e.id = event
$$;

-- An expired key is unknown, and may still be there.
CREATE OR REPLACE FUNCTION weir.append_keep(
    append_key text, fingerprint bytea, now_us bigint, key_ttl bigint, result bytea)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF length(fingerprint) IS DISTINCT FROM 32 THEN
        RAISE EXCEPTION 'the fingerprint of idempotency key "%" is none', left(append_key, 80)
            USING ERRCODE = 'WR002', HINT = 'It is the SHA-256 of the request: 32 bytes.';
    END IF;
    INSERT INTO weir.keys (key, expires, fingerprint, result)
    VALUES (append_key, CASE WHEN key_ttl > 9223372036854775807 - now_us
                             THEN 9223372036854775807 ELSE now_us + key_ttl END,
            fingerprint, coalesce(result, ''))
    ON CONFLICT (key) DO UPDATE
       SET expires = excluded.expires, fingerprint = excluded.fingerprint,
           result = excluded.result;
END
$$;

-- Appends one or many, judged in order, each seeing those before it. append_keys is empty when no
-- append has an idempotency key, else '' for those without. wait_ms: how long to wait for one lock,
-- for those that wait; 0: as the session says.
-- A refused append gives one row: status below 0, stream_index the stream concerned or -1; a
-- conflict has `actual`, a taken key its owner in `other` and the change's number in `expected`, a
-- close that is held the reactions in `other`. The others give a row for each stream; its `actual` is
-- the time of the new events in microseconds, null when the stream got none.
CREATE OR REPLACE FUNCTION weir.append(
    options integer, wait_ms integer, key_ttl bigint,
    append_flags integer[], append_keys text[], append_fingerprints bytea[],
    stream_appends integer[], stream_names text[], stream_expects integer[],
    stream_versions bigint[],
    event_streams integer[], event_names text[], event_data json[], event_meta json[],
    change_streams integer[], change_keys text[], change_kinds integer[])
RETURNS TABLE (append_index integer, stream_index integer, status integer, replayed boolean,
               first_version bigint, last_version bigint, "position" bigint, expected bigint,
               actual bigint, other text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan -- or small batches are planned anew each time
AS $$
DECLARE
    store record;
    written timestamptz;
    now_us bigint;
    keyed boolean := cardinality(append_keys) > 0;
    waiting boolean := append_flags[1] & 16 = 0;
    refused integer[] := '{}';
    busy_keys text[] := '{}';
    busy_reserved text[] := '{}';
    head_names text[];
    head_versions bigint[];
    head_exist boolean[];
    head_closed boolean[];
    head_rows tid[];
    missing text[] := '{}';
    absent text[];
    appends integer[];
    numbers bigint[];
    firsts bigint[];
    lasts bigint[];
    ids bigint[];
    one text;
    i integer;
    low integer := 1;
    high integer;
    event_low integer := 1;
    event_high integer;
    change_low integer := 1;
    change_high integer;
    fine boolean := true;
    wrote boolean := false;
BEGIN
    SELECT s.number, s.version_base, pg_advisory_xact_lock_shared(1465207122, s.number)::text,
           (SELECT min(k.expires) FROM weir.keys AS k) AS expires
      INTO store FROM weir.store AS s;
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM weir.commit_durably();
    END IF;
    IF waiting AND wait_ms > 0 THEN
        PERFORM set_config('lock_timeout', wait_ms || 'ms', true);
    END IF;

    IF (weir.is_list(append_flags, cardinality(append_flags)) AND 0 <= ALL (append_flags)
        AND weir.is_list(append_keys, cardinality(append_fingerprints))
        AND weir.is_list(append_fingerprints, CASE WHEN keyed THEN cardinality(append_flags)
                                                   ELSE 0 END)
        AND weir.is_list(stream_appends, cardinality(stream_names))
        AND weir.is_list(stream_names, cardinality(stream_names))
        AND weir.is_list(stream_expects, cardinality(stream_names))
        AND weir.is_list(stream_versions, cardinality(stream_names))
        AND 1 <= ALL (stream_appends) AND cardinality(append_flags) >= ALL (stream_appends)
        AND 0 <= ALL (stream_expects) AND 3 >= ALL (stream_expects)
        AND weir.is_list(event_streams, cardinality(event_streams))
        AND weir.is_list(event_names, cardinality(event_streams))
        AND weir.is_list(event_data, cardinality(event_streams))
        AND weir.is_list(event_meta, cardinality(event_streams))
        AND 1 <= ALL (event_streams) AND cardinality(stream_names) >= ALL (event_streams)
        AND weir.is_list(change_streams, cardinality(change_streams))
        AND weir.is_list(change_keys, cardinality(change_streams))
        AND weir.is_list(change_kinds, cardinality(change_streams))
        AND 1 <= ALL (change_kinds) AND 2 >= ALL (change_kinds)) IS NOT TRUE THEN
        PERFORM weir.no_lists('the lists of an append', 'WR002');
    END IF;
    IF keyed THEN
        PERFORM weir.check_names('idempotency key', array_remove(append_keys, ''), false);
    END IF;
    IF cardinality(change_keys) > 0 THEN
        PERFORM weir.check_names('key', change_keys, false);
        PERFORM weir.check_names('stream', stream_names, false); -- one may have no event
    END IF;
    -- Idempotency keys. One that somebody else is using: wait, and if that takes too long it is in
    -- flight.
    IF keyed THEN
        IF waiting THEN
            FOR one IN SELECT DISTINCT u.key COLLATE "C" AS key FROM unnest(append_keys) AS u (key)
                        WHERE u.key <> '' ORDER BY key
            LOOP
                IF NOT pg_try_advisory_xact_lock(weir.append_hash(store.number, 1, one)) THEN
                    BEGIN
                        PERFORM pg_advisory_xact_lock(weir.append_hash(store.number, 1, one));
                    EXCEPTION WHEN lock_not_available THEN
                        busy_keys := busy_keys || one;
                    END;
                END IF;
            END LOOP;
            IF cardinality(busy_keys) > 0 AND cardinality(append_flags) = 1 THEN
                -- Judged already: who has no time left must not meet others at the streams.
                append_index := 0;
                stream_index := -1;
                status := -9;
                replayed := false;
                RETURN NEXT;
                RETURN;
            END IF;
        ELSE
            SELECT coalesce(array_agg(u.key), '{}') INTO busy_keys
              FROM (SELECT DISTINCT v.key COLLATE "C" AS key FROM unnest(append_keys) AS v (key)
                     ORDER BY key) AS u
             WHERE CASE WHEN u.key = '' THEN false ELSE
                   NOT pg_try_advisory_xact_lock(weir.append_hash(store.number, 1, u.key)) END;
        END IF;
    END IF;
    -- Reserved keys.
    IF cardinality(change_keys) > 0 THEN
        IF waiting THEN
            PERFORM pg_advisory_xact_lock(weir.append_hash(store.number, 2, u.key))
               FROM (SELECT DISTINCT v.key COLLATE "C" AS key FROM unnest(change_keys) AS v (key)
                      ORDER BY key) AS u;
        ELSE
            -- No more than one append may have: those who want more run alone.
            SELECT coalesce(array_agg(u.key), '{}') INTO busy_reserved
              FROM (SELECT k.key, row_number() OVER (ORDER BY k.key) AS number
                      FROM (SELECT DISTINCT v.key COLLATE "C" AS key
                              FROM unnest(change_keys) AS v (key)) AS k) AS u
             WHERE CASE WHEN u.number > 1000 THEN true ELSE
                   NOT pg_try_advisory_xact_lock(weir.append_hash(store.number, 2, u.key)) END;
        END IF;
    END IF;
    -- Stream heads.
    IF waiting THEN
        PERFORM weir.append_wait(store.number, stream_names);
    END IF;
    SELECT array_agg(h.name), array_agg(h.version), array_agg(true), array_agg(h.closed),
           array_agg(h.ctid)
      INTO head_names, head_versions, head_exist, head_closed, head_rows
      FROM (SELECT DISTINCT v.name COLLATE "C" AS name FROM unnest(stream_names) AS v (name)) AS u
     CROSS JOIN LATERAL (
           SELECT s.name, s.version, s.closed, s.ctid
             FROM weir.streams AS s WHERE s.name = u.name
              FOR NO KEY UPDATE SKIP LOCKED) AS h;
    IF coalesce(cardinality(head_names), 0) < cardinality(stream_names) THEN
        missing := ARRAY(SELECT u.name FROM unnest(stream_names) AS u (name)
                           LEFT JOIN unnest(head_names) AS h (name) ON h.name = u.name
                          WHERE h.name IS NULL);
    END IF;
    IF cardinality(missing) > 0 THEN
        IF NOT waiting THEN
            -- A call that creates many streams is met at the index. A batch waits there for 250 ms;
            -- then its appends go on alone (append.c).
            PERFORM set_config('lock_timeout', '250ms', true);
        END IF;
        absent := weir.append_create(store.number, missing);
        -- Looked for again, now that nobody else can be creating them.
        SELECT head_names || array_agg(u.name),
               head_versions || array_agg(coalesce(h.version, store.version_base - 1)),
               head_exist || array_agg(h.version IS NOT NULL),
               head_closed || array_agg(coalesce(h.closed, false)),
               head_rows || array_agg(h.ctid)
          INTO head_names, head_versions, head_exist, head_closed, head_rows
          FROM unnest(absent) AS u (name)
          LEFT JOIN LATERAL (
               SELECT s.name, s.version, s.closed, s.ctid
                 FROM weir.streams AS s WHERE s.name = u.name
                  FOR NO KEY UPDATE SKIP LOCKED) AS h ON true
         WHERE h.name IS NOT NULL
            OR NOT EXISTS (SELECT FROM weir.streams AS s WHERE s.name = u.name COLLATE "C");
    END IF;
    written := weir.clock();
    now_us := (extract(epoch FROM written) * 1000000)::bigint;

    IF options & 1 <> 0 THEN
        -- All at once. Keys first.
        IF keyed THEN
            RETURN QUERY
                SELECT u.number::integer - 1, coalesce(r.stream, -1),
                       CASE WHEN NOT u.busy AND u.same THEN 0
                            WHEN NOT u.busy THEN -8 WHEN waiting THEN -9 ELSE -4 END,
                       r.stream IS NOT NULL, r.first, r.last, r.id, NULL::bigint,
                       weir.append_time(r.id), NULL::text
                  FROM (SELECT a.number, a.key = ANY (busy_keys) AS busy,
                               k.fingerprint = a.fingerprint AS same, k.result
                          FROM unnest(append_keys, append_fingerprints) WITH ORDINALITY
                               AS a (key, fingerprint, number)
                          LEFT JOIN LATERAL (SELECT x.fingerprint, x.result FROM weir.keys AS x
                                              WHERE x.key = a.key AND x.expires > now_us) AS k
                                 ON true
                         WHERE a.key <> '') AS u
                  LEFT JOIN LATERAL weir.append_kept(u.result) AS r ON u.same AND NOT u.busy
                 WHERE u.busy OR u.same IS NOT NULL;
            IF FOUND THEN
                SELECT array_agg(a.number::integer) INTO refused
                  FROM unnest(append_keys) WITH ORDINALITY AS a (key, number)
                 WHERE a.key <> ''
                   AND (a.key = ANY (busy_keys)
                        OR EXISTS (SELECT FROM weir.keys AS x
                                    WHERE x.key = a.key AND x.expires > now_us));
            END IF;
        END IF;
        SELECT array_agg(j.append), array_agg(j.number), array_agg(j.verdict), array_agg(j.actual)
          INTO appends, numbers, firsts, lasts
          FROM (SELECT DISTINCT ON (u.append) u.append, u.number, u.verdict, u.actual
                  FROM (SELECT s.append, s.number,
                               CASE WHEN h.name IS NULL THEN -4
                                    WHEN h.closed THEN -7
                                    WHEN s.expect = 0 THEN 0
                                    WHEN s.expect = 1 AND h.has THEN -3
                                    WHEN s.expect = 2 AND NOT h.has THEN -3
                                    WHEN s.expect = 3
                                         AND (NOT h.has OR h.version IS DISTINCT FROM s.version)
                                        THEN -3
                                    ELSE 0 END AS verdict,
                               CASE WHEN h.has THEN h.version ELSE -1 END AS actual
                          FROM unnest(stream_appends, stream_names, stream_expects,
                                      stream_versions) WITH ORDINALITY
                               AS s (append, name, expect, version, number)
                          LEFT JOIN unnest(head_names, head_versions, head_exist, head_closed)
                               AS h (name, version, has, closed) ON h.name = s.name
                         WHERE s.append <> ALL (refused)) AS u
                 WHERE u.verdict <> 0 ORDER BY u.append, u.number) AS j;
        IF appends IS NOT NULL THEN
            RETURN QUERY
                SELECT u.append - 1,
                       (u.number - array_position(stream_appends, u.append))::integer,
                       u.verdict::integer, false, NULL::bigint, NULL::bigint, NULL::bigint,
                       NULL::bigint, u.actual, NULL::text
                  FROM unnest(appends, numbers, firsts, lasts)
                       AS u (append, number, verdict, actual);
            refused := refused || appends;
        END IF;
        IF cardinality(refused) = cardinality(append_flags)
           OR options & 8 <> 0 AND cardinality(refused) > 0 THEN
            RETURN;
        END IF;
        wrote := true;
        IF NOT keyed THEN
            RETURN QUERY
                SELECT w.append_number - 1,
                       (w.stream_number - array_position(stream_appends, w.append_number))::integer,
                       0, false, w.first_version, w.last_version, w.last_position, NULL::bigint,
                       CASE WHEN w.last_position > 0 THEN now_us END, NULL::text
                  FROM weir.append_write(stream_appends, stream_names, event_streams, event_names,
                                         event_data, event_meta, refused, head_names,
                                         head_versions, head_rows, written, false) AS w;
        ELSE
            SELECT array_agg(w.append_number), array_agg(w.stream_number),
                   array_agg(w.first_version), array_agg(w.last_version),
                   array_agg(w.last_position)
              INTO appends, numbers, firsts, lasts, ids
              FROM weir.append_write(stream_appends, stream_names, event_streams, event_names,
                                     event_data, event_meta, refused, head_names, head_versions,
                                     head_rows, written, false) AS w;
            PERFORM weir.append_keep(a.key, a.fingerprint, now_us, key_ttl, r.result)
               FROM (SELECT u.append,
                            string_agg(int8send(u.first) || int8send(u.last) || int8send(u.id), ''
                                       ORDER BY u.number) AS result
                       FROM unnest(appends, numbers, firsts, lasts, ids)
                            AS u (append, number, first, last, id) GROUP BY u.append) AS r
               JOIN unnest(append_keys, append_fingerprints) WITH ORDINALITY
                    AS a (key, fingerprint, number) ON a.number = r.append
              WHERE a.key <> '';
            RETURN QUERY
                SELECT u.append - 1,
                       (u.number - array_position(stream_appends, u.append))::integer,
                       0, false, u.first, u.last, u.id, NULL::bigint,
                       CASE WHEN u.id > 0 THEN now_us END, NULL::text
                  FROM unnest(appends, numbers, firsts, lasts, ids)
                       AS u (append, number, first, last, id);
        END IF;
    ELSE
        -- One after the other.
        IF cardinality(missing) > 0 THEN -- those that are busy
            missing := ARRAY(SELECT u.name FROM unnest(missing) AS u (name)
                               LEFT JOIN unnest(head_names) AS h (name) ON h.name = u.name
                              WHERE h.name IS NULL);
        END IF;
        FOR i IN 1 .. cardinality(append_flags) LOOP
            IF cardinality(append_flags) = 1 THEN
                high := cardinality(stream_names) + 1;
                event_high := cardinality(event_streams) + 1;
                change_high := cardinality(change_streams) + 1;
            ELSE
                high := low;
                WHILE stream_appends[high] = i LOOP
                    high := high + 1;
                END LOOP;
                event_high := event_low;
                WHILE event_streams[event_high] < high LOOP
                    event_high := event_high + 1;
                END LOOP;
                change_high := change_low;
                WHILE change_streams[change_high] < high LOOP
                    change_high := change_high + 1;
                END LOOP;
            END IF;
            IF append_flags[i] & 8 <> 0 AND NOT fine THEN
                append_index := i - 1;
                stream_index := -1;
                status := -18;
                replayed := false;
                RETURN NEXT;
            ELSE
                fine := true;
                FOR append_index, stream_index, status, replayed, first_version, last_version,
                    position, expected, actual, other IN
                    SELECT s.* FROM weir.append_single(
                        options, key_ttl, append_flags[i],
                        CASE WHEN keyed THEN append_keys[i] ELSE '' END, append_fingerprints[i],
                        stream_names[low : high - 1], stream_expects[low : high - 1],
                        stream_versions[low : high - 1],
                        ARRAY(SELECT e - low + 1
                                FROM unnest(event_streams[event_low : event_high - 1]) AS e),
                        event_names[event_low : event_high - 1],
                        event_data[event_low : event_high - 1],
                        event_meta[event_low : event_high - 1],
                        ARRAY(SELECT e - low + 1
                                FROM unnest(change_streams[change_low : change_high - 1]) AS e),
                        change_keys[change_low : change_high - 1],
                        change_kinds[change_low : change_high - 1],
                        store.version_base, written, now_us, missing, busy_keys,
                        busy_reserved, i - 1) AS s
                LOOP
                    fine := status = 0;
                    wrote := wrote OR (fine AND NOT replayed AND append_flags[i] & 4 = 0);
                    RETURN NEXT;
                END LOOP;
            END IF;
            low := high;
            event_low := event_high;
            change_low := change_high;
        END LOOP;
        IF low <= cardinality(stream_names) OR event_low <= cardinality(event_streams)
           OR change_low <= cardinality(change_streams) THEN
            PERFORM weir.no_lists('the streams of the appends, their events and their keys',
                                  'WR002');
        END IF;
    END IF;
    IF wrote AND options & 4 <> 0 AND store.expires <= now_us THEN
        PERFORM weir.append_expire(now_us);
    END IF;
END
$$;

-- One event to one stream, without keys: most appends. One statement finds the head, judges and moves
-- it, another writes the event; whatever is not found (a new stream, a closed one, another version)
-- is left to weir.append_batch, or to weir.append when it has to wait.
-- A head that somebody else holds is waited for, with the flag NOWAIT for a moment only (55P03):
-- mostly it is another append that is about to commit, and finding the row with SKIP LOCKED first
-- would cost a fifth more. An append that waited and is then refused leaves its position as a gap.
-- Always one row; not declared SETOF, which would cost a copy of it.
CREATE OR REPLACE FUNCTION weir.append_one(
    append_flags integer, wait_ms integer, stream_name text, expect integer, stream_version bigint,
    event_name text, event_data json, event_meta json,
    OUT append_index integer, OUT stream_index integer, OUT status integer, OUT replayed boolean,
    OUT first_version bigint, OUT last_version bigint, OUT "position" bigint, OUT expected bigint,
    OUT actual bigint, OUT other text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '20ms' AS $$
DECLARE
    store record;
    written timestamptz;
BEGIN
    SELECT pg_advisory_xact_lock_shared(1465207122, s.number)::text,
           (SELECT min(k.expires) FROM weir.keys AS k) AS expires
      INTO store FROM weir.store AS s;
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM weir.commit_durably();
    END IF;
    IF append_flags & 16 = 0 THEN
        PERFORM set_config('lock_timeout', wait_ms || 'ms', true); -- until the function ends
    END IF;
    UPDATE weir.streams AS s
       SET version = s.version + 1, last_id = nextval('weir.positions'), updated = weir.clock()
     WHERE s.name = stream_name AND NOT s.closed AND expect <> 1
       AND (expect <> 3 OR s.version = stream_version)
    RETURNING s.version, s.last_id, s.updated INTO first_version, position, written;
    IF FOUND THEN
        INSERT INTO weir.events (id, stream, version, name, data, meta, created)
        VALUES (position, stream_name, first_version,
                CASE WHEN weir.is_event(stream_name, event_name, event_data, event_meta, false)
                     THEN event_name ELSE weir.no_event(stream_name, event_name) END,
                event_data, event_meta, written);
        append_index := 0;
        stream_index := 0;
        status := 0;
        replayed := false;
        last_version := first_version;
        actual := (extract(epoch FROM written) * 1000000)::bigint;
        IF store.expires IS NOT NULL AND store.expires <= weir.clock_us() THEN
            PERFORM weir.append_expire(weir.clock_us());
        END IF;
    ELSIF append_flags & 16 <> 0 THEN -- mostly a new stream
        SELECT a.append_index, a.stream_index, a.status, coalesce(a.replayed, false),
               coalesce(a.first_version, a.head_versions[1] + 1),
               coalesce(a.last_version, a.head_versions[1] + 1),
               coalesce(a."position", a.event_ids[1]), a.expected, a.actual, a.other
          INTO append_index, stream_index, status, replayed, first_version, last_version,
               position, expected, actual, other
          FROM weir.append_batch(
            5, wait_ms, 0, ARRAY[append_flags], '{}', '{}', ARRAY[1], ARRAY[stream_name],
            ARRAY[expect], ARRAY[stream_version], ARRAY[1], ARRAY[event_name],
            ARRAY[event_data], ARRAY[event_meta], '{}', '{}', '{}', '{}', ARRAY[1], ARRAY[1],
            ARRAY[1]) AS a;
    ELSE
        SELECT a.* INTO append_index, stream_index, status, replayed, first_version, last_version,
                        position, expected, actual, other
          FROM weir.append(
            5, wait_ms, 0, ARRAY[append_flags], '{}', '{}', ARRAY[1], ARRAY[stream_name],
            ARRAY[expect], ARRAY[stream_version], ARRAY[1], ARRAY[event_name],
            ARRAY[event_data], ARRAY[event_meta], '{}', '{}', '{}') AS a;
    END IF;
END
$$;

-- A batch without keys of which nothing is waited for and every stream gets an event, judged as a
-- whole: most batches. When all of it succeeds it is written by three plain statements; anything
-- else (a refusal, a stream that is busy) is left to weir.append, which has the same arguments but
-- for the last four and finds what was locked here.
-- A head is a stream of the batch, named once. head_streams: the number of the stream that names it
-- first, empty when no stream is named twice; head_ends: the number of its last event;
-- event_heads and event_offsets: the head of each event, and which of its new events it is, from 1.
-- A stream that is named twice has no expectation, so the first that names it can speak for all.
-- Gives one row with the versions of the heads as they were, the position of each event and, in
-- `actual`, the time of all, or the rows of weir.append.
-- Plans: one for all sizes; weir.streams may be empty when it is made and must still not be read
-- from end to end.
CREATE OR REPLACE FUNCTION weir.append_batch(
    options integer, wait_ms integer, key_ttl bigint,
    append_flags integer[], append_keys text[], append_fingerprints bytea[],
    stream_appends integer[], stream_names text[], stream_expects integer[],
    stream_versions bigint[],
    event_streams integer[], event_names text[], event_data json[], event_meta json[],
    change_streams integer[], change_keys text[], change_kinds integer[],
    head_streams integer[], head_ends integer[], event_heads integer[], event_offsets integer[])
RETURNS TABLE (append_index integer, stream_index integer, status integer, replayed boolean,
               first_version bigint, last_version bigint, "position" bigint, expected bigint,
               actual bigint, other text, head_versions bigint[], event_ids bigint[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    store record;
    written timestamptz;
    now_us bigint;
    head_names text[] := stream_names;
    head_expects integer[] := stream_expects;
    head_wanted bigint[] := stream_versions;
    head_rows tid[];
    head_last integer[]; -- of each head: the number of its last event so far
    head integer;
    missing bigint;
    moved bigint;
    absent text[];
    fine boolean;
BEGIN
    SELECT s.number, s.version_base, pg_advisory_xact_lock_shared(1465207122, s.number)::text,
           (SELECT min(k.expires) FROM weir.keys AS k) AS expires
      INTO store FROM weir.store AS s WHERE s.one;
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM weir.commit_durably();
    END IF;
    IF cardinality(head_streams) > 0 THEN
        IF (1 <= ALL (head_streams) AND cardinality(stream_names) >= ALL (head_streams)
            AND weir.is_list(stream_names, cardinality(stream_names))) IS NOT TRUE THEN
            PERFORM weir.no_lists('the streams of a batch', 'WR002');
        END IF;
        SELECT array_agg(stream_names[u.stream]), array_agg(stream_expects[u.stream]),
               array_agg(stream_versions[u.stream])
          INTO head_names, head_expects, head_wanted
          FROM unnest(head_streams) AS u (stream);
    END IF;
    SELECT array_agg(coalesce(h.version, store.version_base - 1)), array_agg(h.ctid),
           bool_and(CASE WHEN h.closed THEN false
                         WHEN u.expect = 0 THEN true
                         WHEN u.expect = 1 THEN h.version IS NULL
                         WHEN u.expect = 2 THEN h.version IS NOT NULL
                         ELSE (u.expect = 3 AND h.version = u.version) IS TRUE END),
           count(*) - count(h.version)
      INTO head_versions, head_rows, fine, missing
      FROM unnest(head_names, head_expects, head_wanted) AS u (name, expect, version)
      LEFT JOIN LATERAL (
           SELECT s.version, s.closed, s.ctid
             FROM weir.streams AS s WHERE s.name = u.name COLLATE "C"
              FOR NO KEY UPDATE SKIP LOCKED) AS h ON true;
    IF fine AND missing > 0 THEN
        -- A call that creates many streams is met at the index: 250 ms, as in weir.append.
        PERFORM set_config('lock_timeout', '250ms', true);
        absent := ARRAY(SELECT u.name FROM unnest(head_names, head_rows) AS u (name, place)
                         WHERE u.place IS NULL);
        absent := weir.append_create(store.number, absent);
        -- Looked for again, now that nobody else can be creating them.
        fine := cardinality(absent) = missing
            AND NOT EXISTS (SELECT FROM unnest(absent) AS u (name)
                             CROSS JOIN LATERAL (SELECT FROM weir.streams AS s
                                                  WHERE s.name = u.name COLLATE "C" LIMIT 1) AS h);
    END IF;
    IF fine IS NOT TRUE THEN
        head_versions := NULL;
        RETURN QUERY
            SELECT a.*, NULL::bigint[], NULL::bigint[] FROM weir.append(
                options, wait_ms, key_ttl, append_flags, append_keys, append_fingerprints,
                stream_appends, stream_names, stream_expects, stream_versions, event_streams,
                event_names, event_data, event_meta, change_streams, change_keys,
                change_kinds) AS a;
        RETURN;
    END IF;
    -- The client has numbered the events, and is not trusted: the events of a head must be numbered
    -- 1, 2, 3 ... in the order of the events, and each head must have one.
    head_last := array_fill(0, ARRAY[cardinality(head_names)]);
    FOR i IN 1 .. cardinality(event_heads) LOOP
        head := event_heads[i];
        IF (event_offsets[i] = CASE WHEN head_last[head] = 0 THEN 1
                                    ELSE event_offsets[head_last[head]] + 1 END) IS NOT TRUE THEN
            RAISE EXCEPTION 'event % is not numbered as the next of its stream', i
                USING ERRCODE = 'WR002';
        END IF;
        head_last[head] := i;
    END LOOP;
    IF head_last IS DISTINCT FROM head_ends OR 0 = ANY (head_last) THEN
        RAISE EXCEPTION 'the last events of streams are not those that are given'
            USING ERRCODE = 'WR002';
    END IF;
    written := weir.clock();
    event_ids := ARRAY(SELECT nextval('weir.positions')
                         FROM generate_series(1, cardinality(event_heads)));
    UPDATE weir.streams AS s
       SET version = u.version + event_offsets[u.last], last_id = event_ids[u.last],
           updated = written
      FROM unnest(head_rows, head_versions, head_ends) AS u (place, version, last)
     WHERE s.ctid = u.place;
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF moved <> cardinality(head_names) - missing THEN
        RAISE EXCEPTION 'a stream is named twice' USING ERRCODE = 'WR002';
    END IF;
    IF missing > 0 THEN
        INSERT INTO weir.streams (name, version, last_id, created, updated, closed)
        SELECT u.name, u.version + event_offsets[u.last], event_ids[u.last], written, written,
               false
          FROM unnest(head_names, head_rows, head_versions, head_ends)
               AS u (name, place, version, last)
         WHERE u.place IS NULL ORDER BY u.name COLLATE "C";
    END IF;
    INSERT INTO weir.events (id, stream, version, name, data, meta, created)
    SELECT u.id, head_names[u.head], head_versions[u.head] + u.number,
           CASE WHEN weir.is_event(head_names[u.head], u.name, u.data, u.meta, false) THEN u.name
                ELSE weir.no_event(head_names[u.head], u.name) END,
           u.data, u.meta, written
      FROM unnest(event_ids, event_heads, event_offsets, event_names, event_data, event_meta)
           AS u (id, head, number, name, data, meta);
    now_us := (extract(epoch FROM written) * 1000000)::bigint;
    IF options & 4 <> 0 AND store.expires IS NOT NULL AND store.expires <= now_us THEN
        PERFORM weir.append_expire(now_us);
    END IF;
    actual := now_us;
    append_index := 0;
    stream_index := 0;
    status := 0;
    RETURN NEXT;
END
$$;
