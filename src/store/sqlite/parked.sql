-- parked.sql - dead letters: listing them, sending them back, dropping them.

-- Each of these lists begins after id ?1; ?2 is the name of a target, ?3 that of a reaction.
-- name: parked_list
SELECT p.id, p.reaction, r.name, coalesce(t.name, ''), p.event, p.attempts, p.parked, p.error,
       p.sent_back
  FROM weir_parked AS p
  JOIN weir_reactions AS r ON r.id = p.reaction
  LEFT JOIN weir_targets AS t ON t.id = p.target
 WHERE p.id > ?1
 ORDER BY p.id;

-- name: parked_by_target
SELECT p.id, p.reaction, r.name, t.name, p.event, p.attempts, p.parked, p.error, p.sent_back
  FROM weir_targets AS t
 CROSS JOIN weir_parked AS p ON p.target = t.id
 CROSS JOIN weir_reactions AS r ON r.id = p.reaction
 WHERE t.name = ?2 AND p.id > ?1
 ORDER BY p.id;

-- name: parked_by_reaction
SELECT p.id, p.reaction, r.name, coalesce(t.name, ''), p.event, p.attempts, p.parked, p.error,
       p.sent_back
  FROM weir_reactions AS r
 CROSS JOIN weir_parked AS p INDEXED BY weir_parked_reaction ON p.reaction = r.id
  LEFT JOIN weir_targets AS t ON t.id = p.target
 WHERE r.name = ?3 AND p.id > ?1
 ORDER BY p.id;

-- name: parked_read
SELECT target, sent_back FROM weir_parked WHERE id = ?1;

-- name: parked_send_back
UPDATE weir_parked SET sent_back = 1 WHERE id = ?1;

-- name: parked_drop
DELETE FROM weir_parked WHERE id = ?1;
