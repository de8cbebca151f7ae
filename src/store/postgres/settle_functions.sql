-- settle_functions.sql - the end of a lease: effects, positions and fence in one transaction; and
-- the smaller verbs that name a fence.
--
-- What must stay true:
--   * nothing is written for a target unless the lease given is the one in its row: the same fence,
--     the same token, taken on this log, and held by somebody. Fences begin again where a log was
--     cut off, so a fence alone says little; a token of 0 stands for any (store.h). Giving back is
--     allowed on another log as well. The clock has no say: an expired lease that nobody took is
--     still held. What decides is the look after the row was locked; the look before the effects
--     only saves work;
--   * the target's row is locked after everything else: a settle that waits for a busy stream holds
--     no target, and delays no router;
--   * the row is locked in a statement of its own, and weir.derived is asked in a later one;
--   * held is true exactly while the target is blocked or paused;
--   * what can be refused is refused before anything is inserted.
--
-- lock_timeout: a row that stays locked is an answer ("busy"), not a silence that leaves the client
-- without knowing what happened. The settings of the planner: see reaction_functions.sql. Where a
-- second index begins with the reaction, which may lead to a million rows, `+ 0` and the comparison
-- of rows leave only the one that begins with the target: a plan that was made while the tables were
-- empty does not know better.

-- name: settle_functions
-- Raises WR006 or WR011 unless what was found in the target's row is the lease with that fence and
-- token. found_fence NULL: no row.
CREATE OR REPLACE FUNCTION weir.check_lease(
    the_target bigint, the_fence bigint, the_token bigint,
    found_fence bigint, found_token bigint, found_log bigint, is_held boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF found_fence IS NULL THEN
        RAISE EXCEPTION 'no target with id %', the_target USING ERRCODE = {error_notfound};
    ELSIF found_fence IS DISTINCT FROM the_fence THEN
        RAISE EXCEPTION 'the lease is lost: fence %, the target is at %', the_fence, found_fence
            USING ERRCODE = {error_lost};
    ELSIF is_held IS NOT TRUE THEN
        RAISE EXCEPTION 'the lease is lost: nobody holds fence %', the_fence
            USING ERRCODE = {error_lost};
    ELSIF the_token <> 0 AND found_token <> the_token THEN
        RAISE EXCEPTION 'the lease is lost: fence % was taken again on this log', the_fence
            USING ERRCODE = {error_lost};
    ELSIF found_log <> weir.log() THEN
        RAISE EXCEPTION 'the lease is lost: fence % was taken on a log that was cut off',
            the_fence USING ERRCODE = {error_lost};
    END IF;
END
$$;

-- The last position there is. A caller that has handled one beyond it has read another log.
CREATE OR REPLACE FUNCTION weir.log_end() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(max(e.id), 0) FROM weir.events AS e
$$;

-- Refuses what is too long to be kept as the text of an error.
CREATE OR REPLACE FUNCTION weir.check_errors(texts text[]) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF EXISTS (SELECT FROM unnest(texts) AS u (error)
                WHERE (octet_length(u.error) <= {error_text_bytes}) IS NOT TRUE) THEN
        RAISE EXCEPTION 'the text of an error has 0 to % bytes', {error_text_bytes}
            USING ERRCODE = {error_invalid};
    END IF;
END
$$;

-- Sets events aside for reactions of a target whose row the caller has locked. One that is parked
-- already is parked anew, no longer sent back, and keeps its id.
CREATE OR REPLACE FUNCTION weir.park(
    the_targets bigint[], the_reactions bigint[], the_events bigint[], the_attempts bigint[],
    the_errors text[], now_us bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE
{by_index}
AS $$
BEGIN
    PERFORM weir.check_errors(the_errors);
    FOR i IN 1 .. cardinality(the_targets) LOOP
        -- Not an upsert: that would use up an id for every event that is parked again.
        UPDATE weir.parked AS p
           SET attempts = the_attempts[i], parked = now_us, error = the_errors[i],
               sent_back = false
         WHERE p.target = the_targets[i] AND p.reaction + 0 = the_reactions[i]
           AND p.event = the_events[i];
        IF NOT FOUND THEN
            IF NOT EXISTS (SELECT FROM weir.events AS e WHERE e.id = the_events[i]) THEN
                RAISE EXCEPTION 'no event with position %', the_events[i] USING ERRCODE = {error_notfound};
            END IF;
            INSERT INTO weir.parked (reaction, target, event, attempts, parked, error)
            VALUES (the_reactions[i], the_targets[i], the_events[i], the_attempts[i], now_us,
                    the_errors[i]);
        END IF;
    END LOOP;
END
$$;

-- Removes the work of a subscription up to a position.
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

-- Locks these targets in the order of their names. Ids of no target are passed over.
CREATE OR REPLACE FUNCTION weir.lock_targets(the_targets bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE
{by_index}
AS $$
DECLARE
    next_target bigint;
BEGIN
    IF cardinality(the_targets) = 1 THEN
        PERFORM 1 FROM weir.targets AS t WHERE t.id = the_targets[1] FOR NO KEY UPDATE;
        RETURN;
    END IF;
    -- One by one: sorted and locked in one statement, a plan may read all targets by their names.
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

-- SETTLE without effects: everything that concerns the target. ends: store_end. failure_reaction 0
-- with `fails`: blocked without a reaction to blame.
CREATE OR REPLACE FUNCTION weir.settle(
    the_target bigint, the_fence bigint, the_token bigint,
    advance_reactions bigint[], advance_to bigint[],
    park_reactions bigint[], park_events bigint[], park_attempts bigint[], park_errors text[],
    parked_done bigint[],
    fails boolean, failure_reaction bigint, failure_event bigint, failure_error text,
    ends integer, lease_us bigint, until_us bigint,
    OUT lease_end bigint, OUT is_behind boolean)
{writing}
{by_index}
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
        PERFORM weir.no_lists('the lists of a settle', {error_invalid});
    END IF;
    IF fails THEN
        PERFORM weir.check_errors(ARRAY[failure_error]);
    END IF;

    SELECT coalesce(w.reaction, 0) INTO missing -- NULL must not hide one that comes after it
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
            USING ERRCODE = {error_notfound};
    END IF;

    -- at <= mark always: a position beyond the mark takes the mark with it. A mark may itself lie
    -- beyond the end of the log: an older Weir could write such marks.
    IF cardinality(advance_reactions) > 0 THEN
        SELECT max(u.to_position) INTO furthest FROM unnest(advance_to) AS u (to_position);
        IF furthest > weir.log_end() THEN
            RAISE EXCEPTION 'the lease is lost: it was settled at %, beyond the end of the log (%)',
                furthest, weir.log_end() USING ERRCODE = {error_lost};
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

    lease_end := CASE WHEN ends <> {end_keep} THEN 0
                      WHEN lease_us > {forever} - now_us THEN {forever}
                      ELSE now_us + lease_us END;
    -- What weir.derive would write, in the same update: one new version of the row for each settle.
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
           holder = CASE WHEN ends = {end_keep} THEN t.holder END,
           lease_until = lease_end,
           due = CASE WHEN ends = {end_defer} THEN until_us ELSE t.due END,
           held = t.held OR ends = {end_block},
           blocked = CASE WHEN ends = {end_block} THEN now_us ELSE t.blocked END,
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

-- SETTLE with effects: those first, as weir.append_any judges them. Gives its rows, and last one with
-- append_index -1, the end of the lease and whether the target is behind. An effect that is refused
-- undoes all of it: its row is in the error's detail, what it names in the error's column, as
-- append_index|stream_index|position|last_version. So does a name that others hold.
CREATE OR REPLACE FUNCTION weir.settle_with(
    options integer, wait_ms integer, key_ttl bigint,
    {append_parameters},
    first_kind integer, first_name text,
    the_target bigint, the_fence bigint, the_token bigint,
    advance_reactions bigint[], advance_to bigint[],
    park_reactions bigint[], park_events bigint[], park_attempts bigint[], park_errors text[],
    parked_done bigint[],
    fails boolean, failure_reaction bigint, failure_event bigint, failure_error text,
    ends integer, lease_us bigint, until_us bigint)
RETURNS TABLE ({append_columns},
               lease_end bigint, is_behind boolean)
{as_owner}
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
        created, other IN
        SELECT a.*
          FROM weir.append_any(options, wait_ms, key_ttl, {append_arguments},
                               first_kind, first_name) AS a
         ORDER BY a.append_index, a.stream_index
    LOOP
        IF status <> 0 THEN
            RAISE EXCEPTION 'an effect of the settle was refused'
                USING ERRCODE = 'WR' || lpad((-status)::text, 3, '0'),
                      DETAIL = concat_ws('|', append_index, stream_index, coalesce("position", -1),
                                         coalesce(last_version, -1)),
                      COLUMN = coalesce(other, '');
        END IF;
        RETURN NEXT;
    END LOOP;
    SELECT -1, -1, 0, false, 0, 0, 0, NULL, '', s.lease_end, s.is_behind
      INTO append_index, stream_index, status, replayed, first_version, last_version, "position",
           created, other, lease_end, is_behind
      FROM weir.settle(the_target, the_fence, the_token, advance_reactions, advance_to,
                       park_reactions, park_events, park_attempts, park_errors, parked_done,
                       fails, failure_reaction, failure_event, failure_error, ends, lease_us,
                       until_us) AS s;
    RETURN NEXT;
END
$$;

-- EXTEND (lease_us >= 0) and RELEASE (lease_us < 0): an answer for each item, in the order given. A
-- lease that is released twice in one call is lost the second time. A release only says that nobody
-- works on the target any more, so it is accepted on any log.
CREATE OR REPLACE FUNCTION weir.fenced(
    the_targets bigint[], the_fences bigint[], the_tokens bigint[], lease_us bigint)
RETURNS TABLE (status integer, lease_end bigint)
{writing}
{by_index}
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
      ORDER BY t.name || '' -- sorted, not read in the order of the index on names: that reads all
        FOR NO KEY UPDATE;
    now_us := weir.clock_us();
    new_end := CASE WHEN lease_us < 0 THEN 0
                    WHEN lease_us > {forever} - now_us THEN {forever}
                    ELSE now_us + lease_us END;
    this_log := weir.log();
    -- LIMIT 1 keeps a lookup one: joined, a plan that was made on an empty table reads all of it.
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
    SELECT CASE WHEN i.fence IS NULL THEN {status_notfound}
                WHEN i.ours IS NOT TRUE THEN {status_lost}
                WHEN lease_us < 0 AND i.turn > 1 THEN {status_lost}
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
