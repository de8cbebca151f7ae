-- workers.sql - who works on the store, as the client asks for it.

-- name: worker_beat
SELECT weir.worker_beat($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- $1: how long those that ended are listed. Lists come as one text each, an element per line (no
-- name has a line break in it), and how many there are.
-- name: workers
SELECT id, name, host, pid, since, lease_until, draining,
       cardinality(lanes), array_to_string(lanes, chr(10)),
       cardinality(reactions), array_to_string(reactions, chr(10)),
       array_to_string(numbers, chr(10))
  FROM weir.workers
 WHERE lease_until > weir.clock_us() - $1
 ORDER BY name;
