-- route_functions.sql - what the router found becomes marks, work rows and dead letters.
--
-- What must stay true:
--   * marks and `routed` move in one transaction, which began where the reading began: an event is
--     routed once for each reaction, however often the log is read. What was read elsewhere
--     (read_place; 0: not known) may be of a log that was cut off, and is read again;
--   * nothing is routed beyond the end of the log, neither steps nor marks: events that are appended
--     there later would be passed over;
--   * a subscription's `at` moves only when it has no work (at = mark), and never past the first
--     event that was found: no event is stepped over;
--   * reactions are locked by id, then targets by name, then subscriptions are looked at, in
--     statements after those; new targets count as locked when they are inserted, also in the order
--     of names. What a target is looked up for before that, its id and its lane, never changes;
--   * re-reading is over exactly when reread_to is 0; then no subscription counts as reset;
--   * a target whose position is beyond what was routed is blocked before events are passed over
--     (weir__mark_is_beyond of beyond.h). The rows for that are at hand anyway.
--
-- Routing may be lost with the power, and only routing: marks, new targets, work rows, parks and
-- `routed` are derived again together from the log. What builds on them (a lease, a settle)
-- commits durably, and that flushes what came before.
--
-- Plans: see reaction_functions.sql. LIMIT 1 in a lookup keeps it one: joined, the table might be
-- read as a whole, and `+ 0` keeps a lookup by target from becoming one by reaction.

-- name: route_functions
-- Whether routing has blocked a target: as weir__target_is_passed of beyond.h.
CREATE OR REPLACE FUNCTION weir.is_passed(
    blocked bigint, reaction bigint, event bigint, attempts bigint)
RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT blocked IS NOT NULL AND reaction <> 0 AND event <> 0 AND attempts = 0
$$;

-- See ROUTE in store.h, and route_marks.h for how marks are put together. names: of targets, each
-- once, by bytes. mark_steps, mark_names, event_marks and park_steps count from 0. Marks of a round
-- have different subscriptions, rounds follow each other. event_marks, event_ids: the events of
-- marks that stand for single events, in the order of the log; last, priority, source and value of
-- such a mark are those of its last one. Refusals: WR003, and WR002 for a mark that names another
-- lane than its target has, with the mark's index as DETAIL. Gives the indexes of the marks that have
-- blocked their targets, with spaces between; NULL, mostly: there are none.
CREATE OR REPLACE FUNCTION weir.route(
    step_reactions bigint[], step_numbers bigint[], step_from bigint[], step_to bigint[],
    names text[], mark_steps integer[], mark_names integer[], mark_rounds integer[],
    mark_lanes text[], mark_priorities bigint[], mark_sources text[], mark_values text[],
    mark_firsts bigint[], mark_lasts bigint[], event_marks integer[], event_ids bigint[],
    park_steps integer[], park_events bigint[], park_errors text[], read_place bigint DEFAULT 0)
RETURNS text
{writing}
{by_index_unkept}
AS $$
DECLARE
    r record;
    rules integer[];      -- of the steps
    rereads bigint[];     -- reread_to of the steps
    ending bigint[];      -- reactions whose re-reading ends here
    ids bigint[];         -- of the names; NULL where there is no target
    lanes text[];
    new_names text[];
    new_lanes text[];
    new_watermarks bigint[];
    new_priorities bigint[];
    made bigint[];        -- targets that we have made
    reset_names text[];
    mark_count integer := cardinality(mark_steps);
    last_round integer;
    floors bigint[];      -- of the marks: events beyond are written
    had bigint[];         -- of the marks: what their subscriptions had as mark
    changed bigint[];
    touched bigint[];     -- targets that may have to be derived
    last bigint;          -- the end of the log
    met bigint[];         -- of marks whose subscriptions are beyond the log: each its place, the
    beyond bigint[];      -- event that would be passed over, and the position
    told text;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM FROM weir.reactions AS l WHERE l.id = ANY (step_reactions) ORDER BY l.id
        FOR NO KEY UPDATE;
    IF read_place <> 0 AND read_place <> weir.server() + (SELECT s.number FROM weir.store AS s) THEN
        RAISE EXCEPTION 'what is routed was read from another server, or before this one started'
            USING ERRCODE = {error_conflict};
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
            RAISE EXCEPTION 'no reaction with id %', r.reaction USING ERRCODE = {error_conflict};
        ELSIF r.retired THEN
            RAISE EXCEPTION 'reaction "%" is retired', r.name USING ERRCODE = {error_conflict};
        ELSIF r.current_number IS DISTINCT FROM r.number THEN
            RAISE EXCEPTION 'reaction "%" has definition %, routed with %',
                r.name, r.current_number, r.number USING ERRCODE = {error_conflict};
        ELSIF r.routed = r.begins THEN
            RAISE EXCEPTION 'reaction "%" cannot be routed from % to %: the log ends at %',
                r.name, r.begins, r.ends, last USING ERRCODE = {error_conflict};
        END IF;
        RAISE EXCEPTION 'reaction "%" is routed up to %, expected %', r.name, r.routed, r.begins
            USING ERRCODE = {error_conflict};
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
        RAISE EXCEPTION 'what cannot be routed is no event of this log' USING ERRCODE = {error_conflict};
    END IF;
    -- Steps are known to be there.
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
        PERFORM weir.no_lists('the lists of what is routed', {error_conflict});
    END IF;
    IF (last >= ALL (mark_lasts) AND last >= ALL (event_ids) AND 0 < ALL (mark_firsts)
        AND NOT EXISTS (SELECT FROM unnest(mark_firsts, mark_lasts) AS m (begins, final)
                         WHERE m.begins > m.final)) IS NOT TRUE THEN
        RAISE EXCEPTION 'what is routed does not lie in the log, which ends at %', last
            USING ERRCODE = {error_conflict};
    END IF;
    IF mark_count > 0 THEN
        PERFORM weir.check_names('source', mark_sources, true);
        PERFORM weir.check_names('value', array_remove(mark_values, ''), true);
        -- Mostly every target is there, and in its lane, where it stays: one look at each. None is
        -- ever deleted.
        SELECT array_agg(t.id ORDER BY u.place), array_agg(t.lane ORDER BY u.place)
          INTO ids, lanes
          FROM unnest(names) WITH ORDINALITY AS u (name, place)
          LEFT JOIN LATERAL (SELECT x.id, x.lane FROM weir.targets AS x
                              WHERE x.name = u.name LIMIT 1) AS t ON true;
        PERFORM FROM unnest(mark_names, mark_lanes) AS m (name, lane)
          WHERE lanes[m.name + 1] IS DISTINCT FROM m.lane
          LIMIT 1;
        IF FOUND THEN
            -- A lane that does not fit is refused before anything is written. The lane of a target
            -- that is new is that of the first mark that makes it. What is read again by the rule WORK was
            -- routed before, and makes nothing.
            SELECT w.*
              INTO r
              FROM (SELECT m.place, m.name, m.lane, ids[m.name + 1] AS id,
                           coalesce(lanes[m.name + 1], first_value(m.lane)
                               OVER (PARTITION BY m.name ORDER BY NOT m.makes, m.place)) AS has,
                           min(m.place) FILTER (WHERE m.makes) OVER (PARTITION BY m.name) AS made_at
                      FROM (SELECT u.place, u.name, u.lane,
                                   NOT (rules[u.step + 1] = {rule_work} AND u.final <= rereads[u.step + 1])
                                       AS makes
                              FROM unnest(mark_steps, mark_names, mark_lanes, mark_lasts)
                                   WITH ORDINALITY AS u (step, name, lane, final, place)) AS m) AS w
             WHERE w.has <> w.lane AND (w.id IS NOT NULL OR w.place > w.made_at)
             ORDER BY w.place
             LIMIT 1;
            IF FOUND THEN
                RAISE EXCEPTION 'target "%" is in lane "%", not in "%"',
                    names[r.name + 1], r.has, r.lane
                    USING ERRCODE = {error_invalid}, DETAIL = (r.place - 1)::text;
            END IF;

            -- A new target is inserted with what weir.derive will nearly always find right: written
            -- twice, it would have every index entry twice.
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
                       AND NOT (rules[u.step + 1] = {rule_work} AND u.final <= rereads[u.step + 1])
                     ORDER BY u.name, u.place) AS n;
        END IF;
    END IF;

    IF cardinality(park_steps) > 0 THEN
        PERFORM weir.check_errors(park_errors);
        -- One that is parked already is parked anew; its id stays.
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
        -- Ids in the order in which the targets were found, rows in the order of locking.
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
        -- Somebody else has made a target since we looked.
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
                    USING ERRCODE = {error_invalid}, DETAIL = (r.place - 1)::text;
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

    -- A settle of one of these targets waits from here on: as little as possible comes after.
    PERFORM FROM weir.targets AS t
      WHERE t.name = ANY (names || reset_names)
      ORDER BY t.name
        FOR NO KEY UPDATE;
    IF mark_count > 0 THEN
        last_round := (SELECT max(u.round) FROM unnest(mark_rounds) AS u (round));
        FOR this_round IN 0 .. last_round LOOP
            -- The first event that counts decides where a subscription stands. It is mostly the
            -- first of its mark; in the page in which re-reading ends it is looked for. A target
            -- that was behind already, with this priority, stays as it is.
            WITH judged AS MATERIALIZED (
                SELECT f.*, f.final > f.floor AND f.target IS NOT NULL AS counts,
                       f.final <= f.ends AND (f.was_at >= f.fresh OR f.was_mark > f.ends)
                           AND f.fresh IS NOT NULL AS is_beyond,
                       CASE WHEN f.was_at >= f.fresh THEN f.was_at ELSE f.was_mark END AS stands
                  FROM (SELECT m.*, ids[m.name + 1] AS target,
                               step_reactions[m.step + 1] AS reaction, rules[m.step + 1] AS rule,
                               step_to[m.step + 1] AS ends,
                               -- the first event that is not read again
                               CASE WHEN m.begins > rereads[m.step + 1] THEN m.begins
                                    WHEN m.final > rereads[m.step + 1]
                                    THEN (SELECT min(e.event)
                                            FROM unnest(event_marks, event_ids) AS e (mark, event)
                                           WHERE e.mark = m.place - 1
                                             AND e.event > rereads[m.step + 1])
                                    END AS fresh,
                               s.at AS was_at, s.mark AS was_mark, s.priority AS was_priority,
                               greatest(s.at, -1,
                                        CASE WHEN rules[m.step + 1] = {rule_work}
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

            IF {rule_work} = ANY (rules) THEN
                -- Beyond its mark a subscription has none. ON CONFLICT would cost as much again.
                INSERT INTO weir.work (target, reaction, event)
                SELECT w.target, w.reaction, w.event
                  FROM (SELECT e.mark, e.event, ids[mark_names[e.mark + 1] + 1] AS target,
                               step_reactions[mark_steps[e.mark + 1] + 1] AS reaction
                          FROM unnest(event_marks, event_ids) AS e (mark, event)
                         WHERE e.event > floors[e.mark + 1] AND mark_rounds[e.mark + 1] = this_round
                           AND rules[mark_steps[e.mark + 1] + 1] = {rule_work}
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
