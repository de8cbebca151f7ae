-- turn_functions.sql - many leases end and others begin, in one transaction.
--
-- What must stay true:
--   * each lease that ends is judged as weir.settle judges it (settle_functions.sql): the fence in
--     the locked row decides. One that is refused is an answer, and the others go on;
--   * targets are locked in the order of their names, in a statement of their own, and everything
--     that depends on them is looked at in later ones; leasing waits for nobody, so nothing else is
--     waited for while they are held;
--   * the cost grows with the number of leases, not with its square: what is usual is in no list.
--     Lists that are searched hold what was refused or did not move.
--
-- The settings of the planner: see lease_functions.sql. Positions are written by INSERT ... ON
-- CONFLICT, which looks each one up whatever the statistics say; an UPDATE that is joined to a list
-- may read the whole table.

-- name: turn_functions
-- See TURN in store.h. The advances of all settles are in one list, each with its target. The
-- answer has the columns of weir.lease: first a row of kind 0 for each settle, by target, with its
-- status as first_number and whether there is more for it (1, 0) as second_number; then what was
-- leased.
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
{writing}
{in_index_order}
AS $$
DECLARE
    refused bigint[];            -- targets whose settle writes nothing, with
    statuses bigint[];           -- the reason
    moved_targets bigint[];      -- subscriptions that advanced
    moved_reactions bigint[];
    moved_to bigint[];
    unmoved bigint[] := '{}';    -- targets of which none did
    with_work bigint[];          -- reactions that may have work rows
    retired bigint[];
    paused_lanes text[];
    last bigint;                 -- the end of the log
    this_log bigint;
BEGIN
    PERFORM weir.commit_durably();
    -- name || '': sorted, not read in the order of the index on names, which would read all.
    PERFORM 1
       FROM weir.targets AS t
      WHERE t.id = ANY (settle_targets)
      ORDER BY t.name || ''
        FOR NO KEY UPDATE;

    this_log := weir.log();
    SELECT coalesce(array_agg(j.target), '{}'), array_agg(j.status)
      INTO refused, statuses
      FROM (SELECT u.target,
                   CASE WHEN t.fence IS NULL THEN {status_notfound}
                        WHEN t.fence IS DISTINCT FROM u.fence OR t.holder IS NULL OR t.log <> this_log
                            OR (u.token <> 0 AND t.token <> u.token) THEN {status_lost}
                        ELSE 0 END AS status
              FROM unnest(settle_targets, settle_fences, settle_tokens)
                   AS u (target, fence, token)
              LEFT JOIN LATERAL (SELECT x.fence, x.token, x.log, x.holder FROM weir.targets AS x
                                  WHERE x.id = u.target LIMIT 1) AS t ON true) AS j
     WHERE j.status <> 0;
    SELECT refused || array_agg(m.target), statuses || array_agg({status_notfound}::bigint)
      INTO refused, statuses
      FROM (SELECT DISTINCT a.target
              FROM unnest(advance_targets, advance_reactions) AS a (target, reaction)
             -- Nor does anything move whose lease is not among those that end.
             WHERE ((SELECT true FROM weir.subscriptions AS s
                      WHERE s.target = a.target AND s.reaction + 0 = a.reaction LIMIT 1) IS NULL
                    OR (a.target IN (SELECT unnest(settle_targets))) IS NOT TRUE)
               AND a.target <> ALL (refused)) AS m;
    -- There is no such position in this log: as in weir.settle.
    last := weir.log_end();
    IF (last >= ALL (advance_to)) IS NOT TRUE THEN
        SELECT refused || array_agg(m.target), statuses || array_agg({status_lost}::bigint)
          INTO refused, statuses
          FROM (SELECT DISTINCT a.target
                  FROM unnest(advance_targets, advance_to) AS a (target, to_position)
                 WHERE (a.to_position <= last) IS NOT TRUE AND a.target <> ALL (refused)) AS m;
    END IF;

    -- at <= mark always: a position beyond the mark takes the mark with it.
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

    -- Only reactions whose rule is WORK have work rows, or had it once.
    with_work := ARRAY(SELECT d.reaction
                         FROM weir.definitions AS d
                        WHERE d.reaction = ANY (ARRAY(SELECT DISTINCT u.reaction
                                                        FROM unnest(moved_reactions)
                                                             AS u (reaction)))
                          AND d.rule = {rule_work});
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

    -- Not by counting: one target may move by several reactions.
    unmoved := CASE WHEN moved_targets IS NULL THEN settle_targets
                    WHEN cardinality(settle_targets) = 1 THEN '{}'
                    ELSE ARRAY(SELECT u.target FROM unnest(settle_targets) AS u (target)
                                WHERE u.target <> ALL (moved_targets)) END;
    retired := ARRAY(SELECT r.id FROM weir.reactions AS r WHERE r.retired);
    paused_lanes := ARRAY(SELECT l.lane FROM weir.lanes AS l WHERE l.paused);
    -- What weir.derived gives, and the end of the leases, in the same update.
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
