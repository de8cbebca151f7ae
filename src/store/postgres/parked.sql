-- parked.sql - dead letters: listing them, sending them back, dropping them.

-- Each of these lists begins after id $1 and gives $2 rows at most; $3 is the name of a target or
-- of a reaction.
-- name: parked_list
SELECT p.id, p.reaction, r.name, t.name, p.event, p.attempts, p.parked, p.error, p.sent_back
  FROM weir.parked AS p
  JOIN weir.reactions AS r ON r.id = p.reaction
  LEFT JOIN weir.targets AS t ON t.id = p.target
 WHERE p.id > $1
 ORDER BY p.id
 LIMIT $2;

-- $4: of this reaction alone; '': of any.
-- name: parked_by_target
SELECT p.id, p.reaction, r.name, t.name, p.event, p.attempts, p.parked, p.error, p.sent_back
  FROM weir.targets AS t
  JOIN weir.parked AS p ON p.target = t.id
  JOIN weir.reactions AS r ON r.id = p.reaction
 WHERE t.name = $3 AND p.id > $1 AND ($4 = '' OR r.name = $4)
 ORDER BY p.id
 LIMIT $2;

-- name: parked_by_reaction
SELECT p.id, p.reaction, r.name, t.name, p.event, p.attempts, p.parked, p.error, p.sent_back
  FROM weir.reactions AS r
  JOIN weir.parked AS p ON p.reaction = r.id
  LEFT JOIN weir.targets AS t ON t.id = p.target
 WHERE r.name = $3 AND p.id > $1
 ORDER BY p.id
 LIMIT $2;

-- name: parked_retry
SELECT weir.parked_retry($1);

-- name: parked_drop
SELECT weir.parked_drop($1);
