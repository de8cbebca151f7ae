-- derive.sql - what a target's row says about its subscriptions, kept in step by derive.c.

-- A row for each subscription, one without where there is none; the target's own columns in each.
-- name: target_load
SELECT t.fence, t.holder IS NOT NULL, t.lost,
       t.error <> '' OR t.event <> 0 OR t.reaction <> 0,
       t.paused OR coalesce((SELECT l.paused FROM weir_lanes AS l WHERE l.lane = t.lane), 0),
       t.behind, t.watermark, t.priority, t.override,
       EXISTS (SELECT 1
                 FROM weir_parked AS p
                 JOIN weir_reactions AS q ON q.id = p.reaction
                WHERE p.target = ?1 AND p.sent_back = 1 AND q.retired = 0),
       EXISTS (SELECT 1 FROM weir_work AS w WHERE w.target = ?1),
       s.reaction, s.at, s.mark, s.priority, r.retired
  FROM weir_targets AS t
  LEFT JOIN weir_subscriptions AS s ON s.target = t.id
  LEFT JOIN weir_reactions AS r ON r.id = s.reaction
 WHERE t.id = ?1;

-- name: derive_write
UPDATE weir_targets SET behind = ?2, watermark = ?3, rank = ?4, priority = ?5 WHERE id = ?1;

-- name: derive_watermark
UPDATE weir_targets SET watermark = ?2 WHERE id = ?1;
