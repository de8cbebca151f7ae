-- What weir init ran for schema 2, as weir init --plan printed it.
BEGIN;
CREATE SCHEMA weir;

CREATE OR REPLACE FUNCTION weir.clock() RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
    SELECT clock_timestamp()
$$;
CREATE OR REPLACE FUNCTION weir.clock_us() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM weir.clock()) * 1000000)::bigint
$$;

CREATE TABLE weir.store (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    schema integer NOT NULL,
    client_least integer NOT NULL,
    epoch text NOT NULL,
    number integer NOT NULL,
    created timestamptz NOT NULL,
    version_base bigint NOT NULL DEFAULT 0
);
CREATE TABLE weir.safe (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    position bigint NOT NULL
) WITH (fillfactor = 10);
CREATE TABLE weir.streams (
    name text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    last_id bigint NOT NULL,
    created timestamptz NOT NULL,
    updated timestamptz NOT NULL,
    closed boolean NOT NULL DEFAULT false
) WITH (fillfactor = 70);
CREATE SEQUENCE weir.positions AS bigint CACHE 1;
CREATE TABLE weir.events (
    id bigint PRIMARY KEY,
    stream text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    data json NOT NULL,
    meta json NOT NULL,
    created timestamptz NOT NULL
);
CREATE UNIQUE INDEX events_version ON weir.events (stream, version);
CREATE INDEX events_category ON weir.events (split_part(stream, '-', 1), id);
CREATE INDEX events_name ON weir.events (name, id);
CREATE TABLE weir.keys (
    key text COLLATE "C" PRIMARY KEY,
    expires bigint NOT NULL,
    fingerprint bytea NOT NULL,
    result bytea NOT NULL
);
CREATE INDEX keys_expires ON weir.keys (expires);
CREATE TABLE weir.reserved (
    key text COLLATE "C" PRIMARY KEY,
    stream text COLLATE "C" NOT NULL
);
CREATE TABLE weir.snapshots (
    stream text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    revision text COLLATE "C" NOT NULL,
    data bytea NOT NULL
);

CREATE TABLE weir.reactions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    number bigint NOT NULL,
    since bigint NOT NULL,
    routed bigint NOT NULL,
    reread_to bigint NOT NULL DEFAULT 0,
    retired boolean NOT NULL DEFAULT false,
    router text,
    router_until bigint NOT NULL DEFAULT 0,
    router_fence bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE TABLE weir.definitions (
    reaction bigint NOT NULL,
    number bigint NOT NULL,
    names text[] COLLATE "C",
    source text COLLATE "C" NOT NULL,
    rule integer NOT NULL,
    rule_text text COLLATE "C" NOT NULL,
    PRIMARY KEY (reaction, number)
);
CREATE TABLE weir.targets (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    lane text COLLATE "C" NOT NULL,
    priority bigint NOT NULL DEFAULT 0,
    override bigint,
    watermark bigint NOT NULL DEFAULT 0,
    rank bigint NOT NULL DEFAULT 0,
    behind boolean NOT NULL DEFAULT false,
    held boolean NOT NULL DEFAULT false,
    due bigint,
    fence bigint NOT NULL DEFAULT 0,
    holder text,
    lease_until bigint NOT NULL DEFAULT 0,
    lost bigint NOT NULL DEFAULT 0,
    blocked bigint,
    paused boolean NOT NULL DEFAULT false,
    paused_by text NOT NULL DEFAULT '',
    error text NOT NULL DEFAULT '',
    event bigint NOT NULL DEFAULT 0,
    reaction bigint NOT NULL DEFAULT 0,
    attempts bigint NOT NULL DEFAULT 0
) WITH (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000
);
CREATE INDEX targets_priority ON weir.targets (lane, priority DESC, rank, id)
    WHERE behind AND NOT held AND due IS NULL;
CREATE INDEX targets_rank ON weir.targets (lane, rank, id)
    WHERE behind AND NOT held AND due IS NULL;
CREATE INDEX targets_due ON weir.targets (lane, due, id)
    WHERE behind AND NOT held AND due IS NOT NULL;
CREATE INDEX targets_blocked ON weir.targets (name) WHERE blocked IS NOT NULL;
CREATE TABLE weir.subscriptions (
    target bigint NOT NULL,
    reaction bigint NOT NULL,
    at bigint NOT NULL,
    mark bigint NOT NULL,
    retries bigint NOT NULL DEFAULT 0,
    priority bigint NOT NULL,
    source text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    was_reset boolean NOT NULL DEFAULT false,
    PRIMARY KEY (target, reaction)
) WITH (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000
);
CREATE INDEX subscriptions_value ON weir.subscriptions (reaction, value);
CREATE INDEX subscriptions_reset ON weir.subscriptions (reaction) WHERE was_reset;
CREATE TABLE weir.work (
    target bigint NOT NULL,
    reaction bigint NOT NULL,
    event bigint NOT NULL,
    PRIMARY KEY (target, reaction, event)
);
CREATE INDEX work_event ON weir.work (reaction, event);
CREATE TABLE weir.parked (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    reaction bigint NOT NULL,
    target bigint NOT NULL,
    event bigint NOT NULL,
    attempts bigint NOT NULL,
    parked bigint NOT NULL,
    error text NOT NULL,
    sent_back boolean NOT NULL DEFAULT false,
    UNIQUE (target, reaction, event)
);
CREATE INDEX parked_sent_back ON weir.parked (target, event, reaction) WHERE sent_back;
CREATE INDEX parked_reaction ON weir.parked (reaction, id);
CREATE TABLE weir.lanes (
    lane text COLLATE "C" PRIMARY KEY,
    paused boolean NOT NULL DEFAULT false,
    paused_by text NOT NULL DEFAULT ''
);

CREATE TABLE weir.workers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    host text NOT NULL,
    pid bigint NOT NULL,
    lanes text[] COLLATE "C" NOT NULL,
    reactions bigint[] NOT NULL,
    numbers bigint[] NOT NULL,
    since bigint NOT NULL,
    lease_until bigint NOT NULL,
    draining boolean NOT NULL
) WITH (fillfactor = 50);

ALTER TABLE weir.workers ADD COLUMN metrics text NOT NULL DEFAULT '';
ALTER TABLE weir.reactions ADD COLUMN attempts bigint NOT NULL DEFAULT 0;

CREATE SEQUENCE weir.lock_fences AS bigint CACHE 1;
CREATE TABLE weir.locks (
    once boolean NOT NULL,
    name text COLLATE "C" NOT NULL,
    holder text NOT NULL DEFAULT '',
    fence bigint NOT NULL DEFAULT 0,
    since bigint NOT NULL DEFAULT 0,
    lease_until bigint NOT NULL DEFAULT 0,
    state integer NOT NULL DEFAULT 0,
    exit_status bigint NOT NULL DEFAULT 0,
    ended bigint NOT NULL DEFAULT 0,
    output bytea NOT NULL DEFAULT '',
    PRIMARY KEY (once, name)
) WITH (fillfactor = 50);

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

INSERT INTO weir.store (schema, client_least, epoch, number, created)
VALUES (1, 1, gen_random_uuid()::text, (random() * 2147483646)::integer, weir.clock());
INSERT INTO weir.safe (position) VALUES (0);

ALTER TABLE weir.events ENABLE ALWAYS TRIGGER events_no_change;
ALTER TABLE weir.events ENABLE ALWAYS TRIGGER events_no_truncate;
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
ALTER TABLE weir.safe
    ADD COLUMN IF NOT EXISTS top bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS holders text[] NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS server bigint NOT NULL DEFAULT 0;

CREATE OR REPLACE FUNCTION weir.commit_durably() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION weir.cluster() RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN set_config('weir_cluster.id',
                      (SELECT c.system_identifier::text FROM pg_control_system() AS c), false);
END
$$;
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

CREATE OR REPLACE FUNCTION weir.is_text(name text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT octet_length(name) BETWEEN 1 AND 512
       AND name COLLATE "C" !~ '[\u0001-\u001f\u007f-\u009f]'
$$;
CREATE OR REPLACE FUNCTION weir.is_name(name text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT octet_length(name) BETWEEN 1 AND 512
       AND name COLLATE "C" !~ '^[$]|[\u0001-\u001f\u007f-\u009f]'
$$;
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
CREATE OR REPLACE FUNCTION weir.no_event(stream text, name text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RAISE EXCEPTION 'event "%" of stream "%" is refused', left(name, 80), left(stream, 80)
        USING ERRCODE = 'WR002',
              HINT = 'Names have 1 to 512 bytes without control characters and do not begin with $; '
                     'data and meta are JSON on one line of at most 32 MiB, and meta is an object.';
END
$$;
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
CREATE OR REPLACE FUNCTION weir.is_list(list anyarray, size integer) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT cardinality(list) = size
       AND (size = 0 OR array_ndims(list) = 1 AND array_lower(list, 1) = 1)
$$;
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
CREATE OR REPLACE FUNCTION weir.append_hash(number integer, kind integer, name text)
RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT hashtextextended(name COLLATE "C", number::bigint * 4 + kind)
$$;
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
    IF status = 1 THEN
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
            other := left(array_to_string(held, ', '), 1024);
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
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
    IF append_flags & 4 <> 0 THEN
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
CREATE OR REPLACE FUNCTION weir.append_kept(result bytea)
RETURNS TABLE (stream integer, first bigint, last bigint, id bigint)
LANGUAGE sql IMMUTABLE AS $$
    SELECT n, ('x' || encode(substr(result, n * 24 + 1, 8), 'hex'))::bit(64)::bigint,
           ('x' || encode(substr(result, n * 24 + 9, 8), 'hex'))::bit(64)::bigint,
           ('x' || encode(substr(result, n * 24 + 17, 8), 'hex'))::bit(64)::bigint
      FROM generate_series(0, length(result) / 24 - 1) AS n
$$;
CREATE OR REPLACE FUNCTION weir.append_time(event bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT (extract(epoch FROM e.created) * 1000000)::bigint FROM weir.events AS e WHERE e.id = event
$$;
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
SET plan_cache_mode = force_generic_plan
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
        PERFORM weir.check_names('stream', stream_names, false);
    END IF;
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
    IF cardinality(change_keys) > 0 THEN
        IF waiting THEN
            PERFORM pg_advisory_xact_lock(weir.append_hash(store.number, 2, u.key))
               FROM (SELECT DISTINCT v.key COLLATE "C" AS key FROM unnest(change_keys) AS v (key)
                      ORDER BY key) AS u;
        ELSE
            SELECT coalesce(array_agg(u.key), '{}') INTO busy_reserved
              FROM (SELECT k.key, row_number() OVER (ORDER BY k.key) AS number
                      FROM (SELECT DISTINCT v.key COLLATE "C" AS key
                              FROM unnest(change_keys) AS v (key)) AS k) AS u
             WHERE CASE WHEN u.number > 1000 THEN true ELSE
                   NOT pg_try_advisory_xact_lock(weir.append_hash(store.number, 2, u.key)) END;
        END IF;
    END IF;
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
            PERFORM set_config('lock_timeout', '250ms', true);
        END IF;
        absent := weir.append_create(store.number, missing);
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
        IF cardinality(missing) > 0 THEN
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
        PERFORM set_config('lock_timeout', wait_ms || 'ms', true);
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
    ELSIF append_flags & 16 <> 0 THEN
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
    head_last integer[];
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
        PERFORM set_config('lock_timeout', '250ms', true);
        absent := ARRAY(SELECT u.name FROM unnest(head_names, head_rows) AS u (name, place)
                         WHERE u.place IS NULL);
        absent := weir.append_create(store.number, absent);
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

CREATE OR REPLACE FUNCTION weir.safe_prove(to_position bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    kept record;
    now_server bigint;
    now_top bigint;
    now_holders text[];
    is_prepared boolean;
    proved bigint;
BEGIN
    SELECT s.position, s.top, s.holders, s.server INTO kept
      FROM weir.safe AS s FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND OR kept.position >= to_position THEN
        RETURN kept.position;
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT coalesce(max(i.id) FILTER (WHERE i.id - kept.position = i.number), kept.position)
      INTO proved
      FROM (SELECT e.id, row_number() OVER (ORDER BY e.id) AS number
              FROM (SELECT x.id FROM weir.events AS x WHERE x.id > kept.position
                     ORDER BY x.id LIMIT 10000) AS e) AS i;
    IF proved < to_position THEN
        now_server := weir.server();
        SELECT coalesce(max(e.id), 0) INTO now_top FROM weir.events AS e;
        SELECT coalesce(array_agg(l.virtualtransaction), '{}'),
               coalesce(bool_or(l.pid IS NULL), false)
          INTO now_holders, is_prepared
          FROM weir.store AS s
          JOIN pg_locks AS l
            ON l.locktype = 'advisory' AND l.classid = 1465207122 AND l.objsubid = 2 AND l.granted
           AND l.objid = ((s.number::bigint + 4294967296) % 4294967296)::oid
           AND l.database = (SELECT d.oid FROM pg_database AS d
                              WHERE d.datname = current_database());
        IF kept.server IS DISTINCT FROM now_server THEN
            kept.top := 0;
        END IF;
        IF NOT is_prepared AND now_holders = '{}' THEN
            proved := greatest(proved, now_top);
        ELSIF NOT is_prepared AND NOT kept.holders && now_holders THEN
            proved := greatest(proved, kept.top);
        END IF;
        IF kept.top <= proved THEN
            kept.top := now_top;
            kept.holders := now_holders;
            kept.server := now_server;
        END IF;
    END IF;
    UPDATE weir.safe AS s
       SET position = proved, top = kept.top, holders = kept.holders, server = kept.server
     WHERE (s.position, s.top, s.server) <> (proved, kept.top, kept.server);
    RETURN proved;
END
$$;
CREATE OR REPLACE FUNCTION weir.safe_advance(to_position bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM weir.safe_prove(to_position);
END
$$;

CREATE OR REPLACE FUNCTION weir.server() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN pg_is_in_recovery() THEN -1 ELSE 1 END
        * ((extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint
           + 'weir.events'::regclass::oid::bigint)
$$;
CREATE OR REPLACE FUNCTION weir.small_data(data json, meta json) RETURNS json
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN pg_column_compression(data) IS NULL AND pg_column_compression(meta) IS NULL
                 AND pg_column_size(data) + pg_column_size(meta) < 2100 THEN data END
$$;
CREATE OR REPLACE FUNCTION weir.sent_bytes(data json, meta json) RETURNS integer
LANGUAGE sql STABLE AS $$
    SELECT pg_column_size(data) * CASE WHEN pg_column_compression(data) IS NULL THEN 1 ELSE 8 END
        + pg_column_size(meta) * CASE WHEN pg_column_compression(meta) IS NULL THEN 1 ELSE 8 END
$$;
CREATE OR REPLACE FUNCTION weir.is_wanted(name text, stream text, created timestamptz, names text[],
    category text, prefix text, since timestamptz, until timestamptz) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT (names IS NULL OR name = ANY (names))
       AND (category IS NULL OR split_part(stream, '-', 1) = category)
       AND (prefix IS NULL OR starts_with(stream, prefix))
       AND (since IS NULL OR created >= since)
       AND (until IS NULL OR created <= until)
$$;
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

CREATE OR REPLACE FUNCTION weir.derived(of_target bigint)
RETURNS TABLE (behind boolean, watermark bigint, priority bigint)
LANGUAGE sql STABLE AS $$
    SELECT coalesce(bool_or(s.at < s.mark), false)
               OR coalesce((SELECT true
                              FROM weir.parked AS p
                              JOIN weir.reactions AS q ON q.id = p.reaction + 0
                             WHERE p.target = of_target AND p.sent_back AND NOT q.retired
                             ORDER BY p.target, p.event, p.reaction
                             LIMIT 1), false),
           coalesce(min(s.at) FILTER (WHERE s.at < s.mark), max(s.at), 0),
           max(s.priority)
      FROM weir.subscriptions AS s
      JOIN weir.reactions AS r ON r.id = s.reaction + 0
     WHERE s.target = of_target AND NOT r.retired
$$;
CREATE OR REPLACE FUNCTION weir.derive(target_ids bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off SET jit = off
AS $$
DECLARE
    wrong bigint[];
BEGIN
    SELECT array_agg(t.id)
      INTO wrong
      FROM weir.targets AS t
     CROSS JOIN LATERAL weir.derived(t.id) AS d
     WHERE t.id = ANY (target_ids)
       AND (t.behind <> d.behind OR t.watermark <> d.watermark
            OR t.priority <> coalesce(t.override, d.priority, 0));
    IF wrong IS NOT NULL THEN
        UPDATE weir.targets AS t
           SET (behind, watermark, rank, priority) =
               (SELECT d.behind, d.watermark, d.watermark >> 5,
                       coalesce(t.override, d.priority, 0)
                  FROM weir.derived(t.id) AS d)
         WHERE t.id = ANY (wrong);
    END IF;
END
$$;
CREATE OR REPLACE FUNCTION weir.derive_reaction(of_reaction bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off SET jit = off
AS $$
DECLARE
    ids bigint[];
BEGIN
    SELECT array_agg(s.target) INTO ids FROM weir.subscriptions AS s
     WHERE s.reaction = of_reaction;
    PERFORM FROM weir.targets AS t WHERE t.id = ANY (ids) ORDER BY t.name || ''
        FOR NO KEY UPDATE;
    PERFORM weir.derive(ids);
END
$$;
CREATE OR REPLACE FUNCTION weir.declare(
    its_name text, given_names text[], given_source text, given_rule integer, given_text text,
    begins bigint, again boolean, given_attempts bigint)
RETURNS TABLE (
    given bigint, changed boolean, id bigint, name text, number bigint, since bigint,
    routed bigint, reread_to bigint, retired boolean, router text, router_until bigint,
    router_fence bigint, names text, source text, rule integer, rule_text text, attempts bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
AS $$
#variable_conflict use_column
DECLARE
    sorted text[] := NULL;
    reaction_id bigint;
    current_number bigint;
    was_retired boolean;
BEGIN
    PERFORM weir.commit_durably();
    PERFORM weir.check_names('reaction', ARRAY[its_name], false);
    PERFORM weir.check_names('event name', given_names, true);
    PERFORM weir.check_names('source', ARRAY[given_source], true);
    IF (given_rule BETWEEN 0 AND 4) IS NOT TRUE THEN
        RAISE EXCEPTION 'rule % of reaction "%" is none', given_rule, its_name
            USING ERRCODE = 'WR002';
    END IF;
    PERFORM weir.source_matches(given_source, '');
    IF given_names IS NOT NULL THEN
        SELECT coalesce(array_agg(n.name ORDER BY n.name COLLATE "C"), '{}')
          INTO sorted
          FROM (SELECT DISTINCT u.name FROM unnest(given_names) AS u (name)) AS n;
    END IF;
    LOOP
        SELECT r.id, r.number, r.retired
          INTO reaction_id, current_number, was_retired
          FROM weir.reactions AS r
         WHERE r.name = its_name
           FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        IF (begins BETWEEN 0 AND weir.log_end()) IS NOT TRUE THEN
            RAISE EXCEPTION 'it cannot begin at %, the log ends at %: write from: start, from: now '
                            'or a position up to %', begins, weir.log_end(), weir.log_end()
                USING ERRCODE = 'WR002';
        END IF;
        INSERT INTO weir.reactions AS r (name, number, since, routed)
        VALUES (its_name, 0, begins, begins)
            ON CONFLICT (name) DO NOTHING
        RETURNING r.id, r.number, r.retired INTO reaction_id, current_number, was_retired;
        EXIT WHEN FOUND;
    END LOOP;
    SELECT coalesce(max(d.number), 0)
      INTO given
      FROM weir.definitions AS d
     WHERE d.reaction = reaction_id AND d.names IS NOT DISTINCT FROM sorted
       AND d.source = given_source AND d.rule = given_rule AND d.rule_text = given_text;
    changed := was_retired;
    IF given = 0 OR (given <> current_number AND (again OR was_retired)) THEN
        given := current_number + 1;
        changed := true;
        INSERT INTO weir.definitions (reaction, number, names, source, rule, rule_text)
        VALUES (reaction_id, given, sorted, given_source, given_rule, given_text);
        UPDATE weir.reactions AS r SET number = given WHERE r.id = reaction_id;
    END IF;
    IF was_retired THEN
        UPDATE weir.reactions AS r SET retired = false WHERE r.id = reaction_id;
        PERFORM weir.derive_reaction(reaction_id);
    END IF;
    UPDATE weir.reactions AS r SET attempts = given_attempts
     WHERE r.id = reaction_id AND r.number = given AND r.attempts <> given_attempts;
    RETURN QUERY
    SELECT given, changed, r.id, r.name, r.number, r.since, r.routed, r.reread_to, r.retired,
           coalesce(r.router, ''), r.router_until, r.router_fence,
           array_to_string(d.names, chr(10)), d.source, d.rule, d.rule_text, r.attempts
      FROM weir.reactions AS r
      JOIN weir.definitions AS d ON d.reaction = r.id AND d.number = r.number
     WHERE r.id = reaction_id;
END
$$;
CREATE OR REPLACE FUNCTION weir.retire(its_name text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
AS $$
DECLARE
    reaction_id bigint;
    was_retired boolean;
BEGIN
    PERFORM weir.commit_durably();
    SELECT r.id, r.retired
      INTO reaction_id, was_retired
      FROM weir.reactions AS r
     WHERE r.name = its_name
       FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no reaction "%"', its_name USING ERRCODE = 'WR006';
    END IF;
    IF NOT was_retired THEN
        UPDATE weir.reactions AS r SET retired = true WHERE r.id = reaction_id;
        PERFORM weir.derive_reaction(reaction_id);
    END IF;
END
$$;
CREATE OR REPLACE FUNCTION weir.router_lease(
    by_holder text, lease_us bigint, reaction_ids bigint[], held_fences bigint[])
RETURNS TABLE (fence bigint, until bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
AS $$
DECLARE
    started bigint;
    r record;
    ours boolean;
BEGIN
    PERFORM weir.commit_durably();
    PERFORM FROM weir.reactions AS l WHERE l.id = ANY (reaction_ids) ORDER BY l.id
        FOR NO KEY UPDATE;
    started := weir.clock_us();
    FOR i IN 1..cardinality(reaction_ids) LOOP
        fence := 0;
        until := 0;
        SELECT l.id, l.router, l.router_until, l.router_fence, l.retired
          INTO r
          FROM weir.reactions AS l
         WHERE l.id = reaction_ids[i];
        IF FOUND THEN
            ours := r.router IS NOT NULL AND held_fences[i] <> 0
                    AND held_fences[i] = r.router_fence;
            IF lease_us = 0 THEN
                IF ours THEN
                    UPDATE weir.reactions AS l SET router = NULL, router_until = 0
                     WHERE l.id = r.id;
                END IF;
            ELSIF NOT r.retired AND (ours OR r.router IS NULL OR r.router_until <= started) THEN
                fence := CASE WHEN ours THEN r.router_fence ELSE r.router_fence + 1 END;
                until := CASE WHEN lease_us > 9223372036854775807 - started
                              THEN 9223372036854775807 ELSE started + lease_us END;
                UPDATE weir.reactions AS l
                   SET router = by_holder, router_until = until, router_fence = fence
                 WHERE l.id = r.id;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION weir.is_passed(
    blocked bigint, reaction bigint, event bigint, attempts bigint)
RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT blocked IS NOT NULL AND reaction <> 0 AND event <> 0 AND attempts = 0
$$;
CREATE OR REPLACE FUNCTION weir.route(
    step_reactions bigint[], step_numbers bigint[], step_from bigint[], step_to bigint[],
    names text[], mark_steps integer[], mark_names integer[], mark_rounds integer[],
    mark_lanes text[], mark_priorities bigint[], mark_sources text[], mark_values text[],
    mark_firsts bigint[], mark_lasts bigint[], event_marks integer[], event_ids bigint[],
    park_steps integer[], park_events bigint[], park_errors text[], read_place bigint DEFAULT 0)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off SET jit = off
AS $$
DECLARE
    r record;
    rules integer[];
    rereads bigint[];
    ending bigint[];
    ids bigint[];
    lanes text[];
    new_names text[];
    new_lanes text[];
    new_watermarks bigint[];
    new_priorities bigint[];
    made bigint[];
    reset_names text[];
    mark_count integer := cardinality(mark_steps);
    last_round integer;
    floors bigint[];
    had bigint[];
    changed bigint[];
    touched bigint[];
    last bigint;
    met bigint[];
    beyond bigint[];
    told text;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM FROM weir.reactions AS l WHERE l.id = ANY (step_reactions) ORDER BY l.id
        FOR NO KEY UPDATE;
    IF read_place <> 0 AND read_place <> weir.server() + (SELECT s.number FROM weir.store AS s) THEN
        RAISE EXCEPTION 'what is routed was read from another server, or before this one started'
            USING ERRCODE = 'WR003';
    END IF;
    last := weir.log_end();
    SELECT s.*, l.id, l.name, l.number AS current_number, l.routed, l.retired
      INTO r
      FROM unnest(step_reactions, step_numbers, step_from, step_to)
           WITH ORDINALITY AS s (reaction, number, begins, ends, place)
      LEFT JOIN weir.reactions AS l ON l.id = s.reaction
     WHERE l.id IS NULL OR l.retired OR l.number IS DISTINCT FROM s.number
        OR l.routed IS DISTINCT FROM s.begins
        OR (s.ends = s.begins OR s.ends BETWEEN s.begins AND last) IS NOT TRUE
     ORDER BY s.place
     LIMIT 1;
    IF FOUND THEN
        IF r.id IS NULL THEN
            RAISE EXCEPTION 'no reaction with id %', r.reaction USING ERRCODE = 'WR003';
        ELSIF r.retired THEN
            RAISE EXCEPTION 'reaction "%" is retired', r.name USING ERRCODE = 'WR003';
        ELSIF r.current_number IS DISTINCT FROM r.number THEN
            RAISE EXCEPTION 'reaction "%" has definition %, routed with %',
                r.name, r.current_number, r.number USING ERRCODE = 'WR003';
        ELSIF r.routed = r.begins THEN
            RAISE EXCEPTION 'reaction "%" cannot be routed from % to %: the log ends at %',
                r.name, r.begins, r.ends, last USING ERRCODE = 'WR003';
        END IF;
        RAISE EXCEPTION 'reaction "%" is routed up to %, expected %', r.name, r.routed, r.begins
            USING ERRCODE = 'WR003';
    END IF;
    SELECT array_agg(d.rule ORDER BY s.place),
           array_agg(l.reread_to ORDER BY s.place),
           array_agg(l.id) FILTER (WHERE l.reread_to <> 0 AND s.ends >= l.reread_to)
      INTO rules, rereads, ending
      FROM unnest(step_reactions, step_to) WITH ORDINALITY AS s (reaction, ends, place)
      JOIN weir.reactions AS l ON l.id = s.reaction
      JOIN weir.definitions AS d ON d.reaction = l.id AND d.number = l.number;
    PERFORM FROM unnest(park_steps, park_events) AS k (step, event)
      WHERE NOT EXISTS (SELECT FROM weir.events AS e WHERE e.id = k.event)
      LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'what cannot be routed is no event of this log' USING ERRCODE = 'WR003';
    END IF;
    IF (weir.is_list(step_reactions, cardinality(step_reactions))
        AND weir.is_list(park_events, cardinality(park_steps))
        AND weir.is_list(park_errors, cardinality(park_steps))
        AND 0 <= ALL (park_steps) AND cardinality(step_reactions) > ALL (park_steps)
        AND weir.is_list(names, cardinality(names))
        AND weir.is_list(mark_steps, mark_count) AND weir.is_list(mark_names, mark_count)
        AND weir.is_list(mark_rounds, mark_count) AND weir.is_list(mark_lanes, mark_count)
        AND weir.is_list(mark_priorities, mark_count) AND weir.is_list(mark_sources, mark_count)
        AND weir.is_list(mark_values, mark_count) AND weir.is_list(mark_firsts, mark_count)
        AND weir.is_list(mark_lasts, mark_count)
        AND 0 <= ALL (mark_steps) AND cardinality(step_reactions) > ALL (mark_steps)
        AND 0 <= ALL (mark_names) AND cardinality(names) > ALL (mark_names)
        AND 0 <= ALL (mark_rounds) AND mark_count > ALL (mark_rounds)
        AND weir.is_list(event_ids, cardinality(event_marks))
        AND 0 <= ALL (event_marks) AND mark_count > ALL (event_marks)) IS NOT TRUE THEN
        PERFORM weir.no_lists('the lists of what is routed', 'WR003');
    END IF;
    IF (last >= ALL (mark_lasts) AND last >= ALL (event_ids) AND 0 < ALL (mark_firsts)
        AND NOT EXISTS (SELECT FROM unnest(mark_firsts, mark_lasts) AS m (begins, final)
                         WHERE m.begins > m.final)) IS NOT TRUE THEN
        RAISE EXCEPTION 'what is routed does not lie in the log, which ends at %', last
            USING ERRCODE = 'WR003';
    END IF;
    IF mark_count > 0 THEN
        PERFORM weir.check_names('source', mark_sources, true);
        PERFORM weir.check_names('value', array_remove(mark_values, ''), true);
        SELECT array_agg(t.id ORDER BY u.place), array_agg(t.lane ORDER BY u.place)
          INTO ids, lanes
          FROM unnest(names) WITH ORDINALITY AS u (name, place)
          LEFT JOIN LATERAL (SELECT x.id, x.lane FROM weir.targets AS x
                              WHERE x.name = u.name LIMIT 1) AS t ON true;
        PERFORM FROM unnest(mark_names, mark_lanes) AS m (name, lane)
          WHERE lanes[m.name + 1] IS DISTINCT FROM m.lane
          LIMIT 1;
        IF FOUND THEN
            SELECT w.*
              INTO r
              FROM (SELECT m.place, m.name, m.lane, ids[m.name + 1] AS id,
                           coalesce(lanes[m.name + 1], first_value(m.lane)
                               OVER (PARTITION BY m.name ORDER BY NOT m.makes, m.place)) AS has,
                           min(m.place) FILTER (WHERE m.makes) OVER (PARTITION BY m.name) AS made_at
                      FROM (SELECT u.place, u.name, u.lane,
                                   NOT (rules[u.step + 1] = 4 AND u.final <= rereads[u.step + 1])
                                       AS makes
                              FROM unnest(mark_steps, mark_names, mark_lanes, mark_lasts)
                                   WITH ORDINALITY AS u (step, name, lane, final, place)) AS m) AS w
             WHERE w.has <> w.lane AND (w.id IS NOT NULL OR w.place > w.made_at)
             ORDER BY w.place
             LIMIT 1;
            IF FOUND THEN
                RAISE EXCEPTION 'target "%" is in lane "%", not in "%"',
                    names[r.name + 1], r.has, r.lane
                    USING ERRCODE = 'WR002', DETAIL = (r.place - 1)::text;
            END IF;
            SELECT array_agg(names[n.name + 1] ORDER BY n.place),
                   array_agg(n.lane ORDER BY n.place),
                   array_agg(n.watermark ORDER BY n.place), array_agg(n.priority ORDER BY n.place)
              INTO new_names, new_lanes, new_watermarks, new_priorities
              FROM (SELECT DISTINCT ON (u.name) u.name, u.lane, u.place,
                           min(u.begins) OVER (PARTITION BY u.name) - 1 AS watermark,
                           max(u.priority) OVER (PARTITION BY u.name) AS priority
                      FROM unnest(mark_steps, mark_names, mark_lanes, mark_priorities,
                                  mark_firsts, mark_lasts)
                           WITH ORDINALITY
                           AS u (step, name, lane, priority, begins, final, place)
                     WHERE ids[u.name + 1] IS NULL
                       AND NOT (rules[u.step + 1] = 4 AND u.final <= rereads[u.step + 1])
                     ORDER BY u.name, u.place) AS n;
        END IF;
    END IF;
    IF cardinality(park_steps) > 0 THEN
        WITH parks AS MATERIALIZED (
            SELECT step_reactions[u.step + 1] AS reaction, u.event, min(u.place) AS place,
                   (array_agg(u.error ORDER BY u.place DESC))[1] AS error
              FROM unnest(park_steps, park_events, park_errors)
                   WITH ORDINALITY AS u (step, event, error, place)
             GROUP BY 1, 2
        ), again AS (
            UPDATE weir.parked AS p
               SET attempts = 0, parked = weir.clock_us(), error = k.error, sent_back = false
              FROM parks AS k
             WHERE p.target = 0 AND p.reaction = k.reaction AND p.event = k.event
        )
        INSERT INTO weir.parked (reaction, target, event, attempts, parked, error)
        SELECT k.reaction, 0, k.event, 0, weir.clock_us(), k.error
          FROM parks AS k
         WHERE NOT EXISTS (SELECT FROM weir.parked AS p
                            WHERE p.target = 0 AND p.reaction = k.reaction AND p.event = k.event)
         ORDER BY k.place;
    END IF;
    UPDATE weir.reactions AS l
       SET routed = s.ends,
           reread_to = CASE WHEN l.reread_to <> 0 AND s.ends >= l.reread_to THEN 0
                            ELSE l.reread_to END
      FROM unnest(step_reactions, step_to) AS s (reaction, ends)
     WHERE l.id = s.reaction;
    IF new_names IS NOT NULL THEN
        PERFORM weir.check_names('target', new_names, false);
        PERFORM weir.check_names('lane', new_lanes, false);
        INSERT INTO weir.lanes (lane)
        SELECT DISTINCT u.lane COLLATE "C"
          FROM unnest(new_lanes) AS u (lane)
         WHERE NOT EXISTS (SELECT FROM weir.lanes AS l WHERE l.lane = u.lane)
         ORDER BY 1
            ON CONFLICT DO NOTHING;
        WITH n AS MATERIALIZED (
            SELECT u.*, nextval('weir.targets_id_seq') AS id
              FROM unnest(new_names, new_lanes, new_watermarks, new_priorities)
                   AS u (name, lane, watermark, priority)
        ), inserted AS (
            INSERT INTO weir.targets (id, name, lane, behind, watermark, rank, priority)
            OVERRIDING SYSTEM VALUE
            SELECT n.id, n.name, n.lane, true, n.watermark, n.watermark >> 5, n.priority
              FROM n
             ORDER BY n.name COLLATE "C"
                ON CONFLICT (name) DO NOTHING
            RETURNING id)
        SELECT array_agg(i.id) INTO made FROM inserted AS i;
        SELECT array_agg(t.id ORDER BY u.place), array_agg(t.lane ORDER BY u.place)
          INTO ids, lanes
          FROM unnest(names) WITH ORDINALITY AS u (name, place)
          LEFT JOIN LATERAL (SELECT x.id, x.lane FROM weir.targets AS x
                              WHERE x.name = u.name LIMIT 1) AS t ON true;
        IF made IS NULL OR cardinality(made) < cardinality(new_names) THEN
            SELECT u.name, u.lane, u.place
              INTO r
              FROM unnest(mark_names, mark_lanes) WITH ORDINALITY AS u (name, lane, place)
             WHERE lanes[u.name + 1] <> u.lane
               AND (ids[u.name + 1] = ANY (made)) IS NOT TRUE
             ORDER BY u.place
             LIMIT 1;
            IF FOUND THEN
                RAISE EXCEPTION 'target "%" is in lane "%", not in "%"',
                    names[r.name + 1], lanes[r.name + 1], r.lane
                    USING ERRCODE = 'WR002', DETAIL = (r.place - 1)::text;
            END IF;
        END IF;
    END IF;
    IF ending IS NOT NULL THEN
        SELECT array_agg(t.name)
          INTO reset_names
          FROM weir.targets AS t
         WHERE t.id = ANY (ARRAY(SELECT s.target FROM weir.subscriptions AS s
                                  WHERE s.reaction = ANY (ending) AND s.was_reset));
    END IF;
    PERFORM FROM weir.targets AS t
      WHERE t.name = ANY (names || reset_names)
      ORDER BY t.name
        FOR NO KEY UPDATE;
    IF mark_count > 0 THEN
        last_round := (SELECT max(u.round) FROM unnest(mark_rounds) AS u (round));
        FOR this_round IN 0 .. last_round LOOP
            WITH judged AS MATERIALIZED (
                SELECT f.*, f.final > f.floor AND f.target IS NOT NULL AS counts,
                       f.final <= f.ends AND (f.was_at >= f.fresh OR f.was_mark > f.ends)
                           AND f.fresh IS NOT NULL AS is_beyond,
                       CASE WHEN f.was_at >= f.fresh THEN f.was_at ELSE f.was_mark END AS stands
                  FROM (SELECT m.*, ids[m.name + 1] AS target,
                               step_reactions[m.step + 1] AS reaction, rules[m.step + 1] AS rule,
                               step_to[m.step + 1] AS ends,
                               CASE WHEN m.begins > rereads[m.step + 1] THEN m.begins
                                    WHEN m.final > rereads[m.step + 1]
                                    THEN (SELECT min(e.event)
                                            FROM unnest(event_marks, event_ids) AS e (mark, event)
                                           WHERE e.mark = m.place - 1
                                             AND e.event > rereads[m.step + 1])
                                    END AS fresh,
                               s.at AS was_at, s.mark AS was_mark, s.priority AS was_priority,
                               greatest(s.at, -1,
                                        CASE WHEN rules[m.step + 1] = 4
                                                  AND s.was_reset IS NOT TRUE
                                             THEN rereads[m.step + 1] END) AS floor
                          FROM unnest(mark_steps, mark_names, mark_rounds, mark_priorities,
                                      mark_sources, mark_values, mark_firsts, mark_lasts)
                               WITH ORDINALITY
                               AS m (step, name, round, priority, source, value, begins, final,
                                     place)
                          LEFT JOIN LATERAL (SELECT x.at, x.mark, x.was_reset, x.priority
                                               FROM weir.subscriptions AS x
                                              WHERE x.target = ids[m.name + 1]
                                                AND x.reaction + 0 = step_reactions[m.step + 1]
                                              LIMIT 1) AS s ON true
                       ) AS f
            ), subscribed AS (
                INSERT INTO weir.subscriptions AS s
                       (target, reaction, at, mark, priority, source, value)
                SELECT j.target, j.reaction,
                       CASE WHEN j.was_at < j.was_mark THEN j.was_at
                            ELSE greatest(
                                j.was_at,
                                CASE WHEN j.begins > j.floor THEN j.begins
                                     ELSE coalesce((SELECT min(e.event)
                                                      FROM unnest(event_marks, event_ids)
                                                           AS e (mark, event)
                                                     WHERE e.mark = j.place - 1
                                                       AND e.event > j.floor), j.begins)
                                END - 1) END,
                       j.final, j.priority, j.source, j.value
                  FROM judged AS j
                 WHERE j.counts AND j.round = this_round
                    ON CONFLICT (target, reaction)
                    DO UPDATE SET at = excluded.at,
                                  mark = greatest(s.mark, excluded.mark),
                                  priority = excluded.priority,
                                  source = excluded.source,
                                  value = excluded.value
            )
            SELECT array_agg(j.floor ORDER BY j.place), array_agg(j.was_mark ORDER BY j.place),
                   array_agg(j.target)
                       FILTER (WHERE j.counts AND j.round = this_round
                                 AND (j.was_at < j.was_mark AND j.was_priority = j.priority)
                                     IS NOT TRUE),
                   array_agg(ARRAY[j.place, j.fresh, j.stands])
                       FILTER (WHERE j.is_beyond AND j.round = this_round)
              INTO floors, had, changed, met
              FROM judged AS j;
            touched := touched || changed;
            beyond := beyond || met;
            IF 4 = ANY (rules) THEN
                INSERT INTO weir.work (target, reaction, event)
                SELECT w.target, w.reaction, w.event
                  FROM (SELECT e.mark, e.event, ids[mark_names[e.mark + 1] + 1] AS target,
                               step_reactions[mark_steps[e.mark + 1] + 1] AS reaction
                          FROM unnest(event_marks, event_ids) AS e (mark, event)
                         WHERE e.event > floors[e.mark + 1] AND mark_rounds[e.mark + 1] = this_round
                           AND rules[mark_steps[e.mark + 1] + 1] = 4
                        OFFSET 0) AS w
                 WHERE w.target IS NOT NULL
                   AND (w.event > coalesce(had[w.mark + 1], 0)
                        OR (SELECT true FROM weir.work AS k
                             WHERE k.target = w.target AND k.reaction = w.reaction
                               AND k.event = w.event
                             LIMIT 1) IS NULL);
            END IF;
        END LOOP;
        IF touched IS NOT NULL THEN
            PERFORM weir.derive(touched);
        END IF;
        IF beyond IS NOT NULL THEN
            WITH found AS MATERIALIZED (
                SELECT DISTINCT ON (b.target) b.*
                  FROM (SELECT ids[mark_names[beyond[i][1]] + 1] AS target, beyond[i][1] AS place,
                               mark_steps[beyond[i][1]] + 1 AS step, beyond[i][2] AS event,
                               beyond[i][3] AS "position"
                          FROM generate_subscripts(beyond, 1) AS i) AS b
                 ORDER BY b.target, b.place
            ), blocking AS (
                UPDATE weir.targets AS t
                   SET held = true, blocked = weir.clock_us(), event = f.event,
                       reaction = step_reactions[f.step], attempts = 0,
                       error = 'position ' || f."position"
                               || ' is beyond what was routed of the log (' || step_from[f.step]
                               || '): a part of the log was lost',
                       fence = t.fence + 1, holder = NULL, lease_until = 0
                  FROM found AS f
                 WHERE t.id = f.target
                   AND NOT weir.is_passed(t.blocked, t.reaction, t.event, t.attempts)
                RETURNING f.place)
            SELECT string_agg((k.place - 1)::text, ' ') INTO told FROM blocking AS k;
        END IF;
    END IF;
    IF ending IS NOT NULL THEN
        UPDATE weir.subscriptions AS s
           SET was_reset = false
         WHERE s.reaction = ANY (ending) AND s.was_reset;
    END IF;
    RETURN told;
END
$$;
CREATE OR REPLACE FUNCTION weir.subscribe(
    target_name text, in_lane text, for_reaction bigint, its_priority bigint, its_source text,
    its_value text, begins bigint)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
AS $$
DECLARE
    target_id bigint;
    has text;
BEGIN
    PERFORM weir.commit_durably();
    PERFORM weir.check_names('target', ARRAY[target_name], false);
    PERFORM weir.check_names('lane', ARRAY[in_lane], false);
    PERFORM weir.check_names('source', ARRAY[its_source], true);
    PERFORM weir.check_names('value', array_remove(ARRAY[its_value], ''), true);
    IF (begins BETWEEN 0 AND weir.log_end()) IS NOT TRUE THEN
        RAISE EXCEPTION 'a subscription cannot begin at %: the log ends at %', begins,
            weir.log_end() USING ERRCODE = 'WR002';
    END IF;
    PERFORM FROM weir.reactions AS r WHERE r.id = for_reaction FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no reaction with id %', for_reaction USING ERRCODE = 'WR006';
    END IF;
    IF NOT EXISTS (SELECT FROM weir.targets AS t WHERE t.name = target_name) THEN
        INSERT INTO weir.lanes (lane)
        SELECT in_lane
         WHERE NOT EXISTS (SELECT FROM weir.lanes AS l WHERE l.lane = in_lane)
            ON CONFLICT DO NOTHING;
        INSERT INTO weir.targets (name, lane) VALUES (target_name, in_lane)
            ON CONFLICT (name) DO NOTHING;
    END IF;
    SELECT t.id, t.lane
      INTO target_id, has
      FROM weir.targets AS t
     WHERE t.name = target_name
       FOR NO KEY UPDATE;
    IF has <> in_lane THEN
        RAISE EXCEPTION 'target "%" is in lane "%", not in "%"', target_name, has, in_lane
            USING ERRCODE = 'WR002';
    END IF;
    INSERT INTO weir.subscriptions (target, reaction, at, mark, priority, source, value)
    VALUES (target_id, for_reaction, begins, begins, its_priority, its_source, its_value)
        ON CONFLICT (target, reaction)
        DO UPDATE SET priority = excluded.priority,
                      source = excluded.source,
                      value = excluded.value;
    PERFORM weir.derive(ARRAY[target_id]);
    RETURN target_id;
END
$$;

CREATE OR REPLACE FUNCTION weir.lease(
    of_lane text, by_holder text, lease_us bigint, wanted bigint, lead bigint, reserve bigint,
    known_reactions bigint[], known_numbers bigint[], all_reactions boolean, lost_max bigint)
RETURNS TABLE (
    leased bigint, leased_name text, leased_fence bigint, leased_token bigint,
    leased_until bigint, leased_watermark bigint, leased_priority bigint, leased_lost bigint, kind integer,
    of_reaction bigint, first_number bigint, second_number bigint, third_number bigint,
    work_source text, work_value text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off SET jit = off
AS $$
DECLARE
    started bigint;
    live bigint[];
    considered bigint := 0;
    due_ids bigint[] := '{}';
    found bigint[];
    picked bigint[];
    outlived bigint[];
    chosen bigint[] := '{}';
    room bigint;
    asked bigint;
    this_log bigint;
BEGIN
    PERFORM weir.commit_durably();
    IF wanted <= 0 OR EXISTS (SELECT FROM weir.lanes AS l WHERE l.lane = of_lane AND l.paused) THEN
        RETURN;
    END IF;
    started := weir.clock_us();
    IF all_reactions THEN
        SELECT array_agg(r.id) INTO live FROM weir.reactions AS r WHERE NOT r.retired;
    ELSE
        SELECT array_agg(r.id)
          INTO live
          FROM unnest(known_reactions, known_numbers) AS k (reaction, number)
          JOIN weir.reactions AS r ON r.id = k.reaction
         WHERE r.number = k.number AND NOT r.retired;
    END IF;
    IF live IS NULL THEN
        RETURN;
    END IF;
    FOR step IN 1..4 LOOP
        room := CASE step WHEN 1 THEN lead WHEN 2 THEN reserve ELSE wanted END;
        room := least(room, wanted - cardinality(chosen));
        CONTINUE WHEN room <= 0 AND step > 1;
        IF step IN (1, 4) AND considered < wanted
            AND EXISTS (SELECT FROM weir.targets AS t
                         WHERE t.lane = of_lane AND t.behind AND NOT t.held
                           AND t.due IS NOT NULL AND t.due <= started) THEN
            WITH arm AS MATERIALIZED (
                SELECT t.id
                  FROM weir.targets AS t
                 WHERE t.lane = of_lane AND t.behind AND NOT t.held
                   AND t.due IS NOT NULL AND t.due <= started
                   AND (t.holder IS NULL OR t.lease_until <= started)
                   AND t.id <> ALL (due_ids)
                   AND coalesce(
                           (SELECT true
                              FROM weir.subscriptions AS s
                             WHERE s.target = t.id AND s.at < s.mark
                               AND s.reaction + 0 = ANY (live)
                             LIMIT 1),
                           (SELECT true
                              FROM weir.parked AS p
                             WHERE p.target = t.id AND p.sent_back AND p.reaction + 0 = ANY (live)
                             ORDER BY p.target, p.event, p.reaction
                             LIMIT 1),
                           false)
                 ORDER BY t.due, t.id
                 LIMIT wanted - considered
                   FOR NO KEY UPDATE OF t SKIP LOCKED)
            SELECT array_agg(arm.id) INTO found FROM arm;
            due_ids := due_ids || found;
            considered := cardinality(due_ids);
        END IF;
        WHILE room > 0 LOOP
            asked := room;
            IF step = 1 THEN
                WITH arm AS MATERIALIZED (
                    SELECT t.id
                      FROM weir.targets AS t
                     WHERE t.lane = of_lane AND t.behind AND NOT t.held AND t.due IS NULL
                       AND (t.holder IS NULL OR t.lease_until <= started)
                       AND t.id <> ALL (chosen)
                       AND coalesce(
                               (SELECT true
                                  FROM weir.subscriptions AS s
                                 WHERE s.target = t.id AND s.at < s.mark
                                   AND s.reaction + 0 = ANY (live)
                                 LIMIT 1),
                               (SELECT true
                                  FROM weir.parked AS p
                                 WHERE p.target = t.id AND p.sent_back
                                   AND p.reaction + 0 = ANY (live)
                                 ORDER BY p.target, p.event, p.reaction
                                 LIMIT 1),
                               false)
                     ORDER BY t.rank DESC, t.id DESC
                     LIMIT asked
                       FOR NO KEY UPDATE OF t SKIP LOCKED)
                SELECT array_agg(arm.id) INTO found FROM arm;
            ELSIF step = 2 THEN
                WITH arm AS MATERIALIZED (
                    SELECT t.id
                      FROM weir.targets AS t
                     WHERE t.lane = of_lane AND t.behind AND NOT t.held AND t.due IS NULL
                       AND (t.holder IS NULL OR t.lease_until <= started)
                       AND t.id <> ALL (chosen)
                       AND coalesce(
                               (SELECT true
                                  FROM weir.subscriptions AS s
                                 WHERE s.target = t.id AND s.at < s.mark
                                   AND s.reaction + 0 = ANY (live)
                                 LIMIT 1),
                               (SELECT true
                                  FROM weir.parked AS p
                                 WHERE p.target = t.id AND p.sent_back
                                   AND p.reaction + 0 = ANY (live)
                                 ORDER BY p.target, p.event, p.reaction
                                 LIMIT 1),
                               false)
                     ORDER BY t.rank, t.id
                     LIMIT asked
                       FOR NO KEY UPDATE OF t SKIP LOCKED)
                SELECT array_agg(arm.id) INTO found FROM arm;
            ELSE
                WITH arm AS MATERIALIZED (
                    SELECT t.id
                      FROM weir.targets AS t
                     WHERE t.lane = of_lane AND t.behind AND NOT t.held AND t.due IS NULL
                       AND (t.holder IS NULL OR t.lease_until <= started)
                       AND t.id <> ALL (chosen)
                       AND coalesce(
                               (SELECT true
                                  FROM weir.subscriptions AS s
                                 WHERE s.target = t.id AND s.at < s.mark
                                   AND s.reaction + 0 = ANY (live)
                                 LIMIT 1),
                               (SELECT true
                                  FROM weir.parked AS p
                                 WHERE p.target = t.id AND p.sent_back
                                   AND p.reaction + 0 = ANY (live)
                                 ORDER BY p.target, p.event, p.reaction
                                 LIMIT 1),
                               false)
                     ORDER BY t.priority DESC, t.rank, t.id
                     LIMIT asked
                       FOR NO KEY UPDATE OF t SKIP LOCKED)
                SELECT array_agg(arm.id) INTO found FROM arm;
            END IF;
            EXIT WHEN found IS NULL AND due_ids = '{}';
            SELECT coalesce(array_agg(c.id), '{}'), array_agg(c.id) FILTER (WHERE c.outlived)
              INTO picked, outlived
              FROM (SELECT t.id,
                           t.holder IS NOT NULL AND lost_max > 0 AND t.lost + 1 >= lost_max
                               AS outlived
                      FROM weir.targets AS t
                     WHERE t.id = ANY (due_ids || found) AND t.id <> ALL (chosen)
                       AND t.behind AND NOT t.held AND (t.due IS NULL OR t.due <= started)
                       AND (t.holder IS NULL OR t.lease_until <= started)
                       AND coalesce(
                               (SELECT true
                                  FROM weir.subscriptions AS s
                                 WHERE s.target = t.id AND s.at < s.mark
                                   AND s.reaction + 0 = ANY (live)
                                 LIMIT 1),
                               (SELECT true
                                  FROM weir.parked AS p
                                 WHERE p.target = t.id AND p.sent_back
                                   AND p.reaction + 0 = ANY (live)
                                 ORDER BY p.target, p.event, p.reaction
                                 LIMIT 1),
                               false)
                     ORDER BY CASE WHEN step >= 3 THEN t.priority END DESC,
                              CASE WHEN step = 1 THEN -t.rank ELSE t.rank END,
                              CASE WHEN step = 1 THEN -t.id ELSE t.id END
                     LIMIT room) AS c;
            IF outlived IS NOT NULL THEN
                UPDATE weir.targets AS t
                   SET held = true, blocked = started, holder = NULL, lease_until = 0,
                       lost = t.lost + 1,
                       error = 'lost its lease ' || (t.lost + 1) || ' times in a row',
                       event = 0, reaction = 0, attempts = 0
                 WHERE t.id = ANY (outlived);
                CONTINUE;
            END IF;
            chosen := chosen || picked;
            room := room - cardinality(picked);
            EXIT WHEN coalesce(cardinality(found), 0) < asked;
        END LOOP;
    END LOOP;
    IF chosen = '{}' THEN
        RETURN;
    END IF;
    this_log := weir.log();
    RETURN QUERY
    WITH taken AS MATERIALIZED (
        UPDATE weir.targets AS t
           SET fence = t.fence + 1,
               token = weir.new_token(),
               log = this_log,
               holder = by_holder,
               lease_until = CASE WHEN lease_us > 9223372036854775807 - started
                                  THEN 9223372036854775807 ELSE started + lease_us END,
               lost = t.lost + CASE WHEN t.holder IS NULL THEN 0 ELSE 1 END,
               due = NULL
         WHERE t.id = ANY (chosen)
        RETURNING t.id, t.name, t.fence, t.token, t.lease_until, t.watermark, t.rank, t.priority,
                  t.lost)
    SELECT k.id, k.name, k.fence, k.token, k.lease_until, k.watermark, k.priority, k.lost, w.kind,
           w.reaction, w.first_number, w.second_number, w.third_number, w.source, w.value
      FROM taken AS k
     CROSS JOIN LATERAL (
           SELECT 1 AS kind, s.reaction, s.at AS first_number, s.mark AS second_number,
                  s.retries AS third_number, s.source, s.value
             FROM weir.subscriptions AS s
            WHERE s.target = k.id AND s.at < s.mark AND s.reaction + 0 = ANY (live)
           UNION ALL
           SELECT 2, p.reaction, p.id, p.event, p.attempts, '', ''
             FROM weir.parked AS p
            WHERE p.target = k.id AND p.sent_back AND p.reaction + 0 = ANY (live)) AS w
     ORDER BY k.priority DESC, k.rank, k.id, w.kind,
              CASE WHEN w.kind = 2 THEN w.second_number END, w.reaction;
END
$$;
CREATE OR REPLACE FUNCTION weir.poll(of_lane text)
RETURNS TABLE (
    now_us bigint, routed_least bigint, is_ready boolean, next_due bigint, lease_end bigint,
    router_end bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off SET jit = off
AS $$
BEGIN
    now_us := weir.clock_us();
    SELECT min(r.routed) FILTER (WHERE NOT r.retired),
           min(r.router_until) FILTER (WHERE r.router IS NOT NULL AND r.router_until > now_us)
      INTO routed_least, router_end
      FROM weir.reactions AS r;
    SELECT bool_or(coalesce(d.due <= now_us, false) OR coalesce(f.free, false)), min(n.due)
      INTO is_ready, next_due
      FROM weir.lanes AS l
      LEFT JOIN LATERAL (
           SELECT t.due
             FROM weir.targets AS t
            WHERE t.lane = l.lane AND t.behind AND NOT t.held AND t.due IS NOT NULL
            ORDER BY t.due, t.id
            LIMIT 1) AS d ON true
      LEFT JOIN LATERAL (
           SELECT t.due
             FROM weir.targets AS t
            WHERE t.lane = l.lane AND t.behind AND NOT t.held AND t.due IS NOT NULL
              AND t.due > now_us
            ORDER BY t.due, t.id
            LIMIT 1) AS n ON true
      LEFT JOIN LATERAL (
           SELECT true AS free
             FROM weir.targets AS t
            WHERE t.lane = l.lane AND t.behind AND NOT t.held AND t.due IS NULL
              AND (t.holder IS NULL OR t.lease_until <= now_us)
            ORDER BY t.rank, t.id
            LIMIT 1) AS f ON true
     WHERE NOT l.paused AND (of_lane = '' OR l.lane = of_lane);
    is_ready := coalesce(is_ready, false);
    IF NOT is_ready THEN
        SELECT min(e.until)
          INTO lease_end
          FROM weir.lanes AS l
         CROSS JOIN LATERAL (
               SELECT min(t.lease_until) AS until
                 FROM weir.targets AS t
                WHERE t.lane = l.lane AND t.behind AND NOT t.held AND t.due IS NULL
                  AND t.holder IS NOT NULL AND t.lease_until > now_us) AS e
         WHERE NOT l.paused AND (of_lane = '' OR l.lane = of_lane);
    END IF;
    RETURN NEXT;
END
$$;

CREATE OR REPLACE FUNCTION weir.version_after(of_stream text, after_id bigint) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    low bigint;
    high bigint;
    final bigint;
    middle bigint;
    found_id bigint;
BEGIN
    SELECT e.version INTO low FROM weir.events AS e
     WHERE e.stream = of_stream ORDER BY e.stream, e.version LIMIT 1;
    SELECT e.version INTO high FROM weir.events AS e
     WHERE e.stream = of_stream ORDER BY e.stream DESC, e.version DESC LIMIT 1;
    final := high;
    WHILE low <= high LOOP
        middle := low + (high - low) / 2;
        SELECT e.id INTO found_id FROM weir.events AS e
         WHERE e.stream = of_stream AND e.version = middle;
        IF found_id > after_id THEN
            high := middle - 1;
        ELSE
            low := middle + 1;
        END IF;
    END LOOP;
    RETURN CASE WHEN low <= final THEN low END;
END
$$;
CREATE OR REPLACE FUNCTION weir.no_subscription(of_target bigint, of_reaction bigint) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RAISE EXCEPTION 'target % has no subscription of reaction %', of_target, of_reaction
        USING ERRCODE = 'WR006';
END
$$;
CREATE OR REPLACE FUNCTION weir.small_text(one json, other json, small_bytes bigint) RETURNS json
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN pg_column_compression(one) IS NULL AND pg_column_compression(other) IS NULL
                 AND pg_column_size(one) + pg_column_size(other) <= small_bytes THEN one END
$$;
CREATE OR REPLACE FUNCTION weir.fetch_any(
    item_targets bigint[], item_reactions bigint[], item_afters bigint[], item_up_tos bigint[],
    item_limits bigint[])
RETURNS TABLE (
    item integer, event_id bigint, event_version bigint, event_created timestamptz,
    event_stream text, event_name text, event_data json, event_meta json, judge text)
LANGUAGE sql STABLE
AS $$
    SELECT u.place::integer - 1, f.id, f.version, f.created, f.stream, f.name, f.data, f.meta, p.judge
      FROM unnest(item_targets, item_reactions, item_afters, item_up_tos, item_limits)
           WITH ORDINALITY AS u (target, reaction, after_id, up_to, most, place)
     CROSS JOIN LATERAL (
           SELECT s.value, d.names, d.source, d.rule
             FROM weir.subscriptions AS s
             JOIN weir.reactions AS r ON r.id = s.reaction + 0
             JOIN weir.definitions AS d ON d.reaction = r.id AND d.number = r.number
            WHERE s.target = u.target AND s.reaction + 0 = u.reaction
            LIMIT 1) AS s
     CROSS JOIN LATERAL (
           SELECT CASE WHEN starts_with(s.source, '/') THEN s.source END AS judge,
                  CASE WHEN NOT starts_with(s.source, '/') AND s.source <> '*'
                            AND right(s.source, 1) = '*'
                       THEN left(s.source, -1) END AS prefix,
                  CASE WHEN NOT starts_with(s.source, '/') AND right(s.source, 1) <> '*'
                       THEN s.source END AS exact
           OFFSET 0) AS p
     CROSS JOIN LATERAL (
           SELECT CASE WHEN s.rule <> 0 THEN s.rule
                       WHEN p.exact IS NOT NULL THEN 1
                       WHEN strpos(p.prefix, '-') > 0 THEN 2
                       WHEN cardinality(s.names) <= 16 THEN 5
                       ELSE 0 END AS way,
                  CASE WHEN s.rule <> 0 THEN s.value
                       WHEN p.exact IS NOT NULL THEN p.exact
                       ELSE split_part(p.prefix, '-', 1) END AS value
           OFFSET 0) AS w
     CROSS JOIN LATERAL (
           SELECT CASE WHEN w.way = 1 THEN coalesce(
                      (SELECT n.version + (n.id = u.after_id)::integer
                         FROM (SELECT e.id, e.stream, e.version
                                 FROM weir.events AS e
                                WHERE e.id >= u.after_id
                                ORDER BY e.id
                                LIMIT 2) AS n
                        WHERE n.stream = w.value
                        ORDER BY n.id
                        LIMIT 1),
                      weir.version_after(w.value, u.after_id)) END AS first_version
           OFFSET 0) AS v
     CROSS JOIN LATERAL (
           (SELECT e.id, e.version, e.created, e.stream, e.name, e.data, e.meta
              FROM weir.events AS e
             WHERE w.way = 1
               AND e.stream = w.value AND e.version >= v.first_version AND e.id + 0 <= u.up_to
               AND ((s.names IS NULL AND NOT starts_with(e.name, '$'))
                    OR e.name = ANY (s.names))
               AND (p.exact IS NULL OR e.stream = p.exact)
               AND (p.prefix IS NULL OR starts_with(e.stream, p.prefix))
             ORDER BY e.stream, e.version
             LIMIT u.most)
           UNION ALL
           (SELECT e.id, e.version, e.created, e.stream, e.name, e.data, e.meta
              FROM weir.events AS e
             WHERE w.way = 2
               AND (split_part(e.stream, '-', 1), e.id) > (w.value, u.after_id)
               AND (split_part(e.stream, '-', 1), e.id) <= (w.value, u.up_to)
               AND ((s.names IS NULL AND NOT starts_with(e.name, '$'))
                    OR e.name = ANY (s.names))
               AND (p.exact IS NULL OR e.stream = p.exact)
               AND (p.prefix IS NULL OR starts_with(e.stream, p.prefix))
             ORDER BY split_part(e.stream, '-', 1), e.id
             LIMIT u.most)
           UNION ALL
           (SELECT e.id, e.version, e.created, e.stream, e.name, e.data, e.meta
              FROM weir.events AS e
             WHERE w.way = 3
               AND (e.name, e.id) > (w.value, u.after_id)
               AND (e.name, e.id) <= (w.value, u.up_to)
               AND ((s.names IS NULL AND NOT starts_with(e.name, '$'))
                    OR e.name = ANY (s.names))
               AND (p.exact IS NULL OR e.stream = p.exact)
               AND (p.prefix IS NULL OR starts_with(e.stream, p.prefix))
             ORDER BY e.name, e.id
             LIMIT u.most)
           UNION ALL
           (SELECT e.id, e.version, e.created, e.stream, e.name, e.data, e.meta
              FROM weir.work AS k
             CROSS JOIN LATERAL (SELECT x.* FROM weir.events AS x WHERE x.id = k.event
                                  LIMIT 1) AS e
             WHERE w.way = 4
               AND (k.target, k.reaction, k.event) > (u.target, u.reaction, u.after_id)
               AND (k.target, k.reaction, k.event) <= (u.target, u.reaction, u.up_to)
               AND ((s.names IS NULL AND NOT starts_with(e.name, '$'))
                    OR e.name = ANY (s.names))
               AND (p.exact IS NULL OR e.stream = p.exact)
               AND (p.prefix IS NULL OR starts_with(e.stream, p.prefix))
             ORDER BY k.target, k.reaction, k.event
             LIMIT u.most)
           UNION ALL
           (SELECT x.id, x.version, x.created, x.stream, x.name, x.data, x.meta
              FROM unnest(CASE WHEN w.way = 5 THEN s.names END) AS n (name)
             CROSS JOIN LATERAL (
                   SELECT e.*
                     FROM weir.events AS e
                    WHERE (e.name, e.id) > (n.name, u.after_id)
                      AND (e.name, e.id) <= (n.name, u.up_to)
                      AND (p.prefix IS NULL OR starts_with(e.stream, p.prefix))
                    ORDER BY e.name, e.id
                    LIMIT u.most) AS x
             ORDER BY x.id
             LIMIT u.most)
           UNION ALL
           (SELECT e.id, e.version, e.created, e.stream, e.name, e.data, e.meta
              FROM weir.events AS e
             WHERE w.way = 0
               AND e.id > u.after_id AND e.id <= u.up_to
               AND ((s.names IS NULL AND NOT starts_with(e.name, '$'))
                    OR e.name = ANY (s.names))
               AND (p.prefix IS NULL OR starts_with(e.stream, p.prefix))
             ORDER BY e.id
             LIMIT u.most)) AS f
$$;
CREATE OR REPLACE FUNCTION weir.fetch(
    item_targets bigint[], item_reactions bigint[], item_afters bigint[], item_up_tos bigint[],
    item_limits bigint[], room bigint, room_bytes bigint)
RETURNS TABLE (
    item integer, event_id bigint, event_version bigint, event_created timestamptz,
    event_stream text, event_name text, event_data json, event_meta json, judge text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off SET jit = off
AS $$
DECLARE
    missing record;
BEGIN
    SELECT u.target, u.reaction
      INTO missing
      FROM unnest(item_targets, item_reactions) WITH ORDINALITY AS u (target, reaction, place)
     WHERE (SELECT true FROM weir.subscriptions AS s
             WHERE s.target = u.target AND s.reaction + 0 = u.reaction LIMIT 1) IS NULL
     ORDER BY u.place
     LIMIT 1;
    IF FOUND THEN
        PERFORM weir.no_subscription(missing.target, missing.reaction);
    END IF;
    IF room <= 0 OR room_bytes <= 0 THEN
        RETURN;
    END IF;
    FOR item, event_id, event_version, event_created, event_stream, event_name, event_data,
        event_meta, judge IN
        SELECT f.item, f.event_id, f.event_version, f.event_created, f.event_stream, f.event_name,
               f.event_data, f.event_meta, f.judge
          FROM weir.fetch_any(item_targets, item_reactions, item_afters, item_up_tos,
                              item_limits) AS f
    LOOP
        RETURN NEXT;
        room := room - 1;
        room_bytes := room_bytes - octet_length(event_data::text) - octet_length(event_meta::text);
        EXIT WHEN room <= 0 OR room_bytes <= 0;
    END LOOP;
END
$$;
CREATE OR REPLACE FUNCTION weir.fetch_small(
    item_targets bigint[], item_reactions bigint[], item_afters bigint[], item_up_tos bigint[],
    item_limits bigint[], room bigint, small_bytes bigint)
RETURNS TABLE (
    item integer, event_id bigint, event_version bigint, event_created timestamptz,
    event_stream text, event_name text, event_data json, event_meta json, judge text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off SET jit = off
AS $$
DECLARE
    its_reaction bigint := item_reactions[1];
    its_names text[];
    its_source text;
    its_rule integer;
    prefix text;
    exact text;
    fixed text;
BEGIN
    IF its_reaction = ALL (item_reactions) THEN
        SELECT d.names, d.source, d.rule
          INTO its_names, its_source, its_rule
          FROM weir.reactions AS r
          JOIN weir.definitions AS d ON d.reaction = r.id AND d.number = r.number
         WHERE r.id = its_reaction;
        IF starts_with(its_source, '/') THEN
            judge := its_source;
        ELSIF right(its_source, 1) <> '*' THEN
            exact := its_source;
        ELSIF its_source <> '*' THEN
            prefix := left(its_source, -1);
        END IF;
        IF its_rule = 0 AND exact IS NOT NULL THEN
            its_rule := 1;
            fixed := exact;
        ELSIF its_rule = 0 AND cardinality(its_names) = 1
            AND coalesce(strpos(prefix, '-'), 0) = 0 THEN
            its_rule := 3;
            fixed := its_names[1];
        END IF;
    END IF;
    IF its_rule = 1 THEN
        RETURN QUERY
        SELECT u.place::integer - 1, e.id, e.version, e.created, e.stream, e.name,
               weir.small_text(e.data, e.meta, small_bytes),
               weir.small_text(e.meta, e.data, small_bytes), judge
          FROM unnest(item_targets, item_afters, item_up_tos, item_limits)
               WITH ORDINALITY AS u (target, after_id, up_to, most, place)
         CROSS JOIN LATERAL (
               SELECT coalesce((SELECT coalesce(fixed, s.value)
                                  FROM weir.subscriptions AS s
                                 WHERE s.target = u.target AND s.reaction + 0 = its_reaction
                                 LIMIT 1),
                               weir.no_subscription(u.target, its_reaction)) AS value
               OFFSET 0) AS w
         CROSS JOIN LATERAL (
               SELECT coalesce(
                          (SELECT n.version + (n.id = u.after_id)::integer
                             FROM (SELECT x.id, x.stream, x.version
                                     FROM weir.events AS x
                                    WHERE x.id >= u.after_id
                                    ORDER BY x.id
                                    LIMIT 2) AS n
                            WHERE n.stream = w.value
                            ORDER BY n.id
                            LIMIT 1),
                          weir.version_after(w.value, u.after_id)) AS first_version
               OFFSET 0) AS v
         CROSS JOIN LATERAL (
               SELECT x.id, x.version, x.created, x.stream, x.name, x.data, x.meta
                 FROM weir.events AS x
                WHERE x.stream = w.value AND x.version >= v.first_version AND x.id + 0 <= u.up_to
                  AND ((its_names IS NULL AND NOT starts_with(x.name, '$'))
                       OR x.name = ANY (its_names))
                  AND (exact IS NULL OR x.stream = exact)
                  AND (prefix IS NULL OR starts_with(x.stream, prefix))
                ORDER BY x.stream, x.version
                LIMIT u.most) AS e
         LIMIT room;
    ELSIF its_rule = 3 THEN
        RETURN QUERY
        SELECT u.place::integer - 1, e.id, e.version, e.created, e.stream, e.name,
               weir.small_text(e.data, e.meta, small_bytes),
               weir.small_text(e.meta, e.data, small_bytes), judge
          FROM unnest(item_targets, item_afters, item_up_tos, item_limits)
               WITH ORDINALITY AS u (target, after_id, up_to, most, place)
         CROSS JOIN LATERAL (
               SELECT coalesce((SELECT coalesce(fixed, s.value)
                                  FROM weir.subscriptions AS s
                                 WHERE s.target = u.target AND s.reaction + 0 = its_reaction
                                 LIMIT 1),
                               weir.no_subscription(u.target, its_reaction)) AS value
               OFFSET 0) AS w
         CROSS JOIN LATERAL (
               SELECT x.id, x.version, x.created, x.stream, x.name, x.data, x.meta
                 FROM weir.events AS x
                WHERE (x.name, x.id) > (w.value, u.after_id)
                  AND (x.name, x.id) <= (w.value, u.up_to)
                  AND ((its_names IS NULL AND NOT starts_with(x.name, '$'))
                       OR x.name = ANY (its_names))
                  AND (exact IS NULL OR x.stream = exact)
                  AND (prefix IS NULL OR starts_with(x.stream, prefix))
                ORDER BY x.name, x.id
                LIMIT u.most) AS e
         LIMIT room;
    ELSIF its_rule = 4 THEN
        RETURN QUERY
        SELECT u.place::integer - 1, e.id, e.version, e.created, e.stream, e.name,
               weir.small_text(e.data, e.meta, small_bytes),
               weir.small_text(e.meta, e.data, small_bytes), judge
          FROM unnest(item_targets, item_afters, item_up_tos, item_limits)
               WITH ORDINALITY AS u (target, after_id, up_to, most, place)
         CROSS JOIN LATERAL (
               SELECT coalesce((SELECT s.value
                                  FROM weir.subscriptions AS s
                                 WHERE s.target = u.target AND s.reaction + 0 = its_reaction
                                 LIMIT 1),
                               weir.no_subscription(u.target, its_reaction)) AS value
               OFFSET 0) AS w
         CROSS JOIN LATERAL (
               SELECT x.id, x.version, x.created, x.stream, x.name, x.data, x.meta
                 FROM weir.work AS k
                CROSS JOIN LATERAL (SELECT y.* FROM weir.events AS y WHERE y.id = k.event
                                     LIMIT 1) AS x
                WHERE w.value IS NOT NULL
                  AND (k.target, k.reaction, k.event) > (u.target, its_reaction, u.after_id)
                  AND (k.target, k.reaction, k.event) <= (u.target, its_reaction, u.up_to)
                  AND ((its_names IS NULL AND NOT starts_with(x.name, '$'))
                       OR x.name = ANY (its_names))
                  AND (exact IS NULL OR x.stream = exact)
                  AND (prefix IS NULL OR starts_with(x.stream, prefix))
                ORDER BY k.target, k.reaction, k.event
                LIMIT u.most) AS e
         LIMIT room;
    ELSE
        PERFORM FROM weir.fetch(item_targets, item_reactions, item_afters, item_up_tos,
                                item_limits, 0, 0);
        RETURN QUERY
        SELECT f.item, f.event_id, f.event_version, f.event_created, f.event_stream, f.event_name,
               weir.small_text(f.event_data, f.event_meta, small_bytes),
               weir.small_text(f.event_meta, f.event_data, small_bytes), f.judge
          FROM weir.fetch_any(item_targets, item_reactions, item_afters, item_up_tos,
                              item_limits) AS f
         LIMIT room;
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION weir.check_lease(
    the_target bigint, the_fence bigint, the_token bigint,
    found_fence bigint, found_token bigint, found_log bigint, is_held boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF found_fence IS NULL THEN
        RAISE EXCEPTION 'no target with id %', the_target USING ERRCODE = 'WR006';
    ELSIF found_fence IS DISTINCT FROM the_fence THEN
        RAISE EXCEPTION 'the lease is lost: fence %, the target is at %', the_fence, found_fence
            USING ERRCODE = 'WR011';
    ELSIF is_held IS NOT TRUE THEN
        RAISE EXCEPTION 'the lease is lost: nobody holds fence %', the_fence
            USING ERRCODE = 'WR011';
    ELSIF the_token <> 0 AND found_token <> the_token THEN
        RAISE EXCEPTION 'the lease is lost: fence % was taken again on this log', the_fence
            USING ERRCODE = 'WR011';
    ELSIF found_log <> weir.log() THEN
        RAISE EXCEPTION 'the lease is lost: fence % was taken on a log that was cut off',
            the_fence USING ERRCODE = 'WR011';
    END IF;
END
$$;
CREATE OR REPLACE FUNCTION weir.log_end() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(max(e.id), 0) FROM weir.events AS e
$$;
CREATE OR REPLACE FUNCTION weir.park(
    the_targets bigint[], the_reactions bigint[], the_events bigint[], the_attempts bigint[],
    the_errors text[], now_us bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    FOR i IN 1 .. cardinality(the_targets) LOOP
        UPDATE weir.parked AS p
           SET attempts = the_attempts[i], parked = now_us, error = the_errors[i],
               sent_back = false
         WHERE p.target = the_targets[i] AND p.reaction + 0 = the_reactions[i]
           AND p.event = the_events[i];
        IF NOT FOUND THEN
            IF NOT EXISTS (SELECT FROM weir.events AS e WHERE e.id = the_events[i]) THEN
                RAISE EXCEPTION 'no event with position %', the_events[i] USING ERRCODE = 'WR006';
            END IF;
            INSERT INTO weir.parked (reaction, target, event, attempts, parked, error)
            VALUES (the_reactions[i], the_targets[i], the_events[i], the_attempts[i], now_us,
                    the_errors[i]);
        END IF;
    END LOOP;
END
$$;
CREATE OR REPLACE FUNCTION weir.work_done(the_target bigint, the_reaction bigint, up_to bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    DELETE FROM weir.work AS k
     WHERE (k.target, k.reaction, k.event) > (the_target, the_reaction, 0)
       AND (k.target, k.reaction, k.event) <= (the_target, the_reaction, up_to);
END
$$;
CREATE OR REPLACE FUNCTION weir.lock_targets(the_targets bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    next_target bigint;
BEGIN
    IF cardinality(the_targets) = 1 THEN
        PERFORM 1 FROM weir.targets AS t WHERE t.id = the_targets[1] FOR NO KEY UPDATE;
        RETURN;
    END IF;
    FOR next_target IN
        SELECT u.id
          FROM unnest(the_targets) AS u (id)
         CROSS JOIN LATERAL (SELECT t.name FROM weir.targets AS t WHERE t.id = u.id LIMIT 1) AS n
         ORDER BY n.name
    LOOP
        PERFORM 1 FROM weir.targets AS t WHERE t.id = next_target FOR NO KEY UPDATE;
    END LOOP;
END
$$;
CREATE OR REPLACE FUNCTION weir.settle(
    the_target bigint, the_fence bigint, the_token bigint,
    advance_reactions bigint[], advance_to bigint[],
    park_reactions bigint[], park_events bigint[], park_attempts bigint[], park_errors text[],
    parked_done bigint[],
    fails boolean, failure_reaction bigint, failure_event bigint, failure_error text,
    ends integer, lease_us bigint, until_us bigint,
    OUT lease_end bigint, OUT is_behind boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    now_us bigint;
    found record;
    missing bigint;
    furthest bigint;
    moved record;
    advanced boolean := false;
    failed_attempts bigint := 0;
    new_watermark bigint;
    new_priority bigint;
    its_lane text;
    is_paused boolean;
BEGIN
    PERFORM weir.commit_durably();
    SELECT t.fence, t.token, t.log, t.holder IS NOT NULL AS held INTO found
      FROM weir.targets AS t
     WHERE t.id = the_target
       FOR NO KEY UPDATE;
    PERFORM weir.check_lease(the_target, the_fence, the_token, found.fence, found.token,
                             found.log, found.held);
    now_us := weir.clock_us();
    IF (weir.is_list(advance_to, cardinality(advance_reactions))
        AND array_position(advance_to, NULL) IS NULL
        AND weir.is_list(park_reactions, cardinality(park_reactions))
        AND weir.is_list(park_events, cardinality(park_reactions))
        AND weir.is_list(park_attempts, cardinality(park_reactions))
        AND weir.is_list(park_errors, cardinality(park_reactions))) IS NOT TRUE THEN
        PERFORM weir.no_lists('the lists of a settle', 'WR002');
    END IF;
    SELECT coalesce(w.reaction, 0) INTO missing
      FROM unnest(advance_reactions || park_reactions
                  || CASE WHEN failure_reaction <> 0 THEN ARRAY[failure_reaction] END)
               WITH ORDINALITY AS w (reaction, ordinal)
     WHERE NOT EXISTS (SELECT 1
                         FROM weir.subscriptions AS s
                        WHERE s.target = the_target AND s.reaction + 0 = w.reaction)
     ORDER BY w.ordinal
     LIMIT 1;
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION 'target % has no subscription of reaction %', the_target, missing
            USING ERRCODE = 'WR006';
    END IF;
    IF cardinality(advance_reactions) > 0 THEN
        SELECT max(u.to_position) INTO furthest FROM unnest(advance_to) AS u (to_position);
        IF furthest > weir.log_end() THEN
            RAISE EXCEPTION 'the lease is lost: it was settled at %, beyond the end of the log (%)',
                furthest, weir.log_end() USING ERRCODE = 'WR011';
        END IF;
        FOR moved IN
            UPDATE weir.subscriptions AS s
               SET at = w.to_position, mark = greatest(s.mark, w.to_position), retries = 0
              FROM (SELECT u.reaction, max(u.to_position) AS to_position
                      FROM unnest(advance_reactions, advance_to) AS u (reaction, to_position)
                     GROUP BY u.reaction) AS w
             WHERE s.target = the_target AND s.reaction + 0 = w.reaction
               AND s.at < w.to_position
            RETURNING s.reaction, s.at
        LOOP
            advanced := true;
            PERFORM weir.work_done(the_target, moved.reaction, moved.at);
        END LOOP;
    END IF;
    IF cardinality(park_reactions) > 0 THEN
        PERFORM weir.park(array_fill(the_target, ARRAY[cardinality(park_reactions)]),
                          park_reactions, park_events, park_attempts, park_errors, now_us);
    END IF;
    IF cardinality(parked_done) > 0 THEN
        DELETE FROM weir.parked AS p
         WHERE p.id = ANY (parked_done) AND p.target = the_target AND p.sent_back;
    END IF;
    IF failure_reaction <> 0 THEN
        UPDATE weir.subscriptions AS s
           SET retries = s.retries + 1
         WHERE s.target = the_target AND s.reaction + 0 = failure_reaction
        RETURNING s.retries INTO failed_attempts;
    END IF;
    lease_end := CASE WHEN ends <> 1 THEN 0
                      WHEN lease_us > 9223372036854775807 - now_us THEN 9223372036854775807
                      ELSE now_us + lease_us END;
    SELECT d.behind, d.watermark, d.priority INTO is_behind, new_watermark, new_priority
      FROM weir.derived(the_target) AS d;
    UPDATE weir.targets AS t
       SET lost = CASE WHEN advanced THEN 0 ELSE t.lost END,
           error = CASE WHEN fails THEN failure_error WHEN advanced THEN '' ELSE t.error END,
           event = CASE WHEN fails THEN failure_event WHEN advanced THEN 0 ELSE t.event END,
           reaction = CASE WHEN fails THEN failure_reaction WHEN advanced THEN 0
                           ELSE t.reaction END,
           attempts = CASE WHEN fails THEN failed_attempts WHEN advanced THEN 0
                           ELSE t.attempts END,
           holder = CASE WHEN ends = 1 THEN t.holder END,
           lease_until = lease_end,
           due = CASE WHEN ends = 2 THEN until_us ELSE t.due END,
           held = t.held OR ends = 3,
           blocked = CASE WHEN ends = 3 THEN now_us ELSE t.blocked END,
           behind = is_behind,
           watermark = new_watermark,
           rank = new_watermark >> 5,
           priority = coalesce(t.override, new_priority, 0)
     WHERE t.id = the_target
    RETURNING t.lane, t.paused INTO its_lane, is_paused;
    is_behind := is_behind AND NOT is_paused
                 AND NOT EXISTS (SELECT FROM weir.lanes AS l WHERE l.lane = its_lane AND l.paused);
END
$$;
CREATE OR REPLACE FUNCTION weir.settle_with(
    options integer, wait_ms integer, key_ttl bigint,
    append_flags integer[], append_keys text[], append_fingerprints bytea[],
    stream_appends integer[], stream_names text[], stream_expects integer[],
    stream_versions bigint[],
    event_streams integer[], event_names text[], event_data json[], event_meta json[],
    change_streams integer[], change_keys text[], change_kinds integer[],
    the_target bigint, the_fence bigint, the_token bigint,
    advance_reactions bigint[], advance_to bigint[],
    park_reactions bigint[], park_events bigint[], park_attempts bigint[], park_errors text[],
    parked_done bigint[],
    fails boolean, failure_reaction bigint, failure_event bigint, failure_error text,
    ends integer, lease_us bigint, until_us bigint)
RETURNS TABLE (append_index integer, stream_index integer, status integer, replayed boolean,
    first_version bigint, last_version bigint, "position" bigint, expected bigint, actual bigint,
    other text, lease_end bigint, is_behind boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found record;
BEGIN
    SELECT t.fence, t.token, t.log, t.holder IS NOT NULL AS held INTO found
      FROM weir.targets AS t
     WHERE t.id = the_target;
    PERFORM weir.check_lease(the_target, the_fence, the_token, found.fence, found.token,
                             found.log, found.held);
    FOR append_index, stream_index, status, replayed, first_version, last_version, "position",
        expected, actual, other IN
        SELECT a.append_index, a.stream_index, a.status, a.replayed, a.first_version,
               a.last_version, a."position", a.expected, a.actual, a.other
          FROM weir.append(options, wait_ms, key_ttl, append_flags, append_keys,
                           append_fingerprints, stream_appends, stream_names, stream_expects,
                           stream_versions, event_streams, event_names, event_data, event_meta,
                           change_streams, change_keys, change_kinds) AS a
         ORDER BY a.append_index, a.stream_index
    LOOP
        IF status <> 0 THEN
            RAISE EXCEPTION 'an effect of the settle was refused'
                USING ERRCODE = 'WR' || lpad((-status)::text, 3, '0'),
                      DETAIL = concat_ws('|', append_index, stream_index, coalesce(expected, 0),
                                         coalesce(actual, 0)),
                      COLUMN = coalesce(other, '');
        END IF;
        RETURN NEXT;
    END LOOP;
    SELECT -1, -1, 0, false, 0, 0, 0, 0, 0, '', s.lease_end, s.is_behind
      INTO append_index, stream_index, status, replayed, first_version, last_version, "position",
           expected, actual, other, lease_end, is_behind
      FROM weir.settle(the_target, the_fence, the_token, advance_reactions, advance_to,
                       park_reactions, park_events, park_attempts, park_errors, parked_done,
                       fails, failure_reaction, failure_event, failure_error, ends, lease_us,
                       until_us) AS s;
    RETURN NEXT;
END
$$;
CREATE OR REPLACE FUNCTION weir.fenced(
    the_targets bigint[], the_fences bigint[], the_tokens bigint[], lease_us bigint)
RETURNS TABLE (status integer, lease_end bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    now_us bigint;
    new_end bigint;
    held_targets bigint[];
    this_log bigint;
BEGIN
    PERFORM weir.commit_durably();
    PERFORM 1
       FROM weir.targets AS t
      WHERE t.id = ANY (the_targets)
      ORDER BY t.name || ''
        FOR NO KEY UPDATE;
    now_us := weir.clock_us();
    new_end := CASE WHEN lease_us < 0 THEN 0
                    WHEN lease_us > 9223372036854775807 - now_us THEN 9223372036854775807
                    ELSE now_us + lease_us END;
    this_log := weir.log();
    held_targets := ARRAY(SELECT u.target
                            FROM unnest(the_targets, the_fences, the_tokens)
                                 AS u (target, fence, token)
                           CROSS JOIN LATERAL (SELECT x.fence, x.token, x.log, x.holder
                                                 FROM weir.targets AS x
                                                WHERE x.id = u.target LIMIT 1) AS t
                           WHERE t.fence = u.fence AND t.holder IS NOT NULL
                             AND (u.token = 0 OR t.token = u.token)
                             AND (lease_us < 0 OR t.log = this_log));
    RETURN QUERY
    SELECT CASE WHEN i.fence IS NULL THEN -6
                WHEN i.ours IS NOT TRUE THEN -11
                WHEN lease_us < 0 AND i.turn > 1 THEN -11
                ELSE 0 END,
           new_end
      FROM (SELECT u.ordinal, t.fence, t.id = ANY (held_targets) AND t.fence = u.fence
                       AND u.token IN (0, t.token) AS ours,
                   count(*) FILTER (WHERE t.fence = u.fence)
                       OVER (PARTITION BY u.target ORDER BY u.ordinal) AS turn
              FROM unnest(the_targets, the_fences, the_tokens)
                   WITH ORDINALITY AS u (target, fence, token, ordinal)
              LEFT JOIN LATERAL (SELECT x.id, x.fence, x.token FROM weir.targets AS x
                                  WHERE x.id = u.target LIMIT 1) AS t ON true) AS i
     ORDER BY i.ordinal;
    UPDATE weir.targets AS t
       SET holder = CASE WHEN lease_us >= 0 THEN t.holder END, lease_until = new_end
     WHERE t.id = ANY (held_targets);
END
$$;

CREATE OR REPLACE FUNCTION weir.turn(
    settle_targets bigint[], settle_fences bigint[], settle_tokens bigint[],
    advance_targets bigint[], advance_reactions bigint[], advance_to bigint[],
    of_lane text, by_holder text, lease_us bigint, wanted bigint, lead bigint, reserve bigint,
    known_reactions bigint[], known_numbers bigint[], all_reactions boolean, lost_max bigint)
RETURNS TABLE (
    leased bigint, leased_name text, leased_fence bigint, leased_token bigint,
    leased_until bigint, leased_watermark bigint, leased_priority bigint, leased_lost bigint, kind integer,
    of_reaction bigint, first_number bigint, second_number bigint, third_number bigint,
    work_source text, work_value text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off SET jit = off
AS $$
DECLARE
    refused bigint[];
    statuses bigint[];
    moved_targets bigint[];
    moved_reactions bigint[];
    moved_to bigint[];
    unmoved bigint[] := '{}';
    with_work bigint[];
    retired bigint[];
    paused_lanes text[];
    last bigint;
    this_log bigint;
BEGIN
    PERFORM weir.commit_durably();
    PERFORM 1
       FROM weir.targets AS t
      WHERE t.id = ANY (settle_targets)
      ORDER BY t.name || ''
        FOR NO KEY UPDATE;
    this_log := weir.log();
    SELECT coalesce(array_agg(j.target), '{}'), array_agg(j.status)
      INTO refused, statuses
      FROM (SELECT u.target,
                   CASE WHEN t.fence IS NULL THEN -6
                        WHEN t.fence IS DISTINCT FROM u.fence OR t.holder IS NULL OR t.log <> this_log
                            OR (u.token <> 0 AND t.token <> u.token) THEN -11
                        ELSE 0 END AS status
              FROM unnest(settle_targets, settle_fences, settle_tokens)
                   AS u (target, fence, token)
              LEFT JOIN LATERAL (SELECT x.fence, x.token, x.log, x.holder FROM weir.targets AS x
                                  WHERE x.id = u.target LIMIT 1) AS t ON true) AS j
     WHERE j.status <> 0;
    SELECT refused || array_agg(m.target), statuses || array_agg(-6::bigint)
      INTO refused, statuses
      FROM (SELECT DISTINCT a.target
              FROM unnest(advance_targets, advance_reactions) AS a (target, reaction)
             WHERE ((SELECT true FROM weir.subscriptions AS s
                      WHERE s.target = a.target AND s.reaction + 0 = a.reaction LIMIT 1) IS NULL
                    OR (a.target IN (SELECT unnest(settle_targets))) IS NOT TRUE)
               AND a.target <> ALL (refused)) AS m;
    last := weir.log_end();
    IF (last >= ALL (advance_to)) IS NOT TRUE THEN
        SELECT refused || array_agg(m.target), statuses || array_agg(-11::bigint)
          INTO refused, statuses
          FROM (SELECT DISTINCT a.target
                  FROM unnest(advance_targets, advance_to) AS a (target, to_position)
                 WHERE (a.to_position <= last) IS NOT TRUE AND a.target <> ALL (refused)) AS m;
    END IF;
    WITH moved AS (
        INSERT INTO weir.subscriptions AS s
               (target, reaction, at, mark, priority, source, value)
        SELECT w.target, w.reaction, w.to_position, w.to_position, o.priority, o.source, o.value
          FROM (SELECT a.target, a.reaction, max(a.to_position) AS to_position
                  FROM unnest(advance_targets, advance_reactions, advance_to)
                       AS a (target, reaction, to_position)
                 GROUP BY a.target, a.reaction) AS w
         CROSS JOIN LATERAL (SELECT x.at, x.priority, x.source, x.value
                               FROM weir.subscriptions AS x
                              WHERE x.target = w.target AND x.reaction + 0 = w.reaction
                              LIMIT 1) AS o
         WHERE o.at < w.to_position AND w.target <> ALL (refused)
            ON CONFLICT (target, reaction)
            DO UPDATE SET at = excluded.at, mark = greatest(s.mark, excluded.mark), retries = 0
        RETURNING s.target, s.reaction, s.at)
    SELECT array_agg(m.target), array_agg(m.reaction), array_agg(m.at)
      INTO moved_targets, moved_reactions, moved_to
      FROM moved AS m;
    with_work := ARRAY(SELECT d.reaction
                         FROM weir.definitions AS d
                        WHERE d.reaction = ANY (ARRAY(SELECT DISTINCT u.reaction
                                                        FROM unnest(moved_reactions)
                                                             AS u (reaction)))
                          AND d.rule = 4);
    IF with_work <> '{}' THEN
        DELETE FROM weir.work AS k
         WHERE k.ctid = ANY (ARRAY(
                   SELECT x.ctid
                     FROM unnest(moved_targets, moved_reactions, moved_to)
                          AS m (target, reaction, to_position)
                    CROSS JOIN LATERAL (
                          SELECT w.ctid
                            FROM weir.work AS w
                           WHERE (w.target, w.reaction, w.event) > (m.target, m.reaction, 0)
                             AND (w.target, w.reaction, w.event)
                                     <= (m.target, m.reaction, m.to_position)) AS x
                    WHERE m.reaction = ANY (with_work)));
    END IF;
    unmoved := CASE WHEN moved_targets IS NULL THEN settle_targets
                    WHEN cardinality(settle_targets) = 1 THEN '{}'
                    ELSE ARRAY(SELECT u.target FROM unnest(settle_targets) AS u (target)
                                WHERE u.target <> ALL (moved_targets)) END;
    retired := ARRAY(SELECT r.id FROM weir.reactions AS r WHERE r.retired);
    paused_lanes := ARRAY(SELECT l.lane FROM weir.lanes AS l WHERE l.paused);
    RETURN QUERY
    WITH freed AS (
        UPDATE weir.targets AS t
           SET (behind, watermark, rank, priority) =
               (SELECT coalesce(bool_or(s.at < s.mark), false)
                           OR coalesce((SELECT true
                                          FROM weir.parked AS p
                                         WHERE p.target = t.id AND p.sent_back
                                           AND p.reaction + 0 <> ALL (retired)
                                         ORDER BY p.target, p.event, p.reaction
                                         LIMIT 1), false),
                       coalesce(min(s.at) FILTER (WHERE s.at < s.mark), max(s.at), 0),
                       coalesce(min(s.at) FILTER (WHERE s.at < s.mark), max(s.at), 0) >> 5,
                       coalesce(t.override, max(s.priority), 0)
                  FROM weir.subscriptions AS s
                 WHERE s.target = t.id AND s.reaction + 0 <> ALL (retired)),
               holder = NULL,
               lease_until = 0,
               lost = CASE WHEN t.id = ANY (unmoved) THEN t.lost ELSE 0 END,
               error = CASE WHEN t.id = ANY (unmoved) THEN t.error ELSE '' END,
               event = CASE WHEN t.id = ANY (unmoved) THEN t.event ELSE 0 END,
               reaction = CASE WHEN t.id = ANY (unmoved) THEN t.reaction ELSE 0 END,
               attempts = CASE WHEN t.id = ANY (unmoved) THEN t.attempts ELSE 0 END
         WHERE t.id = ANY (settle_targets) AND t.id <> ALL (refused)
        RETURNING t.id, t.behind AND NOT t.paused AND t.lane <> ALL (paused_lanes) AS more)
    SELECT a.target, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
           NULL::bigint, NULL::bigint, 0, NULL::bigint, a.status, a.more, NULL::bigint, NULL::text, NULL::text
      FROM (SELECT f.id AS target, 0::bigint AS status, f.more::integer::bigint AS more
              FROM freed AS f
             UNION ALL
            SELECT u.target, u.status, 0
              FROM unnest(refused, statuses) AS u (target, status)) AS a
     ORDER BY a.target;
    IF wanted > 0 THEN
        RETURN QUERY
        SELECT l.leased, l.leased_name, l.leased_fence, l.leased_token, l.leased_until,
               l.leased_watermark, l.leased_priority, l.leased_lost, l.kind, l.of_reaction, l.first_number,
               l.second_number, l.third_number, l.work_source, l.work_value
          FROM weir.lease(of_lane, by_holder, lease_us, wanted, lead, reserve, known_reactions,
                          known_numbers, all_reactions, lost_max) AS l;
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION weir.lock_accepted(the_targets bigint[], only_blocked boolean)
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    accepted bigint[];
BEGIN
    PERFORM weir.lock_targets(the_targets);
    accepted := ARRAY(SELECT t.id
                        FROM weir.targets AS t
                       WHERE t.id = ANY (the_targets)
                         AND (NOT only_blocked OR t.blocked IS NOT NULL));
    RETURN accepted;
END
$$;
CREATE OR REPLACE FUNCTION weir.clear_targets(the_targets bigint[], take boolean) RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    UPDATE weir.targets AS t
       SET blocked = NULL, held = t.paused, due = NULL, lost = 0, error = '', event = 0,
           reaction = 0, attempts = 0,
           fence = CASE WHEN take THEN t.fence + 1 ELSE t.fence END,
           holder = CASE WHEN take THEN NULL ELSE t.holder END,
           lease_until = CASE WHEN take THEN 0 ELSE t.lease_until END
     WHERE t.id = ANY (the_targets);
    UPDATE weir.subscriptions AS s
       SET retries = 0
     WHERE s.target = ANY (the_targets) AND s.retries <> 0;
END
$$;
CREATE OR REPLACE FUNCTION weir.operate(
    verb integer, the_targets bigint[], only_blocked boolean, new_override bigint, paused_by text)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    changing bigint[];
BEGIN
    PERFORM weir.commit_durably();
    changing := weir.lock_accepted(the_targets, only_blocked);
    changing := ARRAY(SELECT t.id
                        FROM weir.targets AS t
                       WHERE t.id = ANY (changing)
                         AND CASE verb
                             WHEN 1 THEN (t.blocked IS NOT NULL OR t.due IS NOT NULL)
                                 AND NOT weir.is_passed(t.blocked, t.reaction, t.event, t.attempts)
                             WHEN 4 THEN t.override IS DISTINCT FROM new_override
                             WHEN 5 THEN NOT t.paused
                             WHEN 6 THEN t.paused
                             END);
    IF verb = 1 THEN
        PERFORM weir.clear_targets(changing, false);
    ELSIF verb = 4 THEN
        UPDATE weir.targets AS t SET override = new_override WHERE t.id = ANY (changing);
    ELSE
        UPDATE weir.targets AS t
           SET paused = (verb = 5),
               paused_by = CASE WHEN verb = 5 THEN operate.paused_by ELSE '' END,
               held = (t.blocked IS NOT NULL OR verb = 5)
         WHERE t.id = ANY (changing);
    END IF;
    PERFORM weir.derive(changing);
    RETURN cardinality(changing);
END
$$;
CREATE OR REPLACE FUNCTION weir.operate_reset(
    the_targets bigint[], only_blocked boolean, to_position bigint)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    log_end bigint := weir.log_end();
    routed_again bigint[];
    locked bigint[];
    item_targets bigint[];
    item_reactions bigint[];
    item_positions bigint[];
    item_marks bigint[];
    item_routed boolean[];
    changing bigint[];
BEGIN
    PERFORM weir.commit_durably();
    routed_again := ARRAY(
        SELECT DISTINCT s.reaction
          FROM unnest(the_targets) AS u (id)
         CROSS JOIN LATERAL (SELECT i.reaction, i.at
                               FROM weir.subscriptions AS i
                              WHERE i.target = u.id
                             OFFSET 0) AS s
         CROSS JOIN LATERAL (SELECT r.since, d.rule, greatest(r.routed, r.reread_to) AS routed
                               FROM weir.reactions AS r
                               JOIN weir.definitions AS d
                                    ON d.reaction = r.id AND d.number = r.number
                              WHERE r.id = s.reaction
                              LIMIT 1) AS x
         WHERE x.rule = 4 AND s.at > greatest(least(to_position, x.routed, log_end), x.since));
    PERFORM 1
       FROM weir.reactions AS r
      WHERE r.id = ANY (routed_again)
      ORDER BY r.id
        FOR NO KEY UPDATE;
    locked := weir.lock_accepted(the_targets, only_blocked);
    log_end := weir.log_end();
    SELECT array_agg(s.target), array_agg(s.reaction), array_agg(a.new_at), array_agg(a.new_mark),
           array_agg(x.rule = 4 AND s.at > a.new_at)
      INTO item_targets, item_reactions, item_positions, item_marks, item_routed
      FROM unnest(locked) AS u (id)
     CROSS JOIN LATERAL (SELECT i.target, i.reaction, i.at, i.mark
                           FROM weir.subscriptions AS i
                          WHERE i.target = u.id
                         OFFSET 0) AS s
     CROSS JOIN LATERAL (SELECT r.since, d.rule,
                                least(greatest(r.routed, r.reread_to), log_end) AS routed
                           FROM weir.reactions AS r
                           JOIN weir.definitions AS d ON d.reaction = r.id AND d.number = r.number
                          WHERE r.id = s.reaction
                          LIMIT 1) AS x
     CROSS JOIN LATERAL (SELECT least(s.at, greatest(least(to_position, x.routed), x.since))
                                    AS new_at) AS n
     CROSS JOIN LATERAL (SELECT n.new_at,
                                greatest(n.new_at, CASE WHEN s.at > s.mark THEN x.routed
                                                        ELSE least(s.mark, x.routed) END)
                                    AS new_mark) AS a
     WHERE s.at > a.new_at OR s.mark <> a.new_mark;
    IF EXISTS (SELECT 1
                 FROM unnest(item_reactions, item_routed) AS i (reaction, routed)
                WHERE i.routed AND i.reaction <> ALL (routed_again)) THEN
        RAISE EXCEPTION 'a reaction was declared or subscribed while its targets were being reset'
            USING ERRCODE = '40001';
    END IF;
    FOR i IN 1 .. coalesce(cardinality(item_targets), 0) LOOP
        UPDATE weir.subscriptions AS s
           SET at = item_positions[i],
               mark = CASE WHEN item_routed[i] THEN item_positions[i] ELSE item_marks[i] END,
               was_reset = s.was_reset OR item_routed[i]
         WHERE s.target = item_targets[i] AND s.reaction + 0 = item_reactions[i];
        IF item_routed[i] THEN
            PERFORM weir.work_done(item_targets[i], item_reactions[i], 9223372036854775807);
        END IF;
    END LOOP;
    IF cardinality(routed_again) > 0 THEN
        UPDATE weir.reactions AS r
           SET reread_to = least(greatest(r.reread_to, r.routed), log_end),
               routed = least(r.routed, greatest(least(to_position, log_end), r.since))
         WHERE r.id IN (SELECT i.reaction
                          FROM unnest(item_reactions, item_routed) AS i (reaction, routed)
                         WHERE i.routed);
        UPDATE weir.subscriptions AS s
           SET was_reset = false
          FROM weir.reactions AS r
         WHERE r.id = ANY (routed_again) AND r.reread_to = 0
           AND s.reaction = r.id AND s.was_reset;
    END IF;
    changing := ARRAY(
        SELECT t.id
          FROM weir.targets AS t
         WHERE t.id = ANY (locked)
           AND (t.id = ANY (item_targets) OR t.holder IS NOT NULL OR t.blocked IS NOT NULL
                OR t.due IS NOT NULL OR t.lost <> 0 OR t.error <> '' OR t.event <> 0
                OR t.reaction <> 0 OR t.attempts <> 0
                OR EXISTS (SELECT 1
                             FROM weir.subscriptions AS s
                            WHERE s.target = t.id AND s.retries <> 0)));
    PERFORM weir.clear_targets(changing, true);
    PERFORM weir.derive(changing);
    RETURN cardinality(changing);
END
$$;
CREATE OR REPLACE FUNCTION weir.skip_state(the_target bigint) RETURNS text
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    RETURN (SELECT concat_ws(' ', t.fence, t.behind, t.blocked, t.event, t.reaction, t.attempts,
                             md5(t.error))
              FROM weir.targets AS t
             WHERE t.id = the_target)
        || '/' || coalesce((SELECT string_agg(concat_ws(' ', s.reaction, s.at, s.mark, s.retries,
                                                 r.number, r.retired, md5(s.value)), ','
                                       ORDER BY s.reaction)
                       FROM weir.subscriptions AS s
                       JOIN weir.reactions AS r ON r.id = s.reaction + 0
                      WHERE s.target = the_target), '')
        || '/' || coalesce((SELECT string_agg(p.id || ' ' || p.attempts, ',' ORDER BY p.id)
                       FROM weir.parked AS p
                      WHERE p.target = the_target AND p.sent_back), '');
END
$$;
CREATE OR REPLACE FUNCTION weir.operate_skip(
    the_targets bigint[], states text[], the_reactions bigint[], the_events bigint[],
    the_attempts bigint[])
RETURNS SETOF bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    now_us bigint;
    changing bigint[];
    park_reactions bigint[];
    park_events bigint[];
    park_attempts bigint[];
    park_errors text[];
BEGIN
    PERFORM weir.commit_durably();
    PERFORM weir.lock_targets(the_targets);
    now_us := weir.clock_us();
    SELECT array_agg(t.id ORDER BY i.ordinal), array_agg(i.reaction ORDER BY i.ordinal),
           array_agg(i.event ORDER BY i.ordinal), array_agg(i.attempts ORDER BY i.ordinal),
           array_agg(CASE WHEN t.error <> '' THEN t.error ELSE 'skipped by an operator' END
                     ORDER BY i.ordinal)
      INTO changing, park_reactions, park_events, park_attempts, park_errors
      FROM unnest(the_targets, states, the_reactions, the_events, the_attempts)
               WITH ORDINALITY AS i (target, state, reaction, event, attempts, ordinal)
      JOIN weir.targets AS t ON t.id = i.target
     WHERE weir.skip_state(t.id) = i.state;
    IF changing IS NULL THEN
        RETURN;
    END IF;
    PERFORM weir.park(changing, park_reactions, park_events, park_attempts, park_errors, now_us);
    FOR i IN 1 .. cardinality(changing) LOOP
        UPDATE weir.subscriptions AS s
           SET at = park_events[i]
         WHERE s.target = changing[i] AND s.reaction + 0 = park_reactions[i]
           AND s.at < park_events[i] AND s.mark >= park_events[i];
        IF FOUND THEN
            PERFORM weir.work_done(changing[i], park_reactions[i], park_events[i]);
        END IF;
    END LOOP;
    PERFORM weir.clear_targets(changing, true);
    PERFORM weir.derive(changing);
    RETURN QUERY SELECT unnest(changing);
END
$$;
CREATE OR REPLACE FUNCTION weir.position_of_time(time_us bigint) RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
    wanted timestamptz := CASE WHEN time_us > 253402300799999999 THEN 'infinity'::timestamptz
                               WHEN time_us < -62135596800000000 THEN '-infinity'::timestamptz
                               ELSE 'epoch'::timestamptz
                                    + (time_us / 1000000) * interval '1 second'
                                    + (time_us % 1000000) * interval '1 microsecond' END;
    low bigint := 1;
    high bigint;
    middle bigint;
    probe record;
    slice record;
BEGIN
    SELECT coalesce(max(e.id), 0) + 1 INTO high FROM weir.events AS e;
    WHILE low < high LOOP
        middle := low + (high - low) / 2;
        SELECT e.id, e.created INTO probe
          FROM weir.events AS e
         WHERE e.id >= middle
         ORDER BY e.id
         LIMIT 1;
        IF probe.id IS NULL OR probe.created >= wanted THEN
            high := middle;
        ELSE
            low := probe.id + 1;
        END IF;
    END LOOP;
    LOOP
        SELECT min(b.id) FILTER (WHERE b.created >= wanted) AS late INTO slice
          FROM (SELECT e.id, e.created
                  FROM weir.events AS e
                 WHERE e.id < low
                 ORDER BY e.id DESC
                 LIMIT 10000) AS b;
        EXIT WHEN slice.late IS NULL;
        low := slice.late;
    END LOOP;
    RETURN low - 1;
END
$$;
CREATE OR REPLACE FUNCTION weir.lane_pause(the_lane text, pause boolean, who text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
AS $$
BEGIN
    PERFORM weir.commit_durably();
    PERFORM weir.check_names('lane', ARRAY[the_lane], true);
    IF pause THEN
        INSERT INTO weir.lanes AS l (lane, paused, paused_by)
        VALUES (the_lane, true, who)
            ON CONFLICT (lane) DO UPDATE SET paused = true, paused_by = excluded.paused_by
               WHERE NOT l.paused;
    ELSE
        UPDATE weir.lanes AS l
           SET paused = false, paused_by = ''
         WHERE l.lane = the_lane AND l.paused;
    END IF;
    RETURN FOUND;
END
$$;
CREATE OR REPLACE FUNCTION weir.parked_retry(the_parked bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
AS $$
DECLARE
    its_target bigint;
BEGIN
    PERFORM weir.commit_durably();
    SELECT p.target INTO its_target FROM weir.parked AS p WHERE p.id = the_parked;
    IF its_target = 0 THEN
        RAISE EXCEPTION 'parked event % was parked while routing and has no target', the_parked
            USING ERRCODE = 'WR018';
    END IF;
    PERFORM 1 FROM weir.targets AS t WHERE t.id = its_target FOR NO KEY UPDATE;
    IF NOT EXISTS (SELECT 1 FROM weir.parked AS p WHERE p.id = the_parked) THEN
        RAISE EXCEPTION 'no parked event with id %', the_parked USING ERRCODE = 'WR006';
    END IF;
    UPDATE weir.parked AS p SET sent_back = true WHERE p.id = the_parked AND NOT p.sent_back;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM weir.derive(ARRAY[its_target]);
    RETURN true;
END
$$;
CREATE OR REPLACE FUNCTION weir.parked_drop(the_parked bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
AS $$
DECLARE
    its_target bigint;
    was_sent_back boolean;
BEGIN
    PERFORM weir.commit_durably();
    SELECT p.target INTO its_target FROM weir.parked AS p WHERE p.id = the_parked;
    PERFORM 1 FROM weir.targets AS t WHERE t.id = its_target FOR NO KEY UPDATE;
    DELETE FROM weir.parked AS p WHERE p.id = the_parked RETURNING p.sent_back INTO was_sent_back;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no parked event with id %', the_parked USING ERRCODE = 'WR006';
    END IF;
    IF was_sent_back THEN
        PERFORM weir.derive(ARRAY[its_target]);
    END IF;
END
$$;
CREATE OR REPLACE FUNCTION weir.snapshot_put(
    the_stream text, the_version bigint, the_revision text, the_data bytea)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
AS $$
BEGIN
    PERFORM weir.commit_durably();
    PERFORM weir.check_names('stream', ARRAY[the_stream], false);
    IF (the_version BETWEEN 0 AND (SELECT s.version FROM weir.streams AS s
                                    WHERE s.name = the_stream)) IS NOT TRUE THEN
        RAISE EXCEPTION 'stream "%" has no version %', the_stream, the_version
            USING ERRCODE = 'WR002';
    END IF;
    INSERT INTO weir.snapshots AS k (stream, version, revision, data)
    VALUES (the_stream, the_version, the_revision, the_data)
        ON CONFLICT (stream) DO UPDATE
           SET version = excluded.version, revision = excluded.revision, data = excluded.data
         WHERE excluded.version >= k.version OR excluded.revision <> k.revision;
END
$$;
CREATE OR REPLACE FUNCTION weir.snapshot_drop(category text, keep_revision text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
AS $$
DECLARE
    dropped bigint;
BEGIN
    PERFORM weir.commit_durably();
    DELETE FROM weir.snapshots AS k
     WHERE (category = '' OR k.stream = category
            OR (k.stream >= category || '-' AND k.stream < category || '.'))
       AND k.revision <> keep_revision;
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
END
$$;

CREATE OR REPLACE FUNCTION weir.worker_beat(
    its_name text, its_host text, its_pid bigint, its_lanes text[], its_reactions bigint[],
    its_numbers bigint[], is_draining boolean, lease_us bigint, kept_us bigint, forget_max bigint,
    its_metrics text)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
AS $$
DECLARE
    started bigint := weir.clock_us();
    ends bigint := CASE WHEN lease_us > 9223372036854775807 - started
                        THEN 9223372036854775807 ELSE started + lease_us END;
BEGIN
    PERFORM weir.check_names('worker', ARRAY[its_name], true);
    PERFORM weir.check_names('lane', its_lanes, true);
    IF num_nulls(its_host, its_pid, its_lanes, its_reactions, its_numbers, is_draining, lease_us,
                 kept_us, forget_max, its_metrics) > 0
       OR lease_us < -1 OR kept_us < 0 OR forget_max < 0
       OR cardinality(its_reactions) <> cardinality(its_numbers)
       OR array_ndims(its_reactions) > 1 OR array_ndims(its_numbers) > 1
       OR array_ndims(its_lanes) > 1
       OR array_position(its_reactions, NULL) IS NOT NULL
       OR array_position(its_numbers, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'worker "%" says what cannot be kept', its_name
            USING ERRCODE = 'WR002',
                  HINT = 'Nothing of it may be null, no time is negative, and each reaction has '
                         'one number.';
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    IF lease_us = 0 THEN
        DELETE FROM weir.workers AS w WHERE w.name = its_name;
    ELSE
        UPDATE weir.workers AS w
           SET host = its_host, pid = its_pid, lanes = its_lanes, reactions = its_reactions,
               numbers = its_numbers, draining = is_draining, lease_until = ends,
               metrics = its_metrics,
               since = CASE WHEN w.lease_until <= started - kept_us THEN started ELSE w.since END
         WHERE w.name = its_name;
        IF NOT FOUND THEN
            INSERT INTO weir.workers (name, host, pid, lanes, reactions, numbers, draining, since,
                                      lease_until, metrics)
            VALUES (its_name, its_host, its_pid, its_lanes, its_reactions, its_numbers,
                    is_draining, started, ends, its_metrics)
            ON CONFLICT (name) DO NOTHING;
        END IF;
    END IF;
    DELETE FROM weir.workers AS w
     WHERE w.id = ANY (ARRAY(SELECT o.id
                               FROM weir.workers AS o
                              WHERE o.lease_until <= started - kept_us
                              LIMIT forget_max
                                FOR UPDATE SKIP LOCKED));
END
$$;

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
CREATE OR REPLACE FUNCTION weir.unhandled(stream_name text) RETURNS text[]
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
        handled := CASE r.rule
            WHEN 1 THEN (SELECT min(s.at) FROM weir.subscriptions AS s
                          WHERE s.reaction = r.id AND s.value = stream_name)
            WHEN 2 THEN (SELECT min(s.at) FROM weir.subscriptions AS s
                          WHERE s.reaction = r.id AND s.value = split_part(stream_name, '-', 1))
            WHEN 4 THEN r.since
            ELSE (SELECT min(s.at) FROM weir.subscriptions AS s WHERE s.reaction = r.id)
        END;
        handled := greatest(least(coalesce(handled, r.routed), r.routed), r.since);
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
                WHEN 3 THEN e.id > (SELECT min(s.at) FROM weir.subscriptions AS s
                                     WHERE s.reaction = r.id AND s.value = e.name)
                WHEN 4 THEN EXISTS (SELECT FROM weir.work AS w
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

CREATE OR REPLACE FUNCTION weir.check_lock_lease(lease_us bigint) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF (lease_us >= 0) IS NOT TRUE THEN
        RAISE EXCEPTION 'a lease of % us is none', lease_us USING ERRCODE = 'WR002';
    END IF;
END
$$;
CREATE OR REPLACE FUNCTION weir.lock_take(
    is_once boolean, its_name text, its_holder text, lease_us bigint)
RETURNS TABLE (taken boolean, holder_now text, fence_now bigint, since_now bigint, until_now bigint,
               state_now integer, exit_status_now bigint, ended_now bigint, output_now bytea,
               token_now bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    started bigint;
BEGIN
    PERFORM weir.commit_durably();
    PERFORM weir.check_names('lock', ARRAY[its_name], true);
    PERFORM weir.check_names('holder', array_remove(ARRAY[its_holder], ''), true);
    PERFORM weir.check_lock_lease(lease_us);
    LOOP
        PERFORM FROM weir.locks AS k
         WHERE k.once = is_once AND k.name = its_name
           FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO weir.locks (once, name) VALUES (is_once, its_name)
        ON CONFLICT (once, name) DO NOTHING;
    END LOOP;
    started := weir.clock_us();
    UPDATE weir.locks AS k
       SET holder = its_holder, fence = nextval('weir.lock_fences'),
           token = weir.new_token(), since = started,
           lease_until = CASE WHEN lease_us = 0 THEN 0
                              WHEN lease_us > 9223372036854775807 - started
                              THEN 9223372036854775807
                              ELSE started + lease_us END,
           state = 1, exit_status = 0, ended = 0, output = ''
     WHERE k.once = is_once AND k.name = its_name
       AND NOT (k.state = 2 OR (k.state = 1 AND k.lease_until > started));
    taken := FOUND;
    RETURN QUERY
        SELECT taken, k.holder, k.fence, k.since, k.lease_until, k.state, k.exit_status, k.ended,
               k.output, k.token
          FROM weir.locks AS k
         WHERE k.once = is_once AND k.name = its_name;
END
$$;
CREATE OR REPLACE FUNCTION weir.lock_extend(
    is_once boolean, its_name text, its_fence bigint, its_token bigint, lease_us bigint)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    started bigint := weir.clock_us();
BEGIN
    PERFORM weir.commit_durably();
    PERFORM weir.check_lock_lease(lease_us);
    UPDATE weir.locks AS k
       SET lease_until = CASE WHEN k.lease_until = 0 THEN 0
                              WHEN lease_us > 9223372036854775807 - started
                              THEN 9223372036854775807
                              ELSE started + lease_us END
     WHERE k.once = is_once AND k.name = its_name AND k.fence = its_fence
       AND (its_token = 0 OR k.token = its_token) AND k.state = 1;
    RETURN FOUND;
END
$$;
CREATE OR REPLACE FUNCTION weir.lock_release(
    its_name text, its_fence bigint, its_token bigint)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    PERFORM weir.commit_durably();
    DELETE FROM weir.locks AS k
     WHERE NOT k.once AND k.name = its_name AND k.fence = its_fence
       AND (its_token = 0 OR k.token = its_token);
    RETURN FOUND;
END
$$;
CREATE OR REPLACE FUNCTION weir.once_finish(
    its_name text, its_fence bigint, its_token bigint, its_exit_status bigint, its_output bytea)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
BEGIN
    PERFORM weir.commit_durably();
    UPDATE weir.locks AS k
       SET state = CASE its_exit_status WHEN 0 THEN 2 ELSE 3 END, exit_status = its_exit_status,
           ended = weir.clock_us(), output = its_output
     WHERE k.once AND k.name = its_name AND k.fence = its_fence
       AND (its_token = 0 OR k.token = its_token) AND k.state = 1;
    RETURN FOUND OR EXISTS (SELECT
                              FROM weir.locks AS k
                             WHERE k.once AND k.name = its_name AND k.fence = its_fence
                               AND (its_token = 0 OR k.token = its_token));
END
$$;
CREATE OR REPLACE FUNCTION weir.once_forget(its_name text)
RETURNS TABLE (taken boolean, holder_now text, fence_now bigint, since_now bigint, until_now bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    l record;
BEGIN
    PERFORM weir.commit_durably();
    SELECT k.holder, k.fence, k.since, k.lease_until, k.state INTO l
      FROM weir.locks AS k
     WHERE k.once AND k.name = its_name
       FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    taken := l.state <> 1 OR l.lease_until <= weir.clock_us();
    IF taken THEN
        DELETE FROM weir.locks AS k WHERE k.once AND k.name = its_name;
    END IF;
    RETURN QUERY SELECT taken, l.holder, l.fence, l.since, l.lease_until;
END
$$;

CREATE OR REPLACE FUNCTION weir.grant_role(to_role text, kind text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kinds CONSTANT text[] := '{reader, writer, worker, operator}';
    place record;
    callable regprocedure;
BEGIN
    IF (kind = ANY (kinds)) IS NOT TRUE THEN
        RAISE EXCEPTION 'a role is granted as %, not as "%"', array_to_string(kinds, ', '), kind
            USING ERRCODE = 'WR002';
    END IF;
    SELECT c.relnamespace AS id, n.nspname AS name, pg_get_userbyid(c.relowner) AS owner INTO place
      FROM pg_class AS c
      JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.oid = 'weir.store'::regclass;
    IF place.owner = to_role THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(1465207122, hashtext(place.name));
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', place.name, to_role);
    EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO %I', place.name, to_role);
    EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM %I', place.name, to_role);
    FOR callable IN
        SELECT p.oid::regprocedure
          FROM (VALUES
                   ('reader', '{clock, clock_us, fetch, fetch_small, is_wanted, poll}'::text[]),
                   ('reader', '{position_of_time, safe_prove, sent_bytes, server, skip_state}'),
                   ('reader', '{small_data, version_from}'),
                   ('writer', '{append, append_batch, append_one, safe_advance}'),
                   ('worker', '{declare, fenced, lease, lock_extend, lock_release}'),
                   ('worker', '{lock_take, once_finish, route, router_lease, settle}'),
                   ('worker', '{settle_with, snapshot_put, subscribe, turn, worker_beat}'),
                   ('operator', '{lane_pause, once_forget, operate, operate_reset}'),
                   ('operator', '{operate_skip, parked_drop, parked_retry, retire}'),
                   ('operator', '{snapshot_drop}')
               ) AS l (kind, names)
          JOIN pg_proc AS p ON p.pronamespace = place.id AND p.proname = ANY (l.names)
         WHERE array_position(kinds, l.kind) <= array_position(kinds, grant_role.kind)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', callable, to_role);
    END LOOP;
END
$$;
CREATE OR REPLACE FUNCTION weir.granted_roles() RETURNS TABLE (role text, kind text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_get_userbyid(a.grantee)::text,
           CASE max(m.number) WHEN 4 THEN 'operator' WHEN 3 THEN 'worker' WHEN 2 THEN 'writer'
                              ELSE 'reader' END
      FROM pg_class AS c
      JOIN pg_proc AS p ON p.pronamespace = c.relnamespace
      JOIN unnest('{poll, append, lease, operate}'::name[]) WITH ORDINALITY AS m (name, number)
           ON m.name = p.proname
     CROSS JOIN LATERAL aclexplode(p.proacl) AS a
     WHERE c.oid = 'weir.store'::regclass AND a.privilege_type = 'EXECUTE'
       AND a.grantee NOT IN (0, p.proowner)
     GROUP BY a.grantee
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA weir FROM PUBLIC;
SELECT weir.grant_role(g.role, g.kind) FROM weir.granted_roles() AS g;

UPDATE weir.store SET (schema, client_least) =
    (2, 2);
COMMIT;
