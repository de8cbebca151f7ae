-- operate.sql - what operators change on targets.

-- name: operate_target
SELECT blocked IS NOT NULL, due IS NOT NULL, paused, behind, override, error, event, reaction,
       attempts
  FROM weir_targets
 WHERE id = ?1;

-- name: operate_pause
UPDATE weir_targets
   SET paused = ?2, paused_by = ?3, held = (blocked IS NOT NULL OR ?2)
 WHERE id = ?1;

-- name: operate_prioritize
UPDATE weir_targets SET override = ?2 WHERE id = ?1;

-- Subscriptions that lie above ?2, or above where their reaction began, and what they become. No
-- position is beyond what was routed of a log that ends at ?3, unless the log has lost its end: then
-- it is repaired. A mark that its position has passed says nothing: any event that was routed may be
-- one for it.
-- name: reset_subscriptions
WITH bounded AS (
    SELECT s.reaction, s.at, s.mark, d.rule, r.since,
           min(?3, max(r.routed, r.reread_to)) AS routed
      FROM weir_subscriptions AS s
      JOIN weir_reactions AS r ON r.id = s.reaction
      JOIN weir_definitions AS d ON d.reaction = r.id AND d.number = r.number
     WHERE s.target = ?1
), moved AS (
    SELECT *, min(at, max(min(?2, routed), since)) AS new_at FROM bounded
), marked AS (
    SELECT *, max(new_at, CASE WHEN at > mark THEN routed ELSE min(mark, routed) END) AS new_mark
      FROM moved
)
SELECT reaction, new_at, new_mark, rule = {rule_work} AND at > new_at
  FROM marked
 WHERE at > new_at OR mark <> new_mark
 ORDER BY reaction;

-- Whether there is something to clear on a target: see clear_target, clear_retries, clear_lease.
-- name: reset_to_clear
SELECT holder IS NOT NULL OR blocked IS NOT NULL OR due IS NOT NULL OR lost <> 0 OR error <> ''
       OR event <> 0 OR reaction <> 0 OR attempts <> 0
       OR EXISTS (SELECT 1 FROM weir_subscriptions WHERE target = ?1 AND retries <> 0)
  FROM weir_targets
 WHERE id = ?1;

-- name: reset_at
UPDATE weir_subscriptions SET at = ?3, mark = ?4 WHERE target = ?1 AND reaction = ?2;

-- name: reset_work
UPDATE weir_subscriptions
   SET at = ?3, mark = ?3, was_reset = 1
 WHERE target = ?1 AND reaction = ?2;

-- name: reset_work_rows
DELETE FROM weir_work WHERE target = ?1 AND reaction = ?2;

-- name: reset_reread
UPDATE weir_reactions
   SET reread_to = min(?3, max(reread_to, routed)), routed = min(routed, ?2)
 WHERE id = ?1
RETURNING reread_to;

-- name: reset_not_reset
UPDATE weir_subscriptions SET was_reset = 0 WHERE reaction = ?1 AND was_reset = 1;

-- The first event at or above a position: created grows with it.
-- name: reset_probe
SELECT id, created FROM weir_events WHERE id >= ?1 ORDER BY id LIMIT 1;

-- name: skip_subscriptions
SELECT s.reaction, s.at, s.mark, s.retries, s.value
  FROM weir_subscriptions AS s
  JOIN weir_reactions AS r ON r.id = s.reaction
 WHERE s.target = ?1 AND s.at < s.mark AND r.retired = 0
 ORDER BY s.reaction;

-- name: skip_sent_back
SELECT p.event, p.reaction, p.attempts
  FROM weir_parked AS p INDEXED BY weir_parked_sent_back
  JOIN weir_reactions AS r ON r.id = p.reaction
 WHERE p.target = ?1 AND p.sent_back = 1 AND r.retired = 0
 ORDER BY p.event, p.reaction
 LIMIT 1;

-- name: skip_is_sent_back
SELECT 1
  FROM weir_parked AS p
  JOIN weir_reactions AS r ON r.id = p.reaction
 WHERE p.target = ?1 AND p.reaction = ?2 AND p.event = ?3 AND p.sent_back = 1 AND r.retired = 0;

-- Not beyond the mark: an event that was sent back may lie there after a reset, and what is before
-- it has yet to come.
-- name: skip_advance
UPDATE weir_subscriptions
   SET at = ?3
 WHERE target = ?1 AND reaction = ?2 AND at < ?3 AND mark >= ?3;

-- name: skip_work_rows
DELETE FROM weir_work WHERE target = ?1 AND reaction = ?2 AND event <= ?3;
