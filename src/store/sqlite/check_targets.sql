-- check_targets.sql - invariants of the targets side. Each statement gives one sentence for each
-- violation, a few at most: it is for people.

-- name: check_derived
SELECT printf('target "%s" says behind %d, watermark %d, priority %d; its subscriptions say '
              || '%d, %d, %d', name, behind, watermark, priority, behind_should,
              watermark_should, priority_should)
  FROM (SELECT t.name, t.behind, t.watermark, t.priority,
               coalesce(d.behind, 0) OR coalesce(p.sent_back, 0) AS behind_should,
               coalesce(d.least, d.greatest, 0) AS watermark_should,
               coalesce(t.override, d.priority, 0) AS priority_should
          FROM weir_targets AS t
          LEFT JOIN (SELECT s.target,
                            max(s.at < s.mark) AS behind,
                            min(CASE WHEN s.at < s.mark THEN s.at END) AS least,
                            max(s.at) AS greatest,
                            max(s.priority) AS priority
                       FROM weir_subscriptions AS s
                       JOIN weir_reactions AS r ON r.id = s.reaction
                      WHERE r.retired = 0
                      GROUP BY s.target) AS d ON d.target = t.id
          LEFT JOIN (SELECT p.target, 1 AS sent_back
                       FROM weir_parked AS p
                       JOIN weir_reactions AS r ON r.id = p.reaction
                      WHERE p.sent_back = 1 AND r.retired = 0
                      GROUP BY p.target) AS p ON p.target = t.id)
 WHERE behind <> behind_should OR watermark <> watermark_should OR priority <> priority_should
 LIMIT 10;

-- name: check_rank
SELECT printf('target "%s" has rank %d at watermark %d', name, rank, watermark)
  FROM weir_targets
 WHERE rank <> watermark >> 5
 LIMIT 10;

-- name: check_held
SELECT printf('target "%s" has held = %d, blocked = %d, paused = %d', name, held,
              blocked IS NOT NULL, paused)
  FROM weir_targets
 WHERE held <> (blocked IS NOT NULL OR paused)
 LIMIT 10;

-- name: check_lease
SELECT printf('target "%s" has fence %d and %s until %d', name, fence,
              CASE WHEN holder IS NULL THEN 'no holder' ELSE 'a holder' END, lease_until)
  FROM weir_targets
 WHERE fence < 0 OR (holder IS NULL) <> (lease_until = 0) OR (holder IS NOT NULL AND fence = 0)
 LIMIT 10;

-- name: check_lane
SELECT printf('target "%s" is in lane "%s", which is not listed', name, lane)
  FROM weir_targets
 WHERE lane NOT IN (SELECT lane FROM weir_lanes)
 LIMIT 10;

-- A position beyond what was routed of the log is told by weir doctor, for all stores: a part of the
-- log was lost, and a reset repairs it.
-- name: check_position
SELECT printf('subscription of reaction %d on target %d is at %d, beyond its mark %d', s.reaction,
              s.target, s.at, s.mark)
  FROM weir_subscriptions AS s
  JOIN weir_reactions AS r ON r.id = s.reaction
 WHERE s.at > s.mark
   AND s.at <= min(max(r.routed, r.reread_to), coalesce((SELECT max(id) FROM weir_events), 0))
 LIMIT 10;

-- name: check_subscription
SELECT printf('subscription of reaction %d on target %d: there is no such %s', reaction, target,
              CASE WHEN reaction IN (SELECT id FROM weir_reactions) THEN 'target'
                   ELSE 'reaction' END)
  FROM weir_subscriptions
 WHERE reaction NOT IN (SELECT id FROM weir_reactions)
    OR target NOT IN (SELECT id FROM weir_targets)
 LIMIT 10;

-- name: check_work
SELECT printf('work row of event %d for reaction %d on target %d: %s', w.event, w.reaction,
              w.target,
              CASE WHEN s.at IS NULL THEN 'there is no such subscription'
                   WHEN e.id IS NULL THEN 'there is no such event'
                   ELSE printf('the subscription is at %d, marked up to %d', s.at, s.mark) END)
  FROM weir_work AS w
  LEFT JOIN weir_subscriptions AS s ON s.target = w.target AND s.reaction = w.reaction
  LEFT JOIN weir_events AS e ON e.id = w.event
 WHERE s.at IS NULL OR e.id IS NULL OR w.event <= s.at OR w.event > s.mark
 LIMIT 10;

-- name: check_parked
SELECT printf('parked event %d (position %d): there is no such %s', p.id, p.event,
              CASE WHEN r.id IS NULL THEN 'reaction'
                   WHEN e.id IS NULL THEN 'event'
                   ELSE 'target' END)
  FROM weir_parked AS p
  LEFT JOIN weir_reactions AS r ON r.id = p.reaction
  LEFT JOIN weir_targets AS t ON t.id = p.target
  LEFT JOIN weir_events AS e ON e.id = p.event
 WHERE r.id IS NULL OR e.id IS NULL OR (p.target <> 0 AND t.id IS NULL)
    OR (p.target = 0 AND p.sent_back = 1)
 LIMIT 10;

-- name: check_definition
SELECT printf('reaction "%s" has definition %d current, the latest is %d', r.name, r.number,
              coalesce((SELECT max(number) FROM weir_definitions AS d WHERE d.reaction = r.id), 0))
  FROM weir_reactions AS r
 WHERE r.number
       <> coalesce((SELECT max(number) FROM weir_definitions AS d WHERE d.reaction = r.id), 0)
 LIMIT 10;

-- name: check_routing
SELECT printf('reaction "%s" began at %d, is routed up to %d and is read again up to %d', r.name,
              r.since, r.routed, r.reread_to)
  FROM weir_reactions AS r
 WHERE r.routed < r.since OR r.reread_to < 0 OR r.router_fence < 0
    OR (r.reread_to <> 0 AND r.reread_to < r.routed)
    OR (r.reread_to = 0
        AND EXISTS (SELECT 1
                      FROM weir_subscriptions AS s
                     WHERE s.reaction = r.id AND s.was_reset = 1))
 LIMIT 10;
