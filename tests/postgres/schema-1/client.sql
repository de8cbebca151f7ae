-- What the client of schema 1 sends; written by keep.py.

PREPARE s1 AS
SELECT to_regclass('weir.store') IS NOT NULL,
       EXISTS (SELECT FROM pg_catalog.pg_namespace AS n WHERE n.nspname = $1),
       to_regclass('weir.workers') IS NOT NULL,
       EXISTS (SELECT FROM pg_catalog.pg_attribute AS a
                WHERE a.attrelid = to_regclass('weir.reactions') AND a.attname = 'attempts'
                  AND NOT a.attisdropped),
       to_regclass('weir.locks') IS NOT NULL;
EXECUTE s1 ('weir');
PREPARE s2 AS
SELECT schema, client_least, epoch, number FROM weir.store;
EXECUTE s2 \g /dev/null
PREPARE s3 AS
SELECT append_index, stream_index, status, replayed, first_version, last_version, position,
       expected, actual, other
  FROM weir.append_one($1, $2, $3, $4, $5, $6, $7, $8);
EXECUTE s3 ('0', '10000', 'order-1', '0', '0', 'Placed', '{"n":1}', '{}');
PREPARE s4 AS
SELECT append_index, stream_index, status, replayed, first_version, last_version, position,
       expected, actual, other
  FROM weir.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17);
EXECUTE s4 ('4', '10000', '86400000000', '{0}', '{once}', '{"\\x0000000000000000000000000000000000000000000000000000000000000000"}', '{1}', '{order-2}', '{0}', '{0}', '{1}', '{Placed}', '{"{\"n\":1}"}', '{"{}"}', '{1}', '{email:a}', '{1}');
EXECUTE s4 ('4', '10000', '86400000000', '{0}', '{once}', '{"\\x0000000000000000000000000000000000000000000000000000000000000000"}', '{1}', '{order-2}', '{0}', '{0}', '{1}', '{Placed}', '{"{\"n\":1}"}', '{"{}"}', '{1}', '{email:a}', '{1}');
EXECUTE s3 ('0', '10000', 'order-1', '1', '0', 'Placed', '{"n":1}', '{}');
EXECUTE s4 ('5', '10000', '86400000000', '{0,0,0}', '{}', '{}', '{1,2,3}', '{order-3,order-1,order-4}', '{0,2,0}', '{0,0,0}', '{1,2,3}', '{Placed,Placed,Placed}', '{"{\"n\":1}","{\"n\":1}","{\"n\":1}"}', '{"{}","{}","{}"}', '{}', '{}', '{}');
EXECUTE s4 ('4', '10000', '86400000000', '{1}', '{}', '{}', '{1}', '{order-4}', '{2}', '{0}', '{1}', '{$closed}', '{"{\"n\":1}"}', '{"{}"}', '{}', '{}', '{}');
EXECUTE s3 ('0', '10000', 'order-4', '0', '0', 'Placed', '{"n":1}', '{}');
PREPARE s5 AS
SELECT name, version, last_id, created, updated, closed FROM weir.streams WHERE name = $1;
EXECUTE s5 ('order-1');
PREPARE s6 AS
SELECT stream FROM weir.reserved WHERE key = $1;
EXECUTE s6 ('email:a');
PREPARE s7 AS
SELECT name, version, last_id, created, updated, closed
  FROM weir.streams
 WHERE name > $1 AND name >= $2
 ORDER BY name LIMIT $3;
EXECUTE s7 ('', '', '11');
PREPARE s8 AS
SELECT id, version, created, name, meta, weir.small_data(data, meta) AS data
  FROM weir.events
 WHERE stream = $1 AND version BETWEEN $2 AND $3
 ORDER BY version LIMIT $4;
EXECUTE s8 ('order-1', '0', '9', '10');
PREPARE s9 AS
SELECT weir.server() AS server,
       s.number,
       s.epoch,
       (SELECT system_identifier FROM pg_control_system()) AS system,
       (SELECT count(*) FROM weir.events WHERE id > $1 AND id <= $2) AS count,
       e.version, e.created, hashtextextended(e.stream, 0) AS stream
  FROM weir.store AS s
  LEFT JOIN weir.events AS e ON e.id = $2;
EXECUTE s9 ('0', '0') \g /dev/null
PREPARE s10 AS
WITH start AS MATERIALIZED (
    SELECT greatest($1::bigint, coalesce((SELECT position FROM weir.safe), 0)) AS safe,
           coalesce((SELECT max(id) FROM weir.events), 0) AS head
), slice AS (
    SELECT i.id, row_number() OVER (ORDER BY i.id) AS n
      FROM (SELECT id FROM weir.events
             WHERE id > (SELECT safe FROM start) AND id <= (SELECT head FROM start)
               AND (SELECT NOT pg_is_in_recovery())
             ORDER BY id LIMIT 10000) AS i
), found AS MATERIALIZED (
    SELECT count(*) AS count, max(id) AS top,
           max(id) FILTER (WHERE id - (SELECT safe FROM start) = n) AS run
      FROM slice
)
SELECT weir.server() AS server,
       (SELECT number FROM weir.store) AS number,
       weir.clock_us() AS now,
       start.head,
       start.safe,
       coalesce(found.run, start.safe) AS run,
       coalesce(found.top, start.safe) AS top,
       found.count,
       e.version, e.created, hashtextextended(e.stream, 0) AS stream,
       n.id AS next_id, n.version AS next_version, n.created AS next_created,
       n.stream AS next_stream, n.name AS next_name
  FROM start
 CROSS JOIN found
  LEFT JOIN weir.events AS e ON e.id = coalesce(found.run, start.safe)
  LEFT JOIN LATERAL (SELECT n.id, n.version, n.created, n.stream, n.name
                       FROM weir.events AS n
                      WHERE n.id > $2 AND n.id <= coalesce(found.run, start.safe)
                        AND coalesce(found.run, start.safe) - $2::bigint <= 200
                      ORDER BY n.id) AS n ON true
 ORDER BY n.id;
EXECUTE s10 ('0', NULL) \g /dev/null
PREPARE s11 AS
SELECT weir.safe_advance($1);
EXECUTE s11 ('6');
PREPARE s12 AS
SELECT id, version, created, stream, name, meta, weir.small_data(data, meta) AS data
  FROM weir.events
 WHERE id BETWEEN $1 AND $2
   AND (SELECT weir.server() + (SELECT number FROM weir.store)) = $4
 ORDER BY id LIMIT $3;
EXECUTE s12 ('1', '6', '10', '0') \g /dev/null
PREPARE s13 AS
SELECT id, version, created, name, meta, weir.small_data(data, meta) AS data
  FROM weir.events
 WHERE stream = $1 AND version BETWEEN $2 AND $3
 ORDER BY version DESC LIMIT $4;
EXECUTE s13 ('order-1', '0', '9', '10');
EXECUTE s10 ('6', NULL) \g /dev/null
PREPARE s14 AS
SELECT id, version, created, stream, name, meta, weir.small_data(data, meta) AS data
  FROM weir.events
 WHERE id BETWEEN $1 AND $2
   AND (SELECT weir.server() + (SELECT number FROM weir.store)) = $4
 ORDER BY id DESC LIMIT $3;
EXECUTE s14 ('1', '6', '10', '0') \g /dev/null
PREPARE s15 AS
SELECT given, changed, id, name, number, since, routed, reread_to, retired, router, router_until,
       router_fence, names, source, rule, rule_text, attempts
  FROM weir.declare($1, $2, $3, $4, $5, $6, $7, $8);
EXECUTE s15 ('mail', '{Placed}', 'order-*', '0', 'mail', '0', 'f', '0');
EXECUTE s15 ('bill', '{Placed}', 'order-*', '4', 'bill', '0', 'f', '0');
PREPARE s16 AS
SELECT fence, until FROM weir.router_lease($1, $2, $3, $4);
EXECUTE s16 ('client', '60000000', '{2}', '{0}');
PREPARE s17 AS
SELECT weir.subscribe($1, $2, $3, $4, $5, $6, $7);
EXECUTE s17 ('mail', 'default', '1', '2', 'order-*', 'mail', '0');
PREPARE s18 AS
SELECT weir.route($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
                  $16, $17, $18, $19);
EXECUTE s18 ('{2}', '{1}', '{0}', '{1}', '{t-1}', '{0}', '{0}', '{0}', '{default}', '{0}', '{order-*}', '{""}', '{1}', '{1}', '{0}', '{1}', '{}', '{}', '{}');
EXECUTE s10 ('6', NULL) \g /dev/null
PREPARE s19 AS
SELECT now_us, routed_least, is_ready, next_due, lease_end, router_end FROM weir.poll($1);
EXECUTE s19 ('default');
PREPARE s20 AS
SELECT leased, leased_name, leased_fence, leased_until, leased_watermark, leased_priority,
       leased_lost, kind, of_reaction, first_number, second_number, third_number, work_source,
       work_value
  FROM weir.lease($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);
EXECUTE s20 ('default', 'client', '60000000', '1', '1', '0', '{}', '{}', 't', '0');
PREPARE s21 AS
SELECT item, event_id, event_version, event_created, event_stream, event_name, event_data,
       event_meta, judge
  FROM weir.fetch_small($1, $2, $3, $4, $5, $6, $7);
EXECUTE s21 ('{2}', '{2}', '{0}', '{1}', '{5}', '4000', '1048');
PREPARE s22 AS
SELECT f.status, f.lease_end FROM weir.fenced($1, $2, $3) AS f;
EXECUTE s22 ('{2}', '{1}', '60000000');
PREPARE s23 AS
SELECT s.lease_end, s.is_behind, coalesce(current_setting('weir_settle.open', true), '') = 'on'
  FROM weir.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) AS s;
EXECUTE s23 ('2', '1', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 't', '2', '1', 'it failed', '0', '0', '0');
EXECUTE s20 ('default', 'client', '60000000', '1', '1', '0', '{}', '{}', 't', '0');
EXECUTE s22 ('{2}', '{2}', '-1');
EXECUTE s20 ('default', 'client', '60000000', '1', '1', '0', '{}', '{}', 't', '0');
PREPARE s24 AS
SELECT leased, leased_name, leased_fence, leased_until, leased_watermark, leased_priority,
       leased_lost, kind, of_reaction, first_number, second_number, third_number, work_source,
       work_value
  FROM weir.turn($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);
EXECUTE s24 ('{2}', '{3}', '{2}', '{2}', '{0}', 'default', 'client', '60000000', '1', '0', '0', '{}', '{}', 't', '0');
EXECUTE s23 ('2', '4', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 't', '2', '1', 'it failed', '3', '0', '0');
PREPARE s25 AS
SELECT n.name
  FROM unnest($1::text[]) WITH ORDINALITY AS n (name, ordinal)
 WHERE NOT EXISTS (SELECT 1 FROM weir.targets AS t WHERE t.name = n.name)
 ORDER BY n.ordinal
 LIMIT 1;
EXECUTE s25 ('{t-1}');
PREPARE s26 AS
SELECT t.id, t.name, t.lane FROM weir.targets AS t WHERE t.name = ANY ($1) ORDER BY t.name;
EXECUTE s26 ('{t-1}');
PREPARE s27 AS
SELECT weir.operate($1, $2, $3, $4, $5);
EXECUTE s27 ('1', '{2}', 'f', NULL, 'client');
EXECUTE s20 ('default', 'client', '60000000', '1', '1', '0', '{}', '{}', 't', '0');
EXECUTE s23 ('2', '5', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 'f', '0', '0', '', '2', '0', '4102444800000000');
EXECUTE s25 ('{t-1}');
EXECUTE s26 ('{t-1}');
PREPARE s28 AS
SELECT t.id, 0 AS kind, t.reaction, t.event, 0::bigint AS mark, t.attempts,
       t.blocked IS NOT NULL AS is_blocked, weir.skip_state(t.id) AS state, t.name
  FROM weir.targets AS t
 WHERE t.id = ANY ($1::bigint[]) AND t.behind
UNION ALL
SELECT t.id, 1, s.reaction, s.at, s.mark, s.retries, false, '', t.name
  FROM weir.targets AS t
  JOIN weir.subscriptions AS s ON s.target = t.id
  JOIN weir.reactions AS r ON r.id = s.reaction
 WHERE t.id = ANY ($1::bigint[]) AND t.behind AND s.at < s.mark AND NOT r.retired
UNION ALL
SELECT t.id, 2, p.reaction, p.event, 0, p.attempts, false, '', t.name
  FROM weir.targets AS t
  JOIN weir.parked AS p ON p.target = t.id
  JOIN weir.reactions AS r ON r.id = p.reaction
 WHERE t.id = ANY ($1::bigint[]) AND t.behind AND p.sent_back AND NOT r.retired
 ORDER BY name, kind, reaction, event;
EXECUTE s28 ('{2}');
EXECUTE s21 ('{2}', '{2}', '{0}', '{1}', '{1}', '4000', '1048');
PREPARE s29 AS
SELECT c.id FROM weir.operate_skip($1, $2, $3, $4, $5) AS c (id);
EXECUTE s29 ('{2}', '{"5 t 0 0 0 d41d8cd98f00b204e9800998ecf8427e/2 0 1 0 1 f d41d8cd98f00b204e9800998ecf8427e/"}', '{2}', '{1}', '{0}');
PREPARE s30 AS
SELECT p.id, p.reaction, r.name, t.name, p.event, p.attempts, p.parked, p.error, p.sent_back
  FROM weir.parked AS p
  JOIN weir.reactions AS r ON r.id = p.reaction
  LEFT JOIN weir.targets AS t ON t.id = p.target
 WHERE p.id > $1
 ORDER BY p.id
 LIMIT $2;
EXECUTE s30 ('0', '11');
PREPARE s31 AS
SELECT weir.parked_retry($1);
EXECUTE s31 ('1');
EXECUTE s20 ('default', 'client', '60000000', '1', '1', '0', '{}', '{}', 't', '0');
PREPARE s32 AS
SELECT s.append_index, s.stream_index, s.status, s.replayed, s.first_version, s.last_version,
       s."position", s.expected, s.actual, s.other, s.lease_end, s.is_behind,
       coalesce(current_setting('weir_settle.open', true), '') = 'on'
  FROM weir.settle_with($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
                        $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32,
                        $33) AS s;
EXECUTE s32 ('1', '10000', '86400000000', '{0}', '{}', '{}', '{1}', '{mail-1}', '{0}', '{0}', '{1}', '{Sent}', '{"{}"}', '{"{}"}', '{}', '{}', '{}', '2', '7', '{2}', '{1}', '{}', '{}', '{}', '{}', '{1}', 'f', '0', '0', '', '0', '0', '0');
PREPARE s33 AS
SELECT weir.parked_drop($1);
EXECUTE s33 ('1');
EXECUTE s25 ('{t-1}');
EXECUTE s26 ('{t-1}');
PREPARE s34 AS
SELECT weir.operate_reset($1, $2, $3);
EXECUTE s34 ('{2}', 'f', '0');
EXECUTE s18 ('{2}', '{1}', '{0}', '{1}', '{t-1}', '{0}', '{0}', '{0}', '{default}', '{0}', '{order-*}', '{""}', '{1}', '{1}', '{0}', '{1}', '{}', '{}', '{}');
EXECUTE s25 ('{t-1}');
EXECUTE s26 ('{t-1}');
EXECUTE s27 ('4', '{2}', 'f', '3', 'client');
EXECUTE s25 ('{t-1}');
EXECUTE s26 ('{t-1}');
EXECUTE s27 ('5', '{2}', 'f', NULL, 'client');
EXECUTE s25 ('{t-1}');
EXECUTE s26 ('{t-1}');
EXECUTE s27 ('6', '{2}', 'f', NULL, 'client');
PREPARE s35 AS
SELECT weir.lane_pause($1, $2, $3);
EXECUTE s35 ('default', 't', 'client');
PREPARE s36 AS
SELECT t.id, t.name, t.lane FROM weir.targets AS t WHERE t.name >= $1 ORDER BY t.name LIMIT $2;
EXECUTE s36 ('', '1002');
PREPARE s37 AS
WITH n AS MATERIALIZED (SELECT weir.clock_us() AS now_us)
SELECT t.id, t.name, t.lane, t.priority, t.override IS NOT NULL, t.watermark, t.behind, t.fence,
       t.lost, t.holder, t.lease_until, t.due, t.blocked, t.error, t.event, f.name, t.attempts,
       t.paused, t.paused_by, coalesce(l.paused, false), n.now_us,
       s.reaction, r.name, s.source, s.value, s.at, s.mark, s.retries, s.priority, r.retired
  FROM n
 CROSS JOIN weir.targets AS t
  LEFT JOIN weir.lanes AS l ON l.lane = t.lane
  LEFT JOIN weir.reactions AS f ON f.id = t.reaction
  LEFT JOIN weir.subscriptions AS s ON s.target = t.id
  LEFT JOIN weir.reactions AS r ON r.id = s.reaction
 WHERE t.id = ANY ($1)
 ORDER BY t.name, s.reaction;
EXECUTE s37 ('{1,2}');
PREPARE s38 AS
WITH n AS MATERIALIZED (SELECT weir.clock_us() AS now_us)
SELECT l.lane, l.paused, l.paused_by, coalesce(c.targets, 0), coalesce(c.ready, 0),
       coalesce(c.leased, 0), coalesce(c.blocked, 0), coalesce(c.deferred, 0), coalesce(w.lag, 0),
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
                    count(*) FILTER (WHERE NOT i.live AND NOT i.stuck AND NOT i.off AND i.later)
                        AS deferred,
                    count(*) FILTER (WHERE NOT i.live AND NOT i.stuck AND NOT i.off AND NOT i.later
                                       AND i.behind) AS ready
               FROM (SELECT t.lane, t.behind,
                            t.holder IS NOT NULL AND t.lease_until > n.now_us AS live,
                            t.blocked IS NOT NULL AS stuck,
                            t.paused OR p.paused AS off,
                            t.due IS NOT NULL AND t.due > n.now_us AS later
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
EXECUTE s38;
PREPARE s39 AS
SELECT 0::bigint, false, r.id, r.name, r.number, r.since, r.routed, r.reread_to, r.retired,
       coalesce(r.router, ''), r.router_until, r.router_fence,
       array_to_string(d.names, chr(10)), d.source, d.rule, d.rule_text, r.attempts
  FROM weir.reactions AS r
  JOIN weir.definitions AS d ON d.reaction = r.id AND d.number = r.number
 ORDER BY r.name;
EXECUTE s39;
PREPARE s40 AS
SELECT weir.retire($1);
EXECUTE s40 ('mail');
PREPARE s41 AS
SELECT weir.worker_beat($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);
EXECUTE s41 ('client', 'host', '7', '{default,mail}', '{1}', '{1}', 'f', '60000000', '3600000000', '64', '');
EXECUTE s41 ('client', 'host', '7', '{default,mail}', '{1}', '{1}', 'f', '60000000', '3600000000', '64', '');
PREPARE s42 AS
WITH n AS MATERIALIZED (SELECT weir.clock_us() AS now_us)
SELECT w.id, w.name, w.host, w.pid, w.since, w.lease_until, w.draining,
       cardinality(w.lanes), array_to_string(w.lanes, chr(10)),
       cardinality(w.reactions), array_to_string(w.reactions, chr(10)),
       array_to_string(w.numbers, chr(10)), coalesce(h.holds, 0), w.metrics
  FROM n
 CROSS JOIN weir.workers AS w
  LEFT JOIN (SELECT t.holder, count(*) AS holds
               FROM weir.targets AS t
              WHERE $2 AND t.holder IS NOT NULL AND t.lease_until > (SELECT now_us FROM n)
              GROUP BY t.holder) AS h ON h.holder = w.name
 WHERE w.lease_until > n.now_us - $1
 ORDER BY w.name;
EXECUTE s42 ('3600000000', 'f');
EXECUTE s41 ('client', 'host', '7', '{default,mail}', '{1}', '{1}', 'f', '0', '3600000000', '64', '');
PREPARE s43 AS
SELECT * FROM weir.lock_take($1, $2, $3, $4);
EXECUTE s43 ('f', 'nightly', 'client on host', '60000000');
EXECUTE s43 ('f', 'nightly', 'client on host', '0');
PREPARE s44 AS
SELECT weir.lock_extend($1, $2, $3, $4);
EXECUTE s44 ('f', 'nightly', '1', '60000000');
PREPARE s45 AS
WITH n AS MATERIALIZED (SELECT weir.clock_us() AS now_us)
SELECT k.name, k.holder, k.fence, k.since, k.lease_until
  FROM n
 CROSS JOIN weir.locks AS k
 WHERE NOT k.once AND (k.lease_until = 0 OR k.lease_until > n.now_us)
 ORDER BY k.name;
EXECUTE s45;
PREPARE s46 AS
SELECT weir.lock_release($1, $2);
EXECUTE s46 ('nightly', '1');
EXECUTE s43 ('t', 'nightly', 'client on host', '60000000');
EXECUTE s43 ('t', 'nightly', 'client on host', '60000000');
EXECUTE s44 ('t', 'nightly', '2', '60000000');
PREPARE s47 AS
SELECT weir.once_finish($1, $2, $3, $4);
EXECUTE s47 ('nightly', '2', '0', '\x6f7574707574');
EXECUTE s43 ('t', 'nightly', 'client on host', '60000000');
PREPARE s48 AS
SELECT * FROM weir.once_forget($1);
EXECUTE s48 ('nightly');
PREPARE s49 AS
SELECT weir.snapshot_put($1, $2, $3, $4);
EXECUTE s49 ('order-1', '0', 'r1', '\x666f6c646564');
PREPARE s50 AS
SELECT k.version, k.data
  FROM weir.snapshots AS k
 WHERE k.stream = $1 AND k.revision = $2 AND k.version <= $3;
EXECUTE s50 ('order-1', 'r1', '9');
PREPARE s51 AS
SELECT weir.snapshot_drop($1, $2);
EXECUTE s51 ('order', 'r2');
EXECUTE s10 ('6', NULL) \g /dev/null
PREPARE s52 AS
WITH locks AS MATERIALIZED (SELECT * FROM pg_locks WHERE granted)
SELECT coalesce(l.pid, 0)::bigint AS pid,
       coalesce(x.gid, l.virtualtransaction) AS transaction,
       coalesce(a.application_name, '') AS application,
       coalesce(a.usename::text, x.owner::text, '') AS user,
       CASE WHEN l.pid IS NULL THEN 'prepared' ELSE coalesce(a.state, '') END AS state,
       coalesce(a.query, '') AS query,
       (extract(epoch FROM coalesce(a.xact_start, x.prepared)) * 1000000)::bigint AS since
  FROM weir.store AS s
  JOIN locks AS l
    ON l.locktype = 'advisory' AND l.classid = 1465207122 AND l.objsubid = 2
   AND l.objid = ((s.number::bigint + 4294967296) % 4294967296)::oid
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
  LEFT JOIN locks AS t
    ON l.pid IS NULL AND t.pid IS NULL AND t.locktype = 'transactionid'
   AND t.virtualtransaction = l.virtualtransaction
  LEFT JOIN pg_prepared_xacts AS x ON x.transaction = t.transactionid
 ORDER BY since NULLS LAST, pid, transaction;
EXECUTE s52 \g /dev/null
PREPARE s53 AS
SELECT weir.clock_us();
EXECUTE s53;
PREPARE s54 AS
SELECT (SELECT CASE WHEN c.reltuples < 5e6 THEN (SELECT count(*) FROM weir.streams)
                    ELSE c.reltuples::bigint END
          FROM pg_class AS c WHERE c.oid = 'weir.streams'::regclass),
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
EXECUTE s54 \g /dev/null
