-- settle.sql - what the holder of a lease writes, and what takes it off again.

-- name: fenced_read
SELECT fence, holder IS NOT NULL FROM weir_targets WHERE id = ?1;

-- at <= mark always: a position beyond the mark takes the mark with it.
-- name: settle_advance
UPDATE weir_subscriptions
   SET at = ?3, mark = max(mark, ?3), retries = 0
 WHERE target = ?1 AND reaction = ?2;

-- name: settle_work_done
DELETE FROM weir_work WHERE target = ?1 AND reaction = ?2 AND event <= ?3;

-- name: settle_not_lost
UPDATE weir_targets SET lost = 0 WHERE id = ?1 AND lost <> 0;

-- name: settle_no_error
UPDATE weir_targets
   SET error = '', event = 0, reaction = 0, attempts = 0
 WHERE id = ?1 AND (error <> '' OR event <> 0 OR reaction <> 0);

-- name: settle_parked_done
DELETE FROM weir_parked WHERE id = ?1 AND target = ?2 AND sent_back = 1;

-- name: settle_retry
UPDATE weir_subscriptions
   SET retries = retries + 1
 WHERE target = ?1 AND reaction = ?2
RETURNING retries;

-- name: settle_failed
UPDATE weir_targets SET error = ?2, event = ?3, reaction = ?4, attempts = ?5 WHERE id = ?1;

-- What most settles are: progress, and the end of the lease or more of it. The second when what
-- leasing goes by has moved.
-- name: settle_end
UPDATE weir_targets
   SET holder = CASE WHEN ?2 THEN holder END, lease_until = ?3, lost = ?4, watermark = ?5
 WHERE id = ?1;

-- name: settle_end_moved
UPDATE weir_targets
   SET holder = CASE WHEN ?2 THEN holder END, lease_until = ?3, lost = ?4, watermark = ?5,
       behind = ?6, rank = ?7, priority = ?8
 WHERE id = ?1;

-- name: end_release
UPDATE weir_targets SET holder = NULL, lease_until = 0 WHERE id = ?1;

-- name: end_keep
UPDATE weir_targets SET lease_until = ?2 WHERE id = ?1;

-- name: end_defer
UPDATE weir_targets SET holder = NULL, lease_until = 0, due = ?2 WHERE id = ?1;

-- name: end_block
UPDATE weir_targets SET holder = NULL, lease_until = 0, held = 1, blocked = ?2 WHERE id = ?1;

-- name: clear_target
UPDATE weir_targets
   SET blocked = NULL, held = paused, due = NULL, lost = 0, error = '', event = 0, reaction = 0,
       attempts = 0
 WHERE id = ?1;

-- name: clear_retries
UPDATE weir_subscriptions SET retries = 0 WHERE target = ?1 AND retries <> 0;

-- name: clear_lease
UPDATE weir_targets SET fence = fence + 1, holder = NULL, lease_until = 0 WHERE id = ?1;

-- name: park_again
UPDATE weir_parked
   SET attempts = ?4, parked = ?5, error = ?6, sent_back = 0
 WHERE reaction = ?1 AND target = ?2 AND event = ?3;

-- name: park
INSERT INTO weir_parked (reaction, target, event, attempts, parked, error)
VALUES (?1, ?2, ?3, ?4, ?5, ?6);
