-- workers.sql - who works on the store, as the client asks for it.

-- name: worker_beat
SELECT weir.worker_beat($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);

-- $1: how long those that ended are listed; $2: whether to count what they hold. Lists come as one
-- text each, an element per line (no name has a line break in it), and how many there are.
-- name: workers
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
