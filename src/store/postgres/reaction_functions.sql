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
-- Brings behind, watermark, rank and priority of these targets in step with their subscriptions and
-- sent-back events. Pre: the caller has locked their rows (FOR NO KEY UPDATE or by an UPDATE) in an
-- EARLIER statement of the transaction. Rows that are right already are not written; of the others
-- PostgreSQL rewrites index entries only when an indexed value differs, and the watermark is in no
-- index: most settles are HOT updates. Ids may repeat; ids of no target are ignored.
CREATE OR REPLACE FUNCTION weir.derive(target_ids bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    UPDATE weir.targets AS t
       SET behind = d.behind,
           watermark = d.watermark,
           rank = d.watermark >> 10,
           priority = coalesce(t.override, d.priority, 0)
      FROM unnest(target_ids) AS u (id)
     CROSS JOIN LATERAL (
           SELECT coalesce(bool_or(s.at < s.mark), false)
                      OR EXISTS (SELECT 1
                                   FROM weir.parked AS p
                                   JOIN weir.reactions AS q ON q.id = p.reaction
                                  WHERE p.target = u.id AND p.sent_back AND NOT q.retired)
                      AS behind,
                  coalesce(min(s.at) FILTER (WHERE s.at < s.mark), max(s.at), 0) AS watermark,
                  max(s.priority) AS priority
             FROM weir.subscriptions AS s
             JOIN weir.reactions AS r ON r.id = s.reaction
            WHERE s.target = u.id AND NOT r.retired) AS d
     WHERE t.id = u.id
       AND (t.behind <> d.behind OR t.watermark <> d.watermark
            OR t.priority <> coalesce(t.override, d.priority, 0));
END
$$;
