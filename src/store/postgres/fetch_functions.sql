-- fetch_functions.sql - the next events of subscriptions.
--
-- What must stay true:
--   * what is given for an item is what its reaction's current definition wants (names, source),
--     restricted by its rule, in the order of the log, from `after` on, `most` at most;
--   * items come in the order given, and none is begun before the one before it is done: fewer events
--     than asked for, and room left, mean that there are no more;
--   * whatever the sizes of events are, an answer is bounded: see the two ways below.
--
-- Two ways, as in read.sql:
--   fetch_small  as fast as a plain SELECT. An event whose texts are compressed, or larger than
--                small_bytes, comes with its data NULL: the list ends before it;
--   fetch        adds sizes up as it goes. Half as fast.
--
-- To begin and end a statement costs as much as what it does for ten items when it has a branch for
-- each rule. Nearly always all items are of one reaction: then its definition is looked up once, and
-- a statement that has only what its rule needs is run.
--
-- The bounds are row comparisons where another index could give the order as well and would read
-- everything between: (name, id) is then the only one that fits. The settings of the planner: see
-- lease_functions.sql.

-- name: fetch_functions
-- The first version of a stream whose event lies above a position; NULL: there is none. Versions
-- and positions of a stream grow together, so it is found by halving. Runs with the settings of
-- its caller.
CREATE OR REPLACE FUNCTION weir.version_after(of_stream text, after_id bigint) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    low bigint;                  -- the answer is in [low, high + 1]
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

-- What is given where a subscription was looked for and is not there.
CREATE OR REPLACE FUNCTION weir.no_subscription(of_target bigint, of_reaction bigint) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RAISE EXCEPTION 'target % has no subscription of reaction %', of_target, of_reaction
        USING ERRCODE = {error_notfound};
END
$$;

-- One text of an event that is neither compressed nor, with the other one, too large; else NULL.
CREATE OR REPLACE FUNCTION weir.small_text(one json, other json, small_bytes bigint) RETURNS json
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN pg_column_compression(one) IS NULL AND pg_column_compression(other) IS NULL
                 AND pg_column_size(one) + pg_column_size(other) <= small_bytes THEN one END
$$;

-- Events of any items, each by its own rule. Its text is put in the place of a call (see
-- read_functions.sql). Everything is LATERAL, so there is one order in which it can be done: item by
-- item, as they are pulled. OFFSET 0: computed once for an item, not for each of its events.
-- `judge` is the source pattern when it is a regular expression, which only the client can judge:
-- such events are given as if they matched.
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
     -- What the source is: a regular expression, a prefix, one stream, or everything.
     CROSS JOIN LATERAL (
           SELECT CASE WHEN starts_with(s.source, '/') THEN s.source END AS judge,
                  CASE WHEN NOT starts_with(s.source, '/') AND s.source <> '*'
                            AND right(s.source, 1) = '*'
                       THEN left(s.source, -1) END AS prefix,
                  CASE WHEN NOT starts_with(s.source, '/') AND right(s.source, 1) <> '*'
                       THEN s.source END AS exact
           OFFSET 0) AS p
     -- The rules of store.h; here `constant` reads the log. One target for everything is found by
     -- what its source allows: a stream, a category (a prefix beyond the first '-' lies inside of
     -- one), its names.
     CROSS JOIN LATERAL (
           SELECT CASE WHEN s.rule <> {rule_constant} THEN s.rule
                       WHEN p.exact IS NOT NULL THEN {rule_stream}
                       WHEN strpos(p.prefix, '-') > 0 THEN {rule_category}
                       WHEN cardinality(s.names) <= 16 THEN {rule_names}
                       ELSE {rule_constant} END AS way,
                  CASE WHEN s.rule <> {rule_constant} THEN s.value
                       WHEN p.exact IS NOT NULL THEN p.exact
                       ELSE split_part(p.prefix, '-', 1) END AS value
           OFFSET 0) AS w
     CROSS JOIN LATERAL (
           SELECT CASE WHEN w.way = {rule_stream} THEN {first_version} END AS first_version
           OFFSET 0) AS v
     CROSS JOIN LATERAL (
           (SELECT e.id, e.version, e.created, e.stream, e.name, e.data, e.meta
              FROM weir.events AS e
             WHERE w.way = {rule_stream}
               AND e.stream = w.value AND e.version >= v.first_version AND e.id + 0 <= u.up_to
               AND {is_wanted_by_item}
             ORDER BY e.stream, e.version
             LIMIT u.most)
           UNION ALL
           (SELECT e.id, e.version, e.created, e.stream, e.name, e.data, e.meta
              FROM weir.events AS e
             WHERE w.way = {rule_category}
               AND (split_part(e.stream, '-', 1), e.id) > (w.value, u.after_id)
               AND (split_part(e.stream, '-', 1), e.id) <= (w.value, u.up_to)
               AND {is_wanted_by_item}
             ORDER BY split_part(e.stream, '-', 1), e.id
             LIMIT u.most)
           UNION ALL
           (SELECT e.id, e.version, e.created, e.stream, e.name, e.data, e.meta
              FROM weir.events AS e
             WHERE w.way = {rule_name}
               AND (e.name, e.id) > (w.value, u.after_id)
               AND (e.name, e.id) <= (w.value, u.up_to)
               AND {is_wanted_by_item}
             ORDER BY e.name, e.id
             LIMIT u.most)
           UNION ALL
           (SELECT e.id, e.version, e.created, e.stream, e.name, e.data, e.meta
              FROM weir.work AS k
             CROSS JOIN LATERAL (SELECT x.* FROM weir.events AS x WHERE x.id = k.event
                                  LIMIT 1) AS e
             WHERE w.way = {rule_work}
               AND (k.target, k.reaction, k.event) > (u.target, u.reaction, u.after_id)
               AND (k.target, k.reaction, k.event) <= (u.target, u.reaction, u.up_to)
               AND {is_wanted_by_item}
             ORDER BY k.target, k.reaction, k.event
             LIMIT u.most)
           UNION ALL
           -- The first of each name hold the first of all.
           (SELECT x.id, x.version, x.created, x.stream, x.name, x.data, x.meta
              FROM unnest(CASE WHEN w.way = {rule_names} THEN s.names END) AS n (name)
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
             WHERE w.way = {rule_constant}
               AND e.id > u.after_id AND e.id <= u.up_to
               AND ((s.names IS NULL AND NOT starts_with(e.name, '$'))
                    OR e.name = ANY (s.names))
               AND (p.prefix IS NULL OR starts_with(e.stream, p.prefix))
             ORDER BY e.id
             LIMIT u.most)) AS f
$$;

-- See FETCH in store.h; at most `room` events, and no more than those that reach room_bytes.
CREATE OR REPLACE FUNCTION weir.fetch(
    item_targets bigint[], item_reactions bigint[], item_afters bigint[], item_up_tos bigint[],
    item_limits bigint[], room bigint, room_bytes bigint)
RETURNS TABLE (
    item integer, event_id bigint, event_version bigint, event_created timestamptz,
    event_stream text, event_name text, event_data json, event_meta json, judge text)
{reading}
{in_index_order}
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

-- The same, at most `room` events that have small_bytes at most; one that has more ends the list for
-- the client, and has NULL as its data.
CREATE OR REPLACE FUNCTION weir.fetch_small(
    item_targets bigint[], item_reactions bigint[], item_afters bigint[], item_up_tos bigint[],
    item_limits bigint[], room bigint, small_bytes bigint)
RETURNS TABLE (
    item integer, event_id bigint, event_version bigint, event_created timestamptz,
    event_stream text, event_name text, event_data json, event_meta json, judge text)
{reading}
{in_index_order}
AS $$
DECLARE
    its_reaction bigint := item_reactions[1];
    its_names text[];
    its_source text;
    its_rule integer;
    prefix text;                 -- see fetch_any
    exact text;
    fixed text;                  -- what is looked for, when it is the same for all items
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
        -- One target for everything is found by its stream, or by its only name.
        IF its_rule = {rule_constant} AND exact IS NOT NULL THEN
            its_rule := {rule_stream};
            fixed := exact;
        ELSIF its_rule = {rule_constant} AND cardinality(its_names) = 1
            AND coalesce(strpos(prefix, '-'), 0) = 0 THEN
            its_rule := {rule_name};
            fixed := its_names[1];
        END IF;
    END IF;

    IF its_rule = {rule_stream} THEN
        RETURN QUERY
        {small_events_of_items}
         CROSS JOIN LATERAL (
               SELECT {first_version} AS first_version
               OFFSET 0) AS v
         CROSS JOIN LATERAL (
               SELECT x.id, x.version, x.created, x.stream, x.name, x.data, x.meta
                 FROM weir.events AS x
                WHERE x.stream = w.value AND x.version >= v.first_version AND x.id + 0 <= u.up_to
                  AND {is_wanted}
                ORDER BY x.stream, x.version
                LIMIT u.most) AS e
         LIMIT room;
    ELSIF its_rule = {rule_name} THEN
        RETURN QUERY
        {small_events_of_items}
         CROSS JOIN LATERAL (
               SELECT x.id, x.version, x.created, x.stream, x.name, x.data, x.meta
                 FROM weir.events AS x
                WHERE (x.name, x.id) > (w.value, u.after_id)
                  AND (x.name, x.id) <= (w.value, u.up_to)
                  AND {is_wanted}
                ORDER BY x.name, x.id
                LIMIT u.most) AS e
         LIMIT room;
    ELSIF its_rule = {rule_work} THEN
        RETURN QUERY
        {small_events_of_items}
         CROSS JOIN LATERAL (
               SELECT x.id, x.version, x.created, x.stream, x.name, x.data, x.meta
                 FROM weir.work AS k
                CROSS JOIN LATERAL (SELECT y.* FROM weir.events AS y WHERE y.id = k.event
                                     LIMIT 1) AS x
                WHERE w.value IS NOT NULL
                  AND (k.target, k.reaction, k.event) > (u.target, its_reaction, u.after_id)
                  AND (k.target, k.reaction, k.event) <= (u.target, its_reaction, u.up_to)
                  AND {is_wanted}
                ORDER BY k.target, k.reaction, k.event
                LIMIT u.most) AS e
         LIMIT room;
    ELSE
        -- Several reactions, or a rule that is rare; who is missing is seen by the long way.
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
