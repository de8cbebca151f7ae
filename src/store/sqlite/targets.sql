-- targets.sql - targets, lanes and what a process needs to know to sleep well.

-- name: walk_all
SELECT id, name, lane, blocked IS NOT NULL FROM weir_targets WHERE name >= ?1 ORDER BY name;

-- name: walk_blocked
SELECT id, name, lane, 1
  FROM weir_targets INDEXED BY weir_targets_blocked
 WHERE blocked IS NOT NULL AND name >= ?1
 ORDER BY name;

-- name: walk_sources
SELECT source FROM weir_subscriptions WHERE target = ?1;

-- name: target_read
SELECT t.id, t.name, t.lane, t.priority, t.override IS NOT NULL, t.watermark, t.behind, t.fence,
       t.lost, t.holder, t.lease_until, t.due, t.blocked, t.error, t.event, r.name, t.attempts,
       t.paused, t.paused_by, l.paused
  FROM weir_targets AS t
  LEFT JOIN weir_lanes AS l ON l.lane = t.lane
  LEFT JOIN weir_reactions AS r ON r.id = t.reaction
 WHERE t.id = ?1;

-- name: target_subscriptions
SELECT s.reaction, r.name, s.source, s.value, s.at, s.mark, s.retries, s.priority, r.retired,
       max(r.routed, r.reread_to)
  FROM weir_subscriptions AS s
  JOIN weir_reactions AS r ON r.id = s.reaction
 WHERE s.target = ?1
 ORDER BY s.reaction;

-- Counted by state: leased, blocked, paused, retrying, deferred, ready, idle, the first that holds.
-- ?1: now, of the machine's clock; ?2: of the store's.
-- name: lane_list
SELECT l.lane, l.paused, l.paused_by, coalesce(c.targets, 0), coalesce(c.ready, 0),
       coalesce(c.leased, 0), coalesce(c.blocked, 0), coalesce(c.retrying, 0),
       coalesce(c.deferred, 0), coalesce(w.lag, 0),
       coalesce((SELECT created FROM weir_events WHERE id > w.least ORDER BY id LIMIT 1), 0)
  FROM weir_lanes AS l
  LEFT JOIN (SELECT lane,
                    count(*) AS targets,
                    sum(live) AS leased,
                    sum(NOT live AND stuck) AS blocked,
                    sum(NOT live AND NOT stuck AND NOT off AND later AND failed) AS retrying,
                    sum(NOT live AND NOT stuck AND NOT off AND later AND NOT failed) AS deferred,
                    sum(NOT live AND NOT stuck AND NOT off AND NOT later AND behind) AS ready
               FROM (SELECT t.lane, t.behind,
                            t.holder IS NOT NULL AND t.lease_until > ?1 AS live,
                            t.blocked IS NOT NULL AS stuck,
                            t.paused OR p.paused AS off,
                            t.due IS NOT NULL AND t.due > ?2 AS later,
                            t.event <> 0 AND t.error <> '' AS failed
                       FROM weir_targets AS t
                      CROSS JOIN weir_lanes AS p ON p.lane = t.lane)
              GROUP BY lane) AS c ON c.lane = l.lane
  LEFT JOIN (SELECT t.lane, max(s.mark - s.at) AS lag, min(s.at) AS least
               FROM weir_subscriptions AS s
               JOIN weir_reactions AS r ON r.id = s.reaction AND NOT r.retired
               JOIN weir_targets AS t ON t.id = s.target
              WHERE s.at < s.mark
              GROUP BY t.lane) AS w ON w.lane = l.lane
 ORDER BY l.lane;

-- name: lane_read
SELECT paused FROM weir_lanes WHERE lane = ?1;

-- name: lane_set
INSERT INTO weir_lanes (lane, paused, paused_by)
VALUES (?1, ?2, ?3)
    ON CONFLICT (lane) DO UPDATE SET paused = excluded.paused, paused_by = excluded.paused_by;

-- name: poll_lanes
SELECT lane, paused FROM weir_lanes WHERE ?1 = '' OR lane = ?1;

-- name: poll_ready
SELECT 1
  FROM weir_targets INDEXED BY weir_targets_rank
 WHERE lane = ?1 AND {is_ready}
   AND {is_free}
 LIMIT 1;

-- name: poll_due
SELECT 1
  FROM weir_targets INDEXED BY weir_targets_due
 WHERE lane = ?1 AND {has_due} AND due <= ?2
 LIMIT 1;

-- name: poll_due_next
SELECT due
  FROM weir_targets INDEXED BY weir_targets_due
 WHERE lane = ?1 AND {has_due} AND due > ?2
 ORDER BY due
 LIMIT 1;

-- name: poll_lease_end
SELECT lease_until
  FROM weir_targets INDEXED BY weir_targets_leased
 WHERE lane = ?1 AND holder IS NOT NULL AND lease_until > ?2
   AND {is_ready}
 ORDER BY lease_until
 LIMIT 1;

-- name: poll_routed
SELECT min(routed) FROM weir_reactions WHERE retired = 0;

-- name: poll_router_end
SELECT min(router_until) FROM weir_reactions WHERE router IS NOT NULL AND router_until > ?1;

-- name: stats_targets
SELECT (SELECT count(*) FROM weir_targets),
       (SELECT count(*) FROM weir_targets WHERE blocked IS NOT NULL),
       (SELECT count(*) FROM weir_parked);
