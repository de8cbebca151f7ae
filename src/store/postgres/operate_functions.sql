-- operate_functions.sql - what operators change: targets, lanes, dead letters, snapshots.
--
-- What must stay true:
--   * the filter "blocked" and the predicate of the verb hold at the moment of the change: both are
--     asked again when the rows are locked;
--   * whoever moves a position here takes the lease away (fence + 1), so that no holder can write
--     as if it had not moved;
--   * the rows of targets are locked in the order of their names, reactions before them, in the
--     order of their ids; what derives from a locked row is read in a later statement.
--
-- One call changes at most a few thousand targets: the client goes on from name to name.
-- lock_timeout and the planner's settings: see settle_functions.sql. LATERAL with a LIMIT, and + 0:
-- from targets to their subscriptions to the reactions, never the other way, in which a reaction
-- leads to a million subscriptions, also when the plan was made while the tables were empty.

-- name: operate_functions
-- Locks those of the targets that the filter still accepts; gives their ids.
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

-- Takes everything off targets that says they failed: block, due, error, retries, lost. With `take`
-- their leases as well, so that the holder's next write is refused.
CREATE OR REPLACE FUNCTION weir.clear_targets(the_targets bigint[], take boolean) RETURNS void
LANGUAGE plpgsql VOLATILE
{by_index}
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

-- UNBLOCK, PRIORITIZE, PAUSE, RESUME: how many targets it changed. new_override
-- NULL: back to what the reactions declare.
CREATE OR REPLACE FUNCTION weir.operate(
    verb integer, the_targets bigint[], only_blocked boolean, new_override bigint, paused_by text)
RETURNS bigint
{writing}
{by_index}
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
                             WHEN {verb_unblock} THEN (t.blocked IS NOT NULL OR t.due IS NOT NULL)
                                 AND NOT weir.is_passed(t.blocked, t.reaction, t.event, t.attempts)
                             WHEN {verb_prioritize} THEN t.override IS DISTINCT FROM new_override
                             WHEN {verb_pause} THEN NOT t.paused
                             WHEN {verb_resume} THEN t.paused
                             END);
    IF verb = {verb_unblock} THEN
        PERFORM weir.clear_targets(changing, false);
    ELSIF verb = {verb_prioritize} THEN
        UPDATE weir.targets AS t SET override = new_override WHERE t.id = ANY (changing);
    ELSE
        UPDATE weir.targets AS t
           SET paused = (verb = {verb_pause}),
               paused_by = CASE WHEN verb = {verb_pause} THEN operate.paused_by ELSE '' END,
               held = (t.blocked IS NOT NULL OR verb = {verb_pause})
         WHERE t.id = ANY (changing);
    END IF;
    PERFORM weir.derive(changing);
    RETURN cardinality(changing);
END
$$;

-- RESET: how many targets it changed. Subscriptions that lie above the position, or above where
-- their reaction began, go back to it; the others stay. No position is beyond what was routed of the
-- log, unless the log has lost its end: then it is repaired, and so is its mark. A mark that its
-- position has passed says nothing: any event that was routed may be one for it. Every target is
-- cleared. Events that only the
-- router finds (rule WORK) have to be routed again: their reactions are locked first, and since which
-- these are is known only when the targets are locked, a subscription that turned up in between makes
-- the call start again (40001).
CREATE OR REPLACE FUNCTION weir.operate_reset(
    the_targets bigint[], only_blocked boolean, to_position bigint)
RETURNS bigint
{writing}
{by_index}
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
         WHERE x.rule = {rule_work} AND s.at > greatest(least(to_position, x.routed, log_end), x.since));
    PERFORM 1
       FROM weir.reactions AS r
      WHERE r.id = ANY (routed_again)
      ORDER BY r.id
        FOR NO KEY UPDATE;
    locked := weir.lock_accepted(the_targets, only_blocked);
    log_end := weir.log_end(); -- their marks do not move any more

    SELECT array_agg(s.target), array_agg(s.reaction), array_agg(a.new_at), array_agg(a.new_mark),
           array_agg(x.rule = {rule_work} AND s.at > a.new_at)
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
        -- Nothing was routed yet, so there is nothing to read again.
        UPDATE weir.subscriptions AS s
           SET was_reset = false
          FROM weir.reactions AS r
         WHERE r.id = ANY (routed_again) AND r.reread_to = 0
           AND s.reaction = r.id AND s.was_reset;
    END IF;
    -- Moved, or with something to clear: see weir.clear_targets.
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

-- Everything that the choice of the event to skip depends on, as one text: a client that has chosen
-- says what it saw, and is told to choose again when it is no longer so.
CREATE OR REPLACE FUNCTION weir.skip_state(the_target bigint) RETURNS text
LANGUAGE plpgsql STABLE
{by_index}
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

-- SKIP: one event for each target, chosen by the client on what weir.skip_state told it. Gives the
-- targets that it changed; of the others the client has to choose again. They must be blocked
-- still, if that was asked for: weir.skip_state says so.
CREATE OR REPLACE FUNCTION weir.operate_skip(
    the_targets bigint[], states text[], the_reactions bigint[], the_events bigint[],
    the_attempts bigint[])
RETURNS SETOF bigint
{writing}
{by_index}
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
    -- Not beyond the mark: an event that was sent back may lie there after a reset, and what is
    -- before it has yet to come.
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

-- The position before the first event created at or after a time. Positions and times of creation
-- grow together, but for appends that ran side by side: the first guess is by halves, and then the
-- events before it are looked at, a slice at a time, until a slice has none that is late.
CREATE OR REPLACE FUNCTION weir.position_of_time(time_us bigint) RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
{looked_up}
AS $$
DECLARE
    -- A bound far outside of what is stored is as good as one just outside.
    wanted timestamptz := CASE WHEN time_us > 253402300799999999 THEN 'infinity'::timestamptz
                               WHEN time_us < -62135596800000000 THEN '-infinity'::timestamptz
                               ELSE 'epoch'::timestamptz
                                    + (time_us / 1000000) * interval '1 second'
                                    + (time_us % 1000000) * interval '1 microsecond' END;
    low bigint := 1; -- the first such event, or one after the last
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

-- Pauses or resumes a lane by its own row; whether it did.
CREATE OR REPLACE FUNCTION weir.lane_pause(the_lane text, pause boolean, who text) RETURNS boolean
{writing}
AS $$
BEGIN
    PERFORM weir.commit_durably();
    PERFORM weir.check_names('lane', ARRAY[the_lane], true);
    PERFORM weir.check_names('name', array_remove(ARRAY[who], ''), true);
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

-- Sends a parked event back to its reaction; whether it was not so before.
CREATE OR REPLACE FUNCTION weir.parked_retry(the_parked bigint) RETURNS boolean
{writing}
AS $$
DECLARE
    its_target bigint;
BEGIN
    PERFORM weir.commit_durably();
    SELECT p.target INTO its_target FROM weir.parked AS p WHERE p.id = the_parked;
    IF its_target = 0 THEN
        RAISE EXCEPTION 'parked event % was parked while routing and has no target', the_parked
            USING ERRCODE = {error_misuse};
    END IF;
    PERFORM 1 FROM weir.targets AS t WHERE t.id = its_target FOR NO KEY UPDATE;
    IF NOT EXISTS (SELECT 1 FROM weir.parked AS p WHERE p.id = the_parked) THEN
        RAISE EXCEPTION 'no parked event with id %', the_parked USING ERRCODE = {error_notfound};
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
{writing}
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
        RAISE EXCEPTION 'no parked event with id %', the_parked USING ERRCODE = {error_notfound};
    END IF;
    IF was_sent_back THEN
        PERFORM weir.derive(ARRAY[its_target]);
    END IF;
END
$$;

-- Kept when its version is not lower than the one kept, or the revision differs.
CREATE OR REPLACE FUNCTION weir.snapshot_put(
    the_stream text, the_version bigint, the_revision text, the_data bytea)
RETURNS void
{writing}
AS $$
BEGIN
    PERFORM weir.commit_durably();
    PERFORM weir.check_names('stream', ARRAY[the_stream], false);
    -- A stream that is not there has no version.
    IF (the_version BETWEEN 0 AND (SELECT e.version FROM weir.events AS e
                                    WHERE e.stream = the_stream
                                    ORDER BY e.version DESC LIMIT 1)) IS NOT TRUE THEN
        RAISE EXCEPTION 'stream "%" has no version %', the_stream, the_version
            USING ERRCODE = {error_invalid};
    END IF;
    INSERT INTO weir.snapshots AS k (stream, version, revision, data)
    VALUES (the_stream, the_version, the_revision, the_data)
        ON CONFLICT (stream) DO UPDATE
           SET version = excluded.version, revision = excluded.revision, data = excluded.data
         WHERE excluded.version >= k.version OR excluded.revision <> k.revision;
END
$$;

-- Drops the snapshots of a category ('': of all streams) whose revision is another one; how many. A
-- category is the names that are it, or begin with it and a '-' (the byte before '.').
CREATE OR REPLACE FUNCTION weir.snapshot_drop(category text, keep_revision text) RETURNS bigint
{writing}
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
