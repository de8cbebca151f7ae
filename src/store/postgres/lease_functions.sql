-- lease_functions.sql - who may work on which targets, and when there will be something to do.
--
-- What must stay true:
--   * never more targets than asked for, under any plan: each arm is a MATERIALIZED subquery on the
--     base table with its own LIMIT, and nothing is joined to it. (UPDATE ... WHERE id IN (SELECT
--     ... LIMIT n FOR UPDATE SKIP LOCKED) may run its subquery once per row: LIMIT 5 took 41.);
--   * nobody waits: rows are locked with SKIP LOCKED or not at all. LIMIT stands above the locking,
--     so an arm that meets a locked row goes on to the next one;
--   * what was chosen is looked at again in a statement after the one that locked it. The locking
--     statement read the subscriptions in an older snapshot;
--   * a fence is handed out once: fence + 1 is committed durably before anyone sees it;
--   * lease columns (fence, holder, lease_until, lost) are in no index.
--
-- Plans: see reaction_functions.sql. Here sorting is discouraged as well, so that each arm walks
-- the index that has its order. `reaction + 0` keeps a lookup by target from becoming one by
-- reaction.

-- name: lease_functions
-- The next targets of a lane for one worker, with their work: see LEASE in store.h. Candidates are
-- the targets whose due time has passed, locked first, and those without one, walked in the order
-- of each step: 1 leading, 2 reserve, 3 priority. Each step takes the best of both. A step that
-- meets targets that lost too many leases blocks them and begins again.
-- One row for each subscription (kind 1) and each sent-back event (kind 2) of a leased target;
-- `first_number` is at or the id of the parked event, `second_number` mark or event,
-- `third_number` retries or attempts.
CREATE OR REPLACE FUNCTION weir.lease(
    of_lane text, by_holder text, lease_us bigint, wanted bigint, lead bigint, reserve bigint,
    known_reactions bigint[], known_numbers bigint[], all_reactions boolean, lost_max bigint)
RETURNS TABLE (
    leased bigint, leased_name text, leased_fence bigint, leased_token bigint,
    leased_until bigint, leased_watermark bigint, leased_priority bigint, leased_lost bigint, kind integer,
    of_reaction bigint, first_number bigint, second_number bigint, third_number bigint,
    work_source text, work_value text)
{as_owner}
{in_index_order}
AS $$
DECLARE
    started bigint;
    live bigint[];               -- known reactions, current and not retired
    considered bigint := 0;      -- targets whose due time has passed, so far
    due_ids bigint[] := '{}';    -- those that were locked
    found bigint[];              -- what an arm locked
    picked bigint[];
    outlived bigint[];           -- of the picked: lost too many leases
    chosen bigint[] := '{}';
    room bigint;                 -- how many the step may still take
    asked bigint;
    this_log bigint;
BEGIN
    PERFORM weir.commit_durably();
    {check_holder}
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

    -- Step 4 is step 3 once more, for who came away short: what others had locked and did not take
    -- is free again.
    FOR step IN 1..4 LOOP
        room := CASE step WHEN 1 THEN lead WHEN 2 THEN reserve ELSE wanted END;
        room := least(room, wanted - cardinality(chosen));
        CONTINUE WHEN room <= 0 AND step > 1;

        -- The first `wanted` by due time, whatever step takes them. Mostly there are none, and a
        -- glance is cheaper than to begin.
        IF step IN (1, 4) AND considered < wanted
            AND EXISTS (SELECT FROM weir.targets AS t
                         WHERE t.lane = of_lane AND {has_due} AND t.due <= started) THEN
            WITH arm AS MATERIALIZED (
                SELECT t.id
                  FROM weir.targets AS t
                 WHERE t.lane = of_lane AND {has_due} AND t.due <= started
                   AND {is_free}
                   AND t.id <> ALL (due_ids)
                   AND {has_live_work}
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
                    {ready_targets}
                     ORDER BY t.rank DESC, t.id DESC
                     LIMIT asked
                       FOR NO KEY UPDATE OF t SKIP LOCKED)
                SELECT array_agg(arm.id) INTO found FROM arm;
            ELSIF step = 2 THEN
                WITH arm AS MATERIALIZED (
                    {ready_targets}
                     ORDER BY t.rank, t.id
                     LIMIT asked
                       FOR NO KEY UPDATE OF t SKIP LOCKED)
                SELECT array_agg(arm.id) INTO found FROM arm;
            ELSE
                WITH arm AS MATERIALIZED (
                    {ready_targets}
                     ORDER BY t.priority DESC, t.rank, t.id
                     LIMIT asked
                       FOR NO KEY UPDATE OF t SKIP LOCKED)
                SELECT array_agg(arm.id) INTO found FROM arm;
            END IF;
            EXIT WHEN found IS NULL AND due_ids = '{}';

            -- Under the lock, in a new snapshot: what is still there, the best of both first.
            SELECT coalesce(array_agg(c.id), '{}'), array_agg(c.id) FILTER (WHERE c.outlived)
              INTO picked, outlived
              FROM (SELECT t.id,
                           t.holder IS NOT NULL AND lost_max > 0 AND t.lost + 1 >= lost_max
                               AS outlived
                      FROM weir.targets AS t
                     WHERE t.id = ANY (due_ids || found) AND t.id <> ALL (chosen)
                       AND t.behind AND NOT t.held AND (t.due IS NULL OR t.due <= started)
                       AND {is_free}
                       AND {has_live_work}
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
            -- A full arm of which something was refused under the lock: there may be more.
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
               lease_until = CASE {lease_from_started} END,
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

-- What a process needs to know to sleep well, for one lane or ('') all of them. A target that is
-- ready by the index and cannot be leased has a live lease: so the earliest end of one is looked
-- for only when nothing can be leased, among as many rows as there are live leases, and no index
-- has to follow what every lease changes.
CREATE OR REPLACE FUNCTION weir.poll(of_lane text)
RETURNS TABLE (
    now_us bigint, routed_least bigint, is_ready boolean, next_due bigint, lease_end bigint,
    router_end bigint)
{reading}
{in_index_order}
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
            WHERE t.lane = l.lane AND {has_due}
            ORDER BY t.due, t.id
            LIMIT 1) AS d ON true
      LEFT JOIN LATERAL (
           SELECT t.due
             FROM weir.targets AS t
            WHERE t.lane = l.lane AND {has_due}
              AND t.due > now_us
            ORDER BY t.due, t.id
            LIMIT 1) AS n ON true
      LEFT JOIN LATERAL (
           SELECT true AS free
             FROM weir.targets AS t
            WHERE t.lane = l.lane AND {is_ready}
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
                WHERE t.lane = l.lane AND {is_ready}
                  AND t.holder IS NOT NULL AND t.lease_until > now_us) AS e
         WHERE NOT l.paused AND (of_lane = '' OR l.lane = of_lane);
    END IF;
    RETURN NEXT;
END
$$;
