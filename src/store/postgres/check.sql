-- check.sql - the promises of the log and of the targets, asked as questions whose every answer is
-- a fault; and what a store says about itself.
--
-- Each check reads one slice of a table in one statement: one snapshot, in which every promise
-- holds however much is being written meanwhile. Its rows are (rule, sentence, and the place where
-- the slice ended): the first one, without a rule, says where that is and how many rows there were;
-- each other is a fault, a few at most. $1 (a text), $2, $3, $4: where to begin, exclusive.
--
-- LATERAL with a LIMIT: a lookup for each row of the slice, whatever the planner believes about the
-- size of the tables.

-- Versions have no gaps and grow with positions: every event but the first of its stream follows
-- one with the version before, at a lower position, which did not close it.
-- name: check_events
WITH slice AS MATERIALIZED (
    SELECT e.id, e.stream, e.version, p.id AS before, p.name AS name_before,
           coalesce((SELECT t.first FROM weir.truncated AS t WHERE t.stream = e.stream),
                    weir.version_base()) AS first
      FROM (SELECT i.id, i.stream, i.version
              FROM weir.events AS i
             WHERE i.id > $2
             ORDER BY i.id
             LIMIT 5000) AS e
      LEFT JOIN LATERAL (SELECT o.id, o.name
                           FROM weir.events AS o
                          WHERE o.stream = e.stream AND o.version = e.version - 1
                          LIMIT 1) AS p ON true
)
SELECT '' AS rule, '' AS sentence, '' AS name, coalesce(max(id), 0) AS a, 0::bigint AS b,
       0::bigint AS c, count(*) = 5000 AS more
  FROM slice
UNION ALL
(SELECT 'versions', 'stream "' || stream || '" has version ' || version || ' and no version '
        || version - 1, '', 0, 0, 0, false
   FROM slice WHERE version < first OR (version > first AND before IS NULL) LIMIT 20)
UNION ALL
(SELECT 'order', 'event ' || id || ' comes before version ' || version - 1 || ' of its stream', '',
        0, 0, 0, false
   FROM slice WHERE before >= id LIMIT 20)
UNION ALL
(SELECT 'streams', 'stream "' || stream || '" was closed by version ' || version - 1
        || ' and has version ' || version, '', 0, 0, 0, false
   FROM slice WHERE name_before = '$closed' LIMIT 20);

-- Streams that have lost their first events have some that are left.
-- name: check_truncated
WITH slice AS MATERIALIZED (
    SELECT t.stream, t.first,
           (SELECT true FROM weir.events AS e
             WHERE e.stream = t.stream AND e.version = t.first LIMIT 1) AS there
      FROM weir.truncated AS t WHERE t.stream > $1 ORDER BY t.stream LIMIT 5000
)
SELECT '' AS rule, '' AS sentence, coalesce(max(stream), '') AS name, 0::bigint AS a, 0::bigint AS b,
       0::bigint AS c, count(*) = 5000 AS more
  FROM slice
UNION ALL
(SELECT 'streams', 'stream "' || stream || '" begins with version ' || first
        || ', which is not there', '', 0, 0, 0, false
   FROM slice WHERE there IS NULL LIMIT 20);

-- name: check_keys
WITH slice AS MATERIALIZED (
    SELECT k.key, k.fingerprint FROM weir.keys AS k WHERE k.key > $1 ORDER BY k.key LIMIT 5000
)
SELECT '' AS rule, '' AS sentence, coalesce(max(key), '') AS name, 0::bigint AS a, 0::bigint AS b,
       0::bigint AS c, count(*) = 5000 AS more
  FROM slice
UNION ALL
(SELECT 'keys', 'idempotency key "' || key || '" is kept with a damaged fingerprint', '', 0, 0, 0,
        false
   FROM slice WHERE length(fingerprint) <> 32 LIMIT 20);

-- The sequence is looked at only by those who may.
-- name: check_positions
WITH facts AS MATERIALIZED (
    SELECT coalesce((SELECT max(e.id) FROM weir.events AS e), 0) AS head,
           coalesce((SELECT f.position FROM weir.safe AS f), 0) AS final
), counter AS MATERIALIZED (
    SELECT CASE WHEN has_sequence_privilege('weir.positions', 'SELECT')
                THEN coalesce(pg_sequence_last_value('weir.positions'::regclass), 0) END AS given
      FROM facts
)
SELECT '' AS rule, '' AS sentence, '' AS name, 0::bigint AS a, 0::bigint AS b, 0::bigint AS c,
       false AS more
UNION ALL
SELECT 'positions', 'the last event is ' || head || ', but positions are given out from '
       || given + 1 || ' on', '', 0, 0, 0, false
  FROM facts, counter
 WHERE given < head
UNION ALL
SELECT 'positions', 'everything up to position ' || final || ' was final, but the last event is '
       || head, '', 0, 0, 0, false
  FROM facts
 WHERE final > head;

-- name: check_targets
WITH slice AS MATERIALIZED (
    SELECT t.*, coalesce(d.behind, false) OR p.sent_back AS behind_should,
           coalesce(d.least, d.greatest, 0) AS watermark_should,
           coalesce(t.override, d.greatest_priority, 0) AS priority_should,
           EXISTS (SELECT 1 FROM weir.lanes AS l WHERE l.lane = t.lane) AS lane_listed
      FROM (SELECT i.* FROM weir.targets AS i WHERE i.id > $2 ORDER BY i.id LIMIT 2000) AS t
     CROSS JOIN LATERAL (SELECT bool_or(s.at < s.mark) AS behind,
                                min(CASE WHEN s.at < s.mark THEN s.at END) AS least,
                                max(s.at) AS greatest,
                                max(s.priority) AS greatest_priority
                           FROM weir.subscriptions AS s
                           JOIN weir.reactions AS r ON r.id = s.reaction
                          WHERE s.target = t.id AND NOT r.retired) AS d
     CROSS JOIN LATERAL (SELECT EXISTS (SELECT 1
                                          FROM weir.parked AS k
                                          JOIN weir.reactions AS r ON r.id = k.reaction
                                         WHERE k.target = t.id AND k.sent_back
                                           AND NOT r.retired) AS sent_back) AS p
)
SELECT '' AS rule, '' AS sentence, '' AS name, coalesce(max(id), 0) AS a, 0::bigint AS b,
       0::bigint AS c, count(*) = 2000 AS more
  FROM slice
UNION ALL
(SELECT 'target-derived',
        format('target "%s" says behind %s, watermark %s, priority %s; its subscriptions say '
               || '%s, %s, %s', name, behind::integer, watermark, priority,
               behind_should::integer, watermark_should, priority_should), '', 0, 0, 0, false
   FROM slice
  WHERE behind <> behind_should OR watermark <> watermark_should OR priority <> priority_should
  LIMIT 10)
UNION ALL
(SELECT 'target-rank', format('target "%s" has rank %s at watermark %s', name, rank, watermark), '',
        0, 0, 0, false
   FROM slice WHERE rank <> watermark >> 5 LIMIT 10)
UNION ALL
(SELECT 'target-held',
        format('target "%s" has held = %s, blocked = %s, paused = %s', name, held::integer,
               (blocked IS NOT NULL)::integer, paused::integer), '', 0, 0, 0, false
   FROM slice WHERE held <> (blocked IS NOT NULL OR paused) LIMIT 10)
UNION ALL
(SELECT 'target-lease',
        format('target "%s" has fence %s and %s until %s', name, fence,
               CASE WHEN holder IS NULL THEN 'no holder' ELSE 'a holder' END, lease_until),
        '', 0, 0, 0, false
   FROM slice
  WHERE fence < 0 OR (holder IS NULL) <> (lease_until = 0) OR (holder IS NOT NULL AND fence = 0)
  LIMIT 10)
UNION ALL
(SELECT 'target-lane',
        format('target "%s" is in lane "%s", which is not listed', name, lane), '', 0, 0, 0, false
   FROM slice WHERE NOT lane_listed LIMIT 10);

-- A position beyond what was routed of the log is told by weir doctor, for all stores: a part of the
-- log was lost, and a reset repairs it.
-- name: check_subscriptions
WITH slice AS MATERIALIZED (
    SELECT s.*, EXISTS (SELECT 1 FROM weir.targets AS t WHERE t.id = s.target) AS has_target,
           EXISTS (SELECT 1 FROM weir.reactions AS r WHERE r.id = s.reaction) AS has_reaction,
           least((SELECT greatest(r.routed, r.reread_to) FROM weir.reactions AS r
                   WHERE r.id = s.reaction),
                 (SELECT coalesce(max(e.id), 0) FROM weir.events AS e)) AS routed
      FROM (SELECT i.target, i.reaction, i.at, i.mark
              FROM weir.subscriptions AS i
             WHERE (i.target, i.reaction) > ($2, $3)
             ORDER BY i.target, i.reaction
             LIMIT 5000) AS s
)
(SELECT '' AS rule, '' AS sentence, '' AS name, target AS a, reaction AS b, 0::bigint AS c,
        (SELECT count(*) = 5000 FROM slice) AS more
   FROM slice
  ORDER BY target DESC, reaction DESC
  LIMIT 1)
UNION ALL
(SELECT 'subscription-position',
        format('subscription of reaction %s on target %s is at %s, beyond its mark %s', reaction,
               target, at, mark), '', 0, 0, 0, false
   FROM slice WHERE at > mark AND at <= routed LIMIT 10)
UNION ALL
(SELECT 'subscription',
        format('subscription of reaction %s on target %s: there is no such %s', reaction, target,
               CASE WHEN has_reaction THEN 'target' ELSE 'reaction' END), '', 0, 0, 0, false
   FROM slice WHERE NOT has_target OR NOT has_reaction LIMIT 10);

-- name: check_work
WITH slice AS MATERIALIZED (
    SELECT w.*, s.at, s.mark, EXISTS (SELECT 1 FROM weir.events AS e WHERE e.id = w.event)
           AS has_event
      FROM (SELECT i.target, i.reaction, i.event
              FROM weir.work AS i
             WHERE (i.target, i.reaction, i.event) > ($2, $3, $4)
             ORDER BY i.target, i.reaction, i.event
             LIMIT 5000) AS w
      LEFT JOIN LATERAL (SELECT o.at, o.mark
                           FROM weir.subscriptions AS o
                          WHERE o.target = w.target AND o.reaction = w.reaction
                          LIMIT 1) AS s ON true
)
(SELECT '' AS rule, '' AS sentence, '' AS name, target AS a, reaction AS b, event AS c,
        (SELECT count(*) = 5000 FROM slice) AS more
   FROM slice
  ORDER BY target DESC, reaction DESC, event DESC
  LIMIT 1)
UNION ALL
(SELECT 'work',
        format('work row of event %s for reaction %s on target %s: %s', event, reaction, target,
               CASE WHEN at IS NULL THEN 'there is no such subscription'
                    WHEN NOT has_event THEN 'there is no such event'
                    ELSE format('the subscription is at %s, marked up to %s', at, mark) END),
        '', 0, 0, 0, false
   FROM slice WHERE at IS NULL OR NOT has_event OR event <= at OR event > mark LIMIT 10);

-- name: check_parked
WITH slice AS MATERIALIZED (
    SELECT p.*, EXISTS (SELECT 1 FROM weir.reactions AS r WHERE r.id = p.reaction) AS has_reaction,
           EXISTS (SELECT 1 FROM weir.events AS e WHERE e.id = p.event) AS has_event,
           EXISTS (SELECT 1 FROM weir.targets AS t WHERE t.id = p.target) AS has_target
      FROM (SELECT i.id, i.reaction, i.target, i.event, i.sent_back
              FROM weir.parked AS i
             WHERE i.id > $2
             ORDER BY i.id
             LIMIT 5000) AS p
)
SELECT '' AS rule, '' AS sentence, '' AS name, coalesce(max(id), 0) AS a, 0::bigint AS b,
       0::bigint AS c, count(*) = 5000 AS more
  FROM slice
UNION ALL
(SELECT 'parked',
        format('parked event %s (position %s): there is no such %s', id, event,
               CASE WHEN NOT has_reaction THEN 'reaction'
                    WHEN NOT has_event THEN 'event'
                    ELSE 'target' END), '', 0, 0, 0, false
   FROM slice
  WHERE NOT has_reaction OR NOT has_event OR (target <> 0 AND NOT has_target)
     OR (target = 0 AND sent_back)
  LIMIT 10);

-- name: check_reactions
WITH slice AS MATERIALIZED (
    SELECT r.*,
           coalesce((SELECT max(d.number) FROM weir.definitions AS d WHERE d.reaction = r.id), 0)
               AS latest,
           EXISTS (SELECT 1 FROM weir.subscriptions AS s WHERE s.reaction = r.id AND s.was_reset)
               AS was_reset
      FROM weir.reactions AS r
)
SELECT '' AS rule, '' AS sentence, '' AS name, 0::bigint AS a, 0::bigint AS b, 0::bigint AS c,
       false AS more
UNION ALL
(SELECT 'reaction-definition',
        format('reaction "%s" has definition %s current, the latest is %s', name, number, latest),
        '', 0, 0, 0, false
   FROM slice WHERE number <> latest LIMIT 10)
UNION ALL
(SELECT 'reaction-routing',
        format('reaction "%s" began at %s, is routed up to %s and is read again up to %s', name,
               since, routed, reread_to), '', 0, 0, 0, false
   FROM slice
  WHERE routed < since OR reread_to < 0 OR router_fence < 0
     OR (reread_to <> 0 AND reread_to < routed) OR (reread_to = 0 AND was_reset)
  LIMIT 10);

-- Exact, unless a table is so large that counting it would take seconds: then what the server
-- estimates.
-- name: stats
SELECT (SELECT CASE WHEN c.reltuples < 5e6
                    THEN (SELECT count(*) FROM weir.events
                          WHERE version = weir.version_base())
                    ELSE c.reltuples::bigint END
          FROM pg_class AS c WHERE c.oid = 'weir.events_first'::regclass)
           + (SELECT count(*) FROM weir.truncated),
       (SELECT CASE WHEN c.reltuples < 5e6 THEN (SELECT count(*) FROM weir.targets)
                    ELSE c.reltuples::bigint END
          FROM pg_class AS c WHERE c.oid = 'weir.targets'::regclass),
       (SELECT count(*) FROM weir.targets AS t WHERE t.blocked IS NOT NULL),
       (SELECT CASE WHEN c.reltuples < 5e6 THEN (SELECT count(*) FROM weir.parked)
                    ELSE c.reltuples::bigint END
          FROM pg_class AS c WHERE c.oid = 'weir.parked'::regclass),
       current_setting('server_version_num')::integer,
       current_setting('fsync')::boolean,
       current_setting('full_page_writes')::boolean,
       (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
          FROM pg_class AS c
         WHERE c.relkind = 'r'
           AND c.relnamespace = (SELECT s.relnamespace FROM pg_class AS s
                                  WHERE s.oid = 'weir.store'::regclass)),
       current_database()::text,
       current_user::text,
       pg_is_in_recovery();
