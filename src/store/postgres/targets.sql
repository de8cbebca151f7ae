-- targets.sql - looking at targets and lanes.

-- Names from $1 on, a bounded number ($2). What they are filtered by besides is judged in C.
-- name: walk_all
SELECT t.id, t.name, t.lane FROM weir.targets AS t WHERE t.name >= $1 ORDER BY t.name LIMIT $2;

-- name: walk_blocked
SELECT t.id, t.name, t.lane
  FROM weir.targets AS t
 WHERE t.blocked IS NOT NULL AND t.name >= $1
 ORDER BY t.name
 LIMIT $2;

-- name: walk_names
SELECT t.id, t.name, t.lane FROM weir.targets AS t WHERE t.name = ANY ($1) ORDER BY t.name;

-- name: walk_sources
SELECT s.target, s.source
  FROM weir.subscriptions AS s
 WHERE s.target = ANY ($1)
 ORDER BY s.target;

-- Targets with their subscriptions: one row for each of those, or one without. One statement, so
-- that what a target's row says fits what its subscriptions say.
-- name: targets_read
WITH n AS MATERIALIZED (SELECT weir.clock_us() AS now_us)
SELECT t.id, t.name, t.lane, t.priority, t.override IS NOT NULL, t.watermark, t.behind, t.fence,
       t.lost, t.holder, t.lease_until, t.due, t.blocked, t.error, t.event, f.name, t.attempts,
       t.paused, t.paused_by, coalesce(l.paused, false), n.now_us,
       s.reaction, r.name, s.source, s.value, s.at, s.mark, s.retries, s.priority, r.retired,
       greatest(r.routed, r.reread_to)
  FROM n
 CROSS JOIN weir.targets AS t
  LEFT JOIN weir.lanes AS l ON l.lane = t.lane
  LEFT JOIN weir.reactions AS f ON f.id = t.reaction
  LEFT JOIN weir.subscriptions AS s ON s.target = t.id
  LEFT JOIN weir.reactions AS r ON r.id = s.reaction
 WHERE t.id = ANY ($1)
 ORDER BY t.name, s.reaction;

-- Counted by state: leased, blocked, paused, retrying, deferred, ready, idle, the first that holds.
-- name: lanes
WITH n AS MATERIALIZED (SELECT weir.clock_us() AS now_us)
SELECT l.lane, l.paused, l.paused_by, coalesce(c.targets, 0), coalesce(c.ready, 0),
       coalesce(c.leased, 0), coalesce(c.blocked, 0), coalesce(c.retrying, 0),
       coalesce(c.deferred, 0), coalesce(w.lag, 0),
       coalesce((SELECT (extract(epoch FROM e.created) * 1000000)::bigint
                   FROM weir.events AS e
                  WHERE e.id > w.least
                  ORDER BY e.id
                  LIMIT 1), 0)
  FROM weir.lanes AS l
  LEFT JOIN (SELECT i.lane,
                    count(*) AS targets,
                    count(*) FILTER (WHERE i.live) AS leased,
                    count(*) FILTER (WHERE NOT i.live AND i.stuck) AS blocked,
                    count(*) FILTER (WHERE NOT i.live AND NOT i.stuck AND NOT i.off AND i.later
                                       AND i.failed) AS retrying,
                    count(*) FILTER (WHERE NOT i.live AND NOT i.stuck AND NOT i.off AND i.later
                                       AND NOT i.failed) AS deferred,
                    count(*) FILTER (WHERE NOT i.live AND NOT i.stuck AND NOT i.off AND NOT i.later
                                       AND i.behind) AS ready
               FROM (SELECT t.lane, t.behind,
                            t.holder IS NOT NULL AND t.lease_until > n.now_us AS live,
                            t.blocked IS NOT NULL AS stuck,
                            t.paused OR p.paused AS off,
                            t.due IS NOT NULL AND t.due > n.now_us AS later,
                            t.event <> 0 AND t.error <> '' AS failed
                       FROM n
                      CROSS JOIN weir.targets AS t
                       JOIN weir.lanes AS p ON p.lane = t.lane) AS i
              GROUP BY i.lane) AS c ON c.lane = l.lane
  LEFT JOIN (SELECT t.lane, max(s.mark - s.at) AS lag, min(s.at) AS least
               FROM weir.subscriptions AS s
               JOIN weir.reactions AS r ON r.id = s.reaction AND NOT r.retired
               JOIN weir.targets AS t ON t.id = s.target
              WHERE s.at < s.mark
              GROUP BY t.lane) AS w ON w.lane = l.lane
 ORDER BY l.lane;
