-- append_functions.sql - appending: every call of these is one append, or one batch of them, judged
-- and written in one transaction and one round trip.
--
--   append_one     one event to one stream: most appends
--   append_batch   events to a few streams, of one append or of many, none of which waits
--   append_any     everything else, in a plain loop: idempotency keys, reserved keys, closing, chains,
--                  dry runs, many streams, a caller's own transaction
--
-- What must stay true:
--   * the store's shared advisory lock is taken by the first statement ({append_begin}), on every
--     call, before the first position: a reader that sees a gap asks who holds it. It stands in a
--     statement of its own and not in a CTE, where it might not be run;
--   * then names are locked: idempotency keys, reserved keys, streams, each kind bytewise. A name is
--     an advisory lock on its hash; no row is locked. Whoever writes to a stream has its lock;
--   * the last event of a stream is looked up (the probe) in a statement after the one that locked it,
--     with a new snapshot: what the holder before has written is visible before its lock is gone;
--   * an append is judged completely before its first position is taken: a refused one leaves no
--     trace, not even a gap;
--   * nobody waits for a name while it holds another, except in a caller's own transaction and in an
--     append with more than 48 names (append_any);
--   * a refusal is a row of the result, never an error. The unique index on (stream, version) is the
--     last guard: whoever runs into it (somebody has written without these functions) tries again.
--
-- Advisory locks live in shared memory of a fixed size, and when it is full nobody can connect any
-- more. A transaction has about 64 of them (max_locks_per_transaction), so a batch has at most 48
-- names; an append with more, up to 1,000 streams, holds a lock of its own kind, so that there is one
-- of them at a time.
--
-- A pg_try_ stands alone in its SELECT or expression: beside a join, a WHERE or a LIMIT it may be
-- called for names that nobody asked for. Plans are made once for a session, perhaps when the tables
-- are empty: probes are lookups in a LATERAL subquery, and scans of weir.events are turned off.
--
-- Numbers of appends, streams and heads are 1-based in arguments and 0-based in results.

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

-- Refuses what a caller has passed. In the place of a value.
CREATE OR REPLACE FUNCTION weir.refuse(what text, hint text, code text DEFAULT {error_invalid})
RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RAISE EXCEPTION '%', what USING ERRCODE = code, HINT = hint;
END
$$;

-- The name of an event that is as C01 and C02 want it, as far as the type json does not see to it:
-- names, sizes (the largest that payload= allows, and what Weir adds to meta), an object as meta, all on
-- one line (no string of a json has a raw line break in it), no escape that stands for no character.
-- Others are refused. The planner puts this in the place of its call, but only as long as everything in
-- it is IMMUTABLE (concat is not). Of the processor's time an append of one event takes 42 us, and 51
-- with this; 188 when it is called, and 70 with a CHECK of the table, which every INSERT prepares anew.
-- In a batch 25 and 28.
CREATE OR REPLACE FUNCTION weir.event_name(
    stream text, name text, data json, meta json, closing boolean)
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN weir.is_name(stream)
       AND CASE WHEN closing THEN name = '$closed' ELSE weir.is_name(name) END
       AND octet_length(data::text) <= 33554432 AND octet_length(meta::text) <= 33558528
       AND json_typeof(meta) = 'object'
       AND strpos(data::text, chr(10)) = 0 AND strpos(data::text, chr(13)) = 0
       AND strpos(meta::text, chr(10)) = 0 AND strpos(meta::text, chr(13)) = 0
       AND (strpos(data::text, chr(92) || 'u') = 0 OR json_strip_nulls(data) IS NOT NULL)
       AND (strpos(meta::text, chr(92) || 'u') = 0 OR json_strip_nulls(meta) IS NOT NULL)
           THEN name
           ELSE weir.refuse('event "' || coalesce(left(name, 80), '') || '" of stream "'
                                || coalesce(left(stream, 80), '') || '" is refused',
                            {names_hint} || ' '
                    'data and meta are JSON on one line of at most 32 MiB, and meta is an object.')
           END
$$;

-- Refuses names if one of them is not valid. own: Weir's own are allowed.
CREATE OR REPLACE FUNCTION weir.check_names(what text, names text[], own boolean) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    PERFORM weir.refuse(concat(what, ' "', left(u.name, 80), '" is not a name'), {names_hint})
       FROM unnest(names) AS u (name)
      WHERE CASE WHEN own THEN weir.is_text(u.name) ELSE weir.is_name(u.name) END IS NOT TRUE;
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
CREATE OR REPLACE FUNCTION weir.no_lists(what text, code text DEFAULT {error_invalid}) RETURNS void
LANGUAGE sql IMMUTABLE AS $$
    SELECT weir.refuse(what || ' do not fit together',
        'Lists of the same things have the same length and begin with 1, nothing of them may be null, '
        'and every number is that of something in the list it counts, in its order.', code)
$$;

-- What a name is locked by, of its kind ({held_stream} and so on).
CREATE OR REPLACE FUNCTION weir.append_hash(kind integer, name text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT hashtextextended(name COLLATE "C", weir.number()::bigint * 4 + kind)
$$;

-- The one rule of expectations, against the last event of the stream: version NULL when there is none.
CREATE OR REPLACE FUNCTION weir.append_judge(
    expect integer, wanted bigint, version bigint, name text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN name = '$closed' THEN {status_closed}
                WHEN CASE expect WHEN {expect_any} THEN true
                                 WHEN {expect_none} THEN version IS NULL
                                 WHEN {expect_exists} THEN version IS NOT NULL
                                 WHEN {expect_exact} THEN version = wanted END THEN 0
                ELSE {status_conflict} END
$$;

-- Waits for a lock (NULL: for none). Whatever comes later waits for as long as is left of wait_ms since
-- the statement began. 0: as the session says.
CREATE OR REPLACE FUNCTION weir.append_wait(hash bigint, wait_ms integer) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hash);
    IF wait_ms > 0 THEN
        PERFORM set_config('lock_timeout', greatest(1, wait_ms - (1000 * extract(epoch FROM
            clock_timestamp() - statement_timestamp()))::integer) || 'ms', true);
    END IF;
END
$$;

-- One event to one stream, without keys. A stream that somebody else holds is busy with the flag
-- append_nowait, else waited for. `version`: what the event got, or what a conflict has met.
-- lock_timeout: for the index, where an owner's INSERT that has not ended may be met.
CREATE OR REPLACE FUNCTION weir.append_one(
    append_flags integer, wait_ms integer, stream_name text, expect integer, stream_version bigint,
    event_name text, event_data json, event_meta json,
    OUT status integer, OUT version bigint, OUT "position" bigint, OUT created timestamptz)
{as_owner}
SET lock_timeout = '250ms' SET enable_seqscan = off
AS $$
DECLARE
    last_version bigint;
    last_name text;
BEGIN
    {append_begin}
    IF (append_flags IN (0, {append_nowait})) IS NOT TRUE THEN
        PERFORM weir.refuse(concat('append_one has no flags ', append_flags),
                            'Use weir.append_any to close a stream, to chain appends, or for a dry run.');
    END IF;
    IF append_flags & {append_nowait} = 0 THEN
        PERFORM set_config('lock_timeout', wait_ms || 'ms', true); -- until the function ends
    END IF;
    IF NOT pg_try_advisory_xact_lock(weir.append_hash({held_stream}, stream_name)) THEN
        IF append_flags & {append_nowait} <> 0 THEN
            status := {status_busy};
            RETURN;
        END IF;
        PERFORM weir.append_wait(weir.append_hash({held_stream}, stream_name), wait_ms);
    END IF;
    SELECT e.version, e.name INTO last_version, last_name
      FROM weir.events AS e WHERE e.stream = stream_name ORDER BY e.version DESC LIMIT 1;
    status := weir.append_judge(expect, stream_version, last_version, last_name);
    IF status <> 0 THEN
        version := coalesce(last_version, -1);
        RETURN;
    END IF;
    version := coalesce(last_version + 1, weir.version_base());
    position := nextval('weir.positions');
    created := weir.clock();
    INSERT INTO weir.events (id, stream, version, name, data, meta, created)
    VALUES (position, stream_name, append_one.version,
            weir.event_name(stream_name, append_one.event_name, event_data, event_meta, false),
            event_data, event_meta, append_one.created);
END
$$;

-- Appends without keys, judged as a whole: every stream gets an event, and one with an expectation is
-- named by one append only. A head is a stream of the call, named once. stream_appends and stream_heads:
-- of each stream of each append, whose it is and which head.
-- What somebody else holds makes the appends that want it busy and no others. Of each append
-- that is refused, refused_* have its first stream that was, why, and the version that is there.
-- all_or_none: if one is refused nothing is written.
-- head_versions: as they were before; event_ids: 0 for events of refused appends, NULL when nothing
-- was written. The client counts the versions as it is done here.
CREATE OR REPLACE FUNCTION weir.append_batch(
    all_or_none boolean, head_names text[], head_expects integer[], head_wanted bigint[],
    stream_appends integer[], stream_heads integer[],
    event_streams integer[], event_names text[], event_data json[], event_meta json[],
    OUT head_versions bigint[], OUT event_ids bigint[], OUT created timestamptz,
    OUT refused_streams integer[], OUT refused_states integer[], OUT refused_versions bigint[])
{as_owner}
SET lock_timeout = '250ms'
{append_plans}
AS $$
DECLARE
    held boolean[];
    states integer[];
    refused integer[] := '{}'; -- appends
    versions bigint[]; -- of the heads, so far
    event_versions bigint[];
    stream integer;
    head integer;
BEGIN
    {append_begin}
    IF (cardinality(head_names) BETWEEN 1 AND 64
        AND weir.is_list(head_names, cardinality(head_names))
        AND array_position(head_names, NULL) IS NULL
        AND weir.is_list(head_expects, cardinality(head_names))
        AND weir.is_list(head_wanted, cardinality(head_names))
        AND weir.is_list(stream_appends, cardinality(stream_heads))
        AND weir.is_list(stream_heads, cardinality(stream_heads))
        AND weir.is_list(event_streams, cardinality(event_names))
        AND weir.is_list(event_data, cardinality(event_names))
        AND weir.is_list(event_meta, cardinality(event_names))
        AND 1 <= ALL (stream_appends)
        AND 1 <= ALL (stream_heads) AND cardinality(head_names) >= ALL (stream_heads)
        AND 1 <= ALL (event_streams) AND cardinality(stream_heads) >= ALL (event_streams))
       IS NOT TRUE THEN
        PERFORM weir.no_lists('the lists of a batch');
    END IF;
    held := ARRAY(SELECT pg_try_advisory_xact_lock(weir.append_hash({held_stream}, u.name))
                    FROM unnest(head_names) AS u (name));
    SELECT array_agg(coalesce(l.version, weir.version_base() - 1)),
           array_agg(CASE WHEN u.held THEN weir.append_judge(u.expect, u.wanted, l.version, l.name)
                          ELSE {status_busy} END),
           array_agg(coalesce(l.version, -1))
      INTO head_versions, states, refused_versions
      FROM unnest(head_names, head_expects, head_wanted, held) AS u (name, expect, wanted, held)
      LEFT JOIN LATERAL (SELECT e.version, e.name FROM weir.events AS e
                          WHERE e.stream = u.name ORDER BY e.version DESC LIMIT 1) AS l ON true;
    IF (0 = ALL (states)) IS NOT TRUE THEN
        SELECT array_agg(r.append), array_agg(r.number - 1), array_agg(states[r.head]),
               array_agg(refused_versions[r.head])
          INTO refused, refused_streams, refused_states, refused_versions
          FROM (SELECT DISTINCT ON (s.append) s.append, s.head, s.number
                  FROM unnest(stream_appends, stream_heads) WITH ORDINALITY
                       AS s (append, head, number)
                 WHERE states[s.head] <> 0 ORDER BY s.append, s.number) AS r;
        IF all_or_none OR NOT EXISTS (SELECT FROM unnest(event_streams) AS e (stream)
                                       WHERE stream_appends[e.stream] <> ALL (refused)) THEN
            RETURN;
        END IF;
    END IF;
    created := weir.clock();
    versions := head_versions;
    FOR i IN 1 .. cardinality(event_streams) LOOP
        stream := event_streams[i];
        event_ids[i] := 0;
        event_versions[i] := 0;
        IF refused = '{}' OR stream_appends[stream] <> ALL (refused) THEN
            head := stream_heads[stream];
            versions[head] := versions[head] + 1;
            event_versions[i] := versions[head];
            event_ids[i] := nextval('weir.positions');
        END IF;
    END LOOP;
    INSERT INTO weir.events (id, stream, version, name, data, meta, created)
    SELECT u.id, head_names[stream_heads[u.stream]], u.version,
           weir.event_name(head_names[stream_heads[u.stream]], u.name, u.data, u.meta, false),
           u.data, u.meta, append_batch.created
      FROM unnest(event_ids, event_streams, event_versions, event_names, event_data, event_meta)
           AS u (id, stream, version, name, data, meta)
     WHERE u.id IS DISTINCT FROM 0;
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

-- The appends of a call, one after the other: each is judged, seeing those before it, and written.
-- What is not in `busy` (kind and name) is locked. The rows are those of append_any.
CREATE OR REPLACE FUNCTION weir.append_each(
    key_ttl bigint, {append_parameters}, busy text[])
{append_rows}
LANGUAGE plpgsql VOLATILE
{append_plans}
AS $$
DECLARE
    written timestamptz := weir.clock();
    now_us bigint := (extract(epoch FROM written) * 1000000)::bigint;
    flags integer;
    append_key text;
    kept record;
    held text[];
    fine boolean := true; -- the append before this one
    -- Where the streams, events and key changes of this append begin, and those of the next one.
    stream_low integer;
    stream_end integer := 1;
    event_low integer;
    event_end integer := 1;
    change_low integer;
    change_end integer := 1;
    firsts bigint[]; -- of its streams
    lasts bigint[];
    ids bigint[];
    event_versions bigint[];
    event_ids bigint[];
    next_id bigint;
    n integer;
BEGIN
    replayed := false;
    FOR i IN 1 .. cardinality(append_flags) LOOP
        flags := append_flags[i];
        append_key := coalesce(append_keys[i], '');
        stream_low := stream_end;
        event_low := event_end;
        change_low := change_end;
        WHILE stream_appends[stream_end] = i LOOP
            stream_end := stream_end + 1;
        END LOOP;
        WHILE event_streams[event_end] BETWEEN stream_low AND stream_end - 1 LOOP
            event_end := event_end + 1;
        END LOOP;
        WHILE change_streams[change_end] BETWEEN stream_low AND stream_end - 1 LOOP
            change_end := change_end + 1;
        END LOOP;
        IF flags & {append_close} <> 0
            AND (stream_end - stream_low <> 1 OR event_end - event_low <> 1) THEN
            RAISE EXCEPTION 'closing a stream appends its last event and nothing else'
                USING ERRCODE = {error_invalid};
        END IF;
        append_index := i - 1;
        stream_index := -1;
        status := 0;
        first_version := NULL;
        last_version := NULL;
        position := NULL;
        other := NULL;

        <<judge>> -- left with a status below 0: refused
        BEGIN
            IF flags & {append_chain} <> 0 AND NOT fine THEN
                status := {status_misuse};
                EXIT judge;
            END IF;
            fine := false;

            IF append_key <> '' THEN
                IF length(append_fingerprints[i]) IS DISTINCT FROM 32 THEN
                    PERFORM weir.no_lists('idempotency keys and their SHA-256');
                END IF;
                IF {held_key} || append_key = ANY (busy) THEN
                    status := CASE WHEN flags & {append_nowait} <> 0 THEN {status_busy}
                                   ELSE {status_inflight} END;
                    position := {held_key};
                    EXIT judge;
                END IF;
                SELECT k.fingerprint = append_fingerprints[i] AS same, k.result INTO kept
                  FROM weir.keys AS k WHERE k.key = append_key AND k.expires > now_us;
                IF FOUND AND kept.same IS NOT TRUE THEN
                    status := {status_keyreused};
                    EXIT judge;
                ELSIF FOUND THEN
                    fine := true;
                    RETURN QUERY
                        SELECT i - 1, r.stream, 0, true, r.first, r.last, r.id,
                               (SELECT e.created FROM weir.events AS e WHERE e.id = r.id), NULL::text
                          FROM weir.append_kept(kept.result) AS r;
                    CONTINUE;
                END IF;
            END IF;

            -- Its streams. n: the first one that is refused; 1: closed already, nothing to do.
            SELECT array_agg(s.version ORDER BY s.number),
                   min(s.number) FILTER (WHERE s.verdict <> 0),
                   (array_agg(s.verdict ORDER BY s.number) FILTER (WHERE s.verdict <> 0))[1]
              INTO lasts, n, status
              FROM (SELECT u.number, l.version,
                           CASE WHEN {held_stream} || stream_names[u.number] = ANY (busy)
                                THEN {status_busy}
                                WHEN flags & {append_close} <> 0 AND l.version IS NULL
                                THEN {status_notfound}
                                WHEN flags & {append_close} <> 0 AND l.name = '$closed' THEN 1
                                ELSE weir.append_judge(stream_expects[u.number],
                                                       stream_versions[u.number], l.version, l.name)
                                END AS verdict
                      FROM generate_series(stream_low, stream_end - 1) AS u (number)
                      LEFT JOIN LATERAL (SELECT e.version, e.name FROM weir.events AS e
                                          WHERE e.stream = stream_names[u.number]
                                          ORDER BY e.version DESC LIMIT 1) AS l ON true) AS s;
            IF n IS NOT NULL THEN
                stream_index := n - stream_low;
                last_version := coalesce(lasts[stream_index + 1], -1);
                position := {held_stream};
                EXIT judge;
            END IF;

            IF flags & ({append_close} | {append_force}) = {append_close} THEN
                held := weir.unhandled(stream_names[stream_low]);
                IF cardinality(held) > 0 THEN
                    stream_index := 0;
                    status := {status_held};
                    -- As many as a message can show, and one to tell that there are more.
                    other := left(array_to_string(held, ', '), 1024);
                    EXIT judge;
                END IF;
            END IF;

            -- Reserved keys, each change seeing those before it. Only the first refusal counts, and
            -- before it all went well, so the change before it is what the owner is.
            IF change_end > change_low THEN
                SELECT CASE WHEN c.busy THEN {held_reserved} ELSE c.number - change_low END,
                       CASE WHEN c.busy THEN {status_busy} ELSE {status_taken} END, c.owner
                  INTO position, status, other
                  FROM (SELECT u.number, stream_names[change_streams[u.number]] AS stream,
                               {held_reserved} || u.key = ANY (busy) AS busy,
                               CASE lag(change_kinds[u.number]) OVER same
                                    WHEN {change_reserve}
                                    THEN stream_names[lag(change_streams[u.number]) OVER same]
                                    WHEN {change_release} THEN NULL
                                    ELSE r.stream END AS owner
                          FROM (SELECT k.number, change_keys[k.number] AS key
                                  FROM generate_series(change_low, change_end - 1)
                                       AS k (number)) AS u
                          LEFT JOIN LATERAL (SELECT x.stream FROM weir.reserved AS x
                                              WHERE x.key = u.key) AS r ON true
                        WINDOW same AS (PARTITION BY u.key COLLATE "C" ORDER BY u.number)) AS c
                 WHERE c.busy OR c.owner IS NOT NULL AND c.owner IS DISTINCT FROM c.stream
                 ORDER BY c.number LIMIT 1;
            END IF;
        END;
        fine := coalesce(status, 0) >= 0;
        IF status <> 0 THEN
            IF fine THEN -- closed already
                status := 0;
                first_version := -1;
            END IF;
            RETURN NEXT;
            CONTINUE;
        END IF;

        -- Versions and positions in the order of its events. A dry run takes none: what it would get.
        IF flags & {append_dry_run} <> 0 THEN
            SELECT p.last_value + p.is_called::integer - 1 INTO next_id FROM weir.positions AS p;
        END IF;
        firsts := array_fill(-1::bigint, ARRAY[stream_end - stream_low]);
        ids := array_fill(0::bigint, ARRAY[stream_end - stream_low]);
        event_versions := '{}';
        event_ids := '{}';
        FOR k IN event_low .. event_end - 1 LOOP
            n := event_streams[k] - stream_low + 1;
            next_id := CASE WHEN flags & {append_dry_run} <> 0 THEN next_id + 1
                            ELSE nextval('weir.positions') END;
            lasts[n] := coalesce(lasts[n] + 1, weir.version_base());
            IF ids[n] = 0 THEN
                firsts[n] := lasts[n];
            END IF;
            ids[n] := next_id;
            event_versions[k] := lasts[n];
            event_ids[k] := next_id;
        END LOOP;
        IF flags & {append_dry_run} = 0 THEN
            INSERT INTO weir.events (id, stream, version, name, data, meta, created)
            SELECT event_ids[n.k], stream_names[event_streams[n.k]], event_versions[n.k],
                   weir.event_name(stream_names[event_streams[n.k]], event_names[n.k],
                                   event_data[n.k], event_meta[n.k], flags & {append_close} <> 0),
                   event_data[n.k], event_meta[n.k], written
              FROM generate_series(event_low, event_end - 1) AS n (k)
             ORDER BY stream_names[event_streams[n.k]] COLLATE "C", event_versions[n.k];
            FOR k IN change_low .. change_end - 1 LOOP
                IF change_kinds[k] = {change_release} THEN
                    DELETE FROM weir.reserved AS r WHERE r.key = change_keys[k];
                ELSE
                    INSERT INTO weir.reserved AS r (key, stream)
                    VALUES (change_keys[k], stream_names[change_streams[k]])
                    ON CONFLICT (key) DO NOTHING; -- its own already
                END IF;
            END LOOP;
            IF append_key <> '' THEN -- one that has expired may still be there
                INSERT INTO weir.keys (key, expires, fingerprint, result)
                SELECT append_key, CASE WHEN key_ttl > {forever} - now_us THEN {forever}
                                        ELSE now_us + key_ttl END,
                       append_fingerprints[i],
                       coalesce(string_agg(int8send(u.first) || int8send(coalesce(u.last, -1))
                                           || int8send(u.id), '' ORDER BY u.number), '')
                  FROM unnest(firsts, lasts, ids) WITH ORDINALITY AS u (first, last, id, number)
                ON CONFLICT (key) DO UPDATE
                   SET expires = excluded.expires, fingerprint = excluded.fingerprint,
                       result = excluded.result;
            END IF;
        END IF;
        RETURN QUERY
            SELECT i - 1, u.number::integer - 1, 0, false, u.first, coalesce(u.last, -1), u.id,
                   CASE WHEN u.id > 0 THEN written END, NULL::text
              FROM unnest(firsts, lasts, ids) WITH ORDINALITY AS u (first, last, id, number);
    END LOOP;
    IF stream_end <= cardinality(stream_names) OR event_end <= cardinality(event_streams)
       OR change_end <= cardinality(change_streams) THEN -- what is not in the order of the appends
        PERFORM weir.no_lists('the streams of the appends, their events and their keys');
    END IF;
    IF cardinality(append_keys) > 0 THEN -- some expired keys: never waits, never more than 64
        DELETE FROM weir.keys AS k
         WHERE k.key = ANY (ARRAY(
            SELECT x.key FROM weir.keys AS x
             WHERE x.expires <= now_us ORDER BY x.expires LIMIT 64
               FOR UPDATE SKIP LOCKED));
    END IF;
END
$$;

-- Appends one or many, in order. append_keys is empty when no append has an idempotency key, else ''
-- for those without. wait_ms: how long to wait for what others hold; 0: as the session says.
--
-- Names that others hold: with append_nowait of the first append, each append that wants one is busy
-- and the others go on. Without it the call ends with one busy row of append -1, which has the kind (in
-- "position") and the name (in other), and nothing is written: the client calls again and says what to
-- wait for first (first_kind, first_name). So it waits for a name while it holds none.
-- Options: append_in_order waits for one name after the other, holding those that it has: in a
-- transaction that cannot be repeated, for an append with many names, and when somebody has been
-- unlucky often. append_in_transaction: the caller's own, which an error would cost him. What he
-- meets at the index is judged again.
--
-- A refused append gives one row: status below 0, stream_index the stream concerned or -1; a conflict
-- has the version that is there in last_version, a taken key its owner in other and the change's
-- number in "position", a close that is held the reactions in other, a busy one the kind of what is
-- held in "position". The others give a row for each stream; `created` is null when it got no event.
CREATE OR REPLACE FUNCTION weir.append_any(
    options integer, wait_ms integer, key_ttl bigint,
    {append_parameters},
    first_kind integer DEFAULT NULL, first_name text DEFAULT NULL)
{append_rows}
{as_owner}
AS $$
DECLARE
    nowait boolean := append_flags[1] & {append_nowait} <> 0;
    in_order boolean := options & {append_in_order} <> 0;
    names text[]; -- kind and name
    hashes bigint[];
    streams bigint;
    busy text[] := '{}';
    met text;
BEGIN
    {append_begin}
    IF (weir.is_list(append_flags, cardinality(append_flags)) AND 0 <= ALL (append_flags)
        AND weir.is_list(append_keys, cardinality(append_fingerprints))
        AND weir.is_list(append_fingerprints,
                         CASE WHEN cardinality(append_keys) > 0 THEN cardinality(append_flags)
                              ELSE 0 END)
        AND weir.is_list(stream_appends, cardinality(stream_names))
        AND weir.is_list(stream_names, cardinality(stream_names))
        AND weir.is_list(stream_expects, cardinality(stream_names))
        AND weir.is_list(stream_versions, cardinality(stream_names))
        AND 1 <= ALL (stream_appends) AND cardinality(append_flags) >= ALL (stream_appends)
        AND {expect_any} <= ALL (stream_expects) AND {expect_exact} >= ALL (stream_expects)
        AND weir.is_list(event_streams, cardinality(event_streams))
        AND weir.is_list(event_names, cardinality(event_streams))
        AND weir.is_list(event_data, cardinality(event_streams))
        AND weir.is_list(event_meta, cardinality(event_streams))
        AND 1 <= ALL (event_streams) AND cardinality(stream_names) >= ALL (event_streams)
        AND weir.is_list(change_streams, cardinality(change_streams))
        AND weir.is_list(change_keys, cardinality(change_streams))
        AND weir.is_list(change_kinds, cardinality(change_streams))
        AND 1 <= ALL (change_streams) AND cardinality(stream_names) >= ALL (change_streams)
        AND {change_reserve} <= ALL (change_kinds) AND {change_release} >= ALL (change_kinds))
       IS NOT TRUE THEN
        PERFORM weir.no_lists('the lists of an append');
    END IF;
    PERFORM weir.check_names('idempotency key', array_remove(append_keys, ''), false);
    IF cardinality(change_keys) > 0 THEN
        PERFORM weir.check_names('key', change_keys, false);
        PERFORM weir.check_names('stream', stream_names, false); -- one may have no event
    END IF;

    -- In the order of locking: idempotency keys, reserved keys, streams, each bytewise.
    SELECT array_agg(u.kind || u.name ORDER BY (u.kind + 2) % 3, u.name COLLATE "C"),
           array_agg(weir.append_hash(u.kind, u.name) ORDER BY (u.kind + 2) % 3, u.name COLLATE "C"),
           count(*) FILTER (WHERE u.kind = {held_stream})
      INTO names, hashes, streams
      FROM (SELECT {held_key} AS kind, k.name FROM unnest(append_keys) AS k (name) WHERE k.name <> ''
            UNION SELECT {held_reserved}, k.name FROM unnest(change_keys) AS k (name)
            UNION SELECT {held_stream}, s.name FROM unnest(stream_names) AS s (name)) AS u;
    IF streams > 1000 OR cardinality(names) > 3000 THEN
        RAISE EXCEPTION 'a call appends to % streams, allowed 1 to 1000', streams
            USING ERRCODE = {error_invalid};
    END IF;
    IF nowait THEN
        PERFORM set_config('lock_timeout', '250ms', true); -- at the index
    ELSE
        PERFORM weir.append_wait(NULL, wait_ms);
        IF first_name IS NOT NULL THEN
            PERFORM weir.append_wait(weir.append_hash(first_kind, first_name), wait_ms);
        END IF;
    END IF;
    IF cardinality(names) > 48 THEN
        IF NOT nowait THEN
            PERFORM weir.append_wait(weir.append_hash({held_large}, ''), wait_ms);
            in_order := true;
        ELSIF NOT pg_try_advisory_xact_lock(weir.append_hash({held_large}, '')) THEN
            busy := names; -- all of them: nothing is tried
            names := '{}';
        END IF;
    END IF;
    FOR i IN 1 .. cardinality(names) LOOP
        IF pg_try_advisory_xact_lock(hashes[i]) THEN
            CONTINUE;
        ELSIF NOT in_order THEN
            busy := busy || names[i];
            EXIT WHEN NOT nowait;
        ELSIF left(names[i], 1)::integer <> {held_key} THEN
            PERFORM weir.append_wait(hashes[i], wait_ms);
        ELSE -- a key that stays held is in flight, and not an error
            BEGIN
                PERFORM weir.append_wait(hashes[i], wait_ms);
            EXCEPTION WHEN lock_not_available THEN
                busy := busy || names[i];
                PERFORM weir.append_wait(NULL, wait_ms);
            END;
            -- Alone it is judged already, and has no time left to meet others at the streams.
            EXIT WHEN cardinality(busy) > 0 AND cardinality(append_flags) = 1;
        END IF;
    END LOOP;
    IF cardinality(busy) > 0 AND NOT (nowait OR in_order) THEN
        RETURN QUERY SELECT -1, -1, {status_busy}, false, NULL::bigint, NULL::bigint,
                            left(busy[1], 1)::bigint, NULL::timestamptz, substr(busy[1], 2);
        RETURN;
    END IF;

    IF options & {append_in_transaction} = 0 THEN
        RETURN QUERY SELECT a.* FROM weir.append_each(key_ttl, {append_arguments}, busy) AS a;
        RETURN;
    END IF;
    FOR i IN 1 .. 4 LOOP
        BEGIN -- no lock is taken in here: it would be gone when this is rolled back
            RETURN QUERY SELECT a.* FROM weir.append_each(key_ttl, {append_arguments}, busy) AS a;
            RETURN;
        EXCEPTION WHEN unique_violation THEN
            GET STACKED DIAGNOSTICS met = CONSTRAINT_NAME;
            IF i = 4 OR met NOT IN ('events_version', 'events_first') THEN
                RAISE;
            END IF;
        END;
    END LOOP;
END
$$;
