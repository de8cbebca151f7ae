-- derive.sql - what a target's row says about its subscriptions, kept in step by derive.c.

-- name: derive_read
SELECT t.behind, t.watermark, t.priority,
       coalesce(d.behind, 0)
           OR EXISTS (SELECT 1
                        FROM weir_parked AS p
                        JOIN weir_reactions AS r ON r.id = p.reaction
                       WHERE p.target = ?1 AND p.sent_back = 1 AND r.retired = 0),
       coalesce(d.least, d.greatest, 0),
       coalesce(t.override, d.priority, 0)
  FROM weir_targets AS t,
       (SELECT max(s.at < s.mark) AS behind,
               min(CASE WHEN s.at < s.mark THEN s.at END) AS least,
               max(s.at) AS greatest,
               max(s.priority) AS priority
          FROM weir_subscriptions AS s
          JOIN weir_reactions AS r ON r.id = s.reaction
         WHERE s.target = ?1 AND r.retired = 0) AS d
 WHERE t.id = ?1;

-- name: derive_write
UPDATE weir_targets SET behind = ?2, watermark = ?3, rank = ?4, priority = ?5 WHERE id = ?1;

-- name: derive_watermark
UPDATE weir_targets SET watermark = ?2 WHERE id = ?1;
