-- lease.sql - candidates in the three orders of leasing, each read from its index up to what is
-- taken. No order needs sorting and no statement reads a target that is blocked, paused, deferred
-- or idle. ?2: now, of the machine's clock; ?3: of the store's.

-- name: lease_lane_paused
SELECT paused FROM weir_lanes WHERE lane = ?1;

-- name: lease_by_priority
SELECT {lease_columns}
  FROM weir_targets INDEXED BY weir_targets_priority
 WHERE lane = ?1 AND {is_ready}
   AND {is_free}
 ORDER BY priority DESC, rank, id;

-- name: lease_by_rank
SELECT {lease_columns}
  FROM weir_targets INDEXED BY weir_targets_rank
 WHERE lane = ?1 AND {is_ready}
   AND {is_free}
 ORDER BY rank, id;

-- The same index, walked backwards.
-- name: lease_leading
SELECT {lease_columns}
  FROM weir_targets INDEXED BY weir_targets_rank
 WHERE lane = ?1 AND {is_ready}
   AND {is_free}
 ORDER BY rank DESC, id DESC;

-- name: lease_due
SELECT {lease_columns}
  FROM weir_targets INDEXED BY weir_targets_due
 WHERE lane = ?1 AND {has_due} AND due <= ?3
   AND {is_free}
 ORDER BY due, id;

-- name: lease_subscriptions
SELECT s.reaction, r.number, s.at, s.mark, s.retries, s.source, s.value
  FROM weir_subscriptions AS s
  JOIN weir_reactions AS r ON r.id = s.reaction
 WHERE s.target = ?1 AND s.at < s.mark AND r.retired = 0
 ORDER BY s.reaction;

-- name: lease_any_sent_back
SELECT 1 FROM weir_parked INDEXED BY weir_parked_sent_back WHERE sent_back = 1 LIMIT 1;

-- name: lease_sent_back
SELECT p.id, p.reaction, r.number, p.event, p.attempts
  FROM weir_parked AS p INDEXED BY weir_parked_sent_back
  JOIN weir_reactions AS r ON r.id = p.reaction
 WHERE p.target = ?1 AND p.sent_back = 1 AND r.retired = 0
 ORDER BY p.event, p.reaction;

-- `due` is in the indexes of leasing, so it is named only when there is one to unset.
-- name: lease_take
UPDATE weir_targets SET fence = ?2, holder = ?3, lease_until = ?4, lost = ?5 WHERE id = ?1;

-- name: lease_take_due
UPDATE weir_targets
   SET fence = ?2, holder = ?3, lease_until = ?4, lost = ?5, due = NULL
 WHERE id = ?1;

-- name: lease_block
UPDATE weir_targets
   SET held = 1, blocked = ?2, holder = NULL, lease_until = 0, lost = ?3, error = ?4, event = 0,
       reaction = 0, attempts = 0
 WHERE id = ?1;
