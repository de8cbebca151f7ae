-- reaction_functions.sql - reactions, and what a target's row says about its subscriptions.
--
-- What must stay true:
--   * behind, watermark, rank and priority of every target are, at every commit, what weir.derive
--     computes: leasing reads nothing else, so a target whose row is wrong is either leased for
--     nothing or never again;
--   * weir.derive runs in a statement after the one that locked the targets' rows. A statement that
--     waits for a row and computes in the same breath reads the row again when it gets it, but not
--     the subscriptions: wake-ups were lost that way;
--   * a reaction's row is locked before the rows of its targets, whoever changes which of its
--     subscriptions count;
--   * several targets are locked in the order of their names.
--
-- Plans. These functions run with settings of their own: the plan is made once for a session,
-- perhaps when the tables are empty and nobody has analyzed them, and it has to be right when they
-- hold a million rows: index lookups, nested loops. jit is off because a path that is discouraged,
-- and used all the same, looks expensive enough to be compiled.

-- name: reaction_functions
-- What the row of a target should say. A function so that it is written once; the planner puts its
-- body in the place of the call. `+ 0`: by target, not by reaction, which may have a million.
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

-- Brings behind, watermark, rank and priority of these targets in step with their subscriptions and
-- sent-back events. Pre: the caller has locked their rows (FOR NO KEY UPDATE or by an UPDATE) in an
-- EARLIER statement of the transaction. Rows that are right already are not written; of the others
-- PostgreSQL rewrites index entries only when an indexed value differs, and the watermark is in no
-- index: most settles are HOT updates. Ids may repeat; ids of no target are ignored.
-- Nothing is joined to the array: a plan that was made on empty tables may read all targets, or all
-- subscriptions, once for each of its elements.
CREATE OR REPLACE FUNCTION weir.derive(target_ids bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE
{by_index_unkept}
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

-- Locks all targets of a reaction, then derives them. Pre: the reaction's row is locked, so that no
-- subscription of it can be added meanwhile.
CREATE OR REPLACE FUNCTION weir.derive_reaction(of_reaction bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
{by_index_unkept}
AS $$
DECLARE
    ids bigint[];
BEGIN
    SELECT array_agg(s.target) INTO ids FROM weir.subscriptions AS s
     WHERE s.reaction = of_reaction;
    -- name || '': sorted, not read in the order of the index on names, which would read all.
    PERFORM FROM weir.targets AS t WHERE t.id = ANY (ids) ORDER BY t.name || ''
        FOR NO KEY UPDATE;
    PERFORM weir.derive(ids);
END
$$;

-- See DECLARE in store.h. names: NULL for all. since: where a reaction begins that nobody has seen
-- before. `given` is the number of the definition that was asked for; `changed` whether anything
-- was written; the rest as the client lists reactions (reactions.sql).
CREATE OR REPLACE FUNCTION weir.declare(
    its_name text, given_names text[], given_source text, given_rule integer, given_text text,
    begins bigint, again boolean, given_attempts bigint)
RETURNS TABLE (
    given bigint, changed boolean, id bigint, name text, number bigint, since bigint,
    routed bigint, reread_to bigint, retired boolean, router text, router_until bigint,
    router_fence bigint, names text, source text, rule integer, rule_text text, attempts bigint)
{writing}
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
    IF (given_rule BETWEEN {rule_constant} AND {rule_work}) IS NOT TRUE THEN
        RAISE EXCEPTION 'rule % of reaction "%" is none', given_rule, its_name
            USING ERRCODE = {error_invalid};
    END IF;
    IF (octet_length(given_text) <= {rule_text_bytes} AND given_attempts >= 0
        AND given_text COLLATE "C" !~ '[\u0001-\u001f\u007f-\u009f]') IS NOT TRUE THEN
        RAISE EXCEPTION 'the target or the attempts of reaction "%" cannot be kept', its_name
            USING ERRCODE = {error_invalid},
                  HINT = 'A target has 0 to 1,024 bytes without control characters; attempts are '
                         'not negative.';
    END IF;
    PERFORM weir.source_matches(given_source, ''); -- raises if it is a pattern that cannot be
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
        -- As weir__start_check says it.
        IF (begins BETWEEN 0 AND weir.log_end()) IS NOT TRUE THEN
            RAISE EXCEPTION 'it cannot begin at %, the log ends at %: write from: start, from: now '
                            'or a position up to %', begins, weir.log_end(), weir.log_end()
                USING ERRCODE = {error_invalid};
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
    -- A new reaction has no definition yet. A retired one has nobody whose definition could be
    -- newer: it comes back as declared.
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
{writing}
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
        RAISE EXCEPTION 'no reaction "%"', its_name USING ERRCODE = {error_notfound};
    END IF;
    IF NOT was_retired THEN
        UPDATE weir.reactions AS r SET retired = true WHERE r.id = reaction_id;
        PERFORM weir.derive_reaction(reaction_id);
    END IF;
END
$$;

-- Takes, renews or (lease_us 0) gives back routers' leases: see ROUTER_LEASE in store.h. One row
-- for each item, in their order; fence 0: it is another's.
CREATE OR REPLACE FUNCTION weir.router_lease(
    by_holder text, lease_us bigint, reaction_ids bigint[], held_fences bigint[])
RETURNS TABLE (fence bigint, until bigint)
{writing}
AS $$
DECLARE
    started bigint;
    r record;
    ours boolean;
BEGIN
    PERFORM weir.commit_durably();
    {check_holder}
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
                until := CASE {lease_from_started} END;
                UPDATE weir.reactions AS l
                   SET router = by_holder, router_until = until, router_fence = fence
                 WHERE l.id = r.id;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
