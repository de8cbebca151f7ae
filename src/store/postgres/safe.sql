-- safe.sql - the rule of positions: which of them can no longer appear.
--
-- A position is taken by INSERT, its event appears with COMMIT: 11 may be seen before 10, and 10 may
-- never come. A transaction that takes positions holds the store's shared advisory lock until it has
-- ended, so all that could still own a gap are in pg_locks. The order of the steps is what makes the
-- rule sound; each is a separate statement with a separate snapshot (safe.c):
--   (a) safe_read   positions above `safe`; a gap below one that is visible is seen, up to `top`;
--   (b) safe_look   the holders now: the owner of the gap is one of them, or has ended;
--   (c) safe_look   again, until all of those have ended;
--   (d) safe_reread only then, with a new snapshot: what is not there now was rolled back.
--
-- Statements of the rule may be run by different connections, through a pooler even by different
-- servers. So each says which server it ran on: when that was started, negative on a standby.
-- number tells one store from another that took its place.

-- $1 is what the client knows to be safe. Positions at and below it are not looked at again; the
-- hint of another process may be further. run: where the positions end that follow each other
-- without a gap. The rest describes the event at run (or at safe): see safe_verify. On a standby
-- nobody can look who holds what, so there the log ends at the first gap after the hint (top is run).
-- A caller that reads what follows $2 (NULL: it does not) is given that as well, in a row for each
-- event, if it ends here: if there are no more than 200 positions up to run. All of them are final: what is not
-- above safe is, and the rest are all there.
-- That a position is not above the highest one (head) says nothing; but a range with two ends is
-- looked up in the index, while half of a short log would be read as a whole.
-- name: safe_read
WITH start AS MATERIALIZED (
    SELECT greatest($1::bigint, coalesce((SELECT position FROM weir.safe), 0)) AS safe,
           coalesce((SELECT max(id) FROM weir.events), 0) AS head,
           pg_is_in_recovery() AS is_standby
), slice AS (
    SELECT i.id, row_number() OVER (ORDER BY i.id) AS n
      FROM (SELECT id FROM weir.events
             WHERE id > (SELECT safe FROM start) AND id <= (SELECT head FROM start)
             ORDER BY id LIMIT 10000) AS i
), found AS MATERIALIZED (
    SELECT count(*) AS count, max(id) AS top,
           max(id) FILTER (WHERE id - (SELECT safe FROM start) = n) AS run
      FROM slice
)
SELECT weir.server() AS server,
       weir.number() AS number,
       weir.clock_us() AS now,
       start.head,
       start.safe,
       coalesce(found.run, start.safe) AS run,
       coalesce(CASE WHEN start.is_standby THEN found.run ELSE found.top END, start.safe) AS top,
       CASE WHEN start.is_standby THEN coalesce(found.run - start.safe, 0) ELSE found.count END,
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

-- A holder is a virtual transaction, not a process: the same process is back with its next append
-- before anybody looks. A prepared transaction has no process.
-- name: safe_look
SELECT weir.server() AS server,
       s.number,
       l.virtualtransaction AS holder,
       l.pid IS NULL AS is_prepared
  FROM (SELECT weir.number() AS number) AS s
  LEFT JOIN pg_locks AS l
    ON {is_store_lock};

-- How many there are in ($1, $2], and what is at $2.
-- name: safe_reread
SELECT weir.server() AS server,
       weir.number() AS number,
       (SELECT count(*) FROM weir.events WHERE id > $1 AND id <= $2) AS count,
       e.version, e.created, hashtextextended(e.stream, 0) AS stream
  FROM (VALUES ($2::bigint)) AS top (id)
  LEFT JOIN weir.events AS e USING (id);

-- Is the log on this server the one that was seen on another, as far as it was seen? The last event
-- that was safe ($2) must be the same, and as many must stand in ($1, $2]: a commit that was lost
-- need not be the one with the highest position. timeline (0 on a standby, which cannot say) and events
-- are for people to tell logs apart.
-- name: safe_verify
SELECT weir.server() AS server,
       weir.number() AS number,
       s.epoch,
       (SELECT system_identifier FROM pg_control_system()) AS system,
       (SELECT count(*) FROM weir.events WHERE id > $1 AND id <= $2) AS count,
       e.version, e.created, hashtextextended(e.stream, 0) AS stream,
       CASE WHEN pg_is_in_recovery() THEN 0
            ELSE ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint
            END AS timeline,
       'weir.events'::regclass::oid::bigint AS events
  FROM weir.store AS s
  LEFT JOIN weir.events AS e ON e.id = $2;

-- name: safe_hint
SELECT weir.safe_prove($1);

-- The same up to the last event, by those who write (wake.c); nothing is locked when it is there.
-- name: safe_hint_head
SELECT CASE WHEN s.position < e.head THEN weir.safe_prove(e.head) ELSE s.position END, e.head
  FROM weir.safe AS s
 CROSS JOIN (SELECT coalesce(max(x.id), 0) AS head FROM weir.events AS x) AS e;

-- Who keeps `safe` back, oldest first. What the role may not see of others is NULL. A prepared
-- transaction is found by its number, which it has locked like everything else.
-- name: safe_holders
WITH locks AS MATERIALIZED (SELECT * FROM pg_locks WHERE granted)
SELECT coalesce(l.pid, 0)::bigint AS pid,
       coalesce(x.gid, l.virtualtransaction) AS transaction,
       coalesce(a.application_name, '') AS application,
       coalesce(a.usename::text, x.owner::text, '') AS user,
       CASE WHEN l.pid IS NULL THEN 'prepared' ELSE coalesce(a.state, '') END AS state,
       coalesce(a.query, '') AS query,
       (extract(epoch FROM coalesce(a.xact_start, x.prepared)) * 1000000)::bigint AS since
  FROM (SELECT weir.number() AS number) AS s
  JOIN locks AS l
    ON {is_store_lock}
  LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
  LEFT JOIN locks AS t
    ON l.pid IS NULL AND t.pid IS NULL AND t.locktype = 'transactionid'
   AND t.virtualtransaction = l.virtualtransaction
  LEFT JOIN pg_prepared_xacts AS x ON x.transaction = t.transactionid
 ORDER BY since NULLS LAST, pid, transaction;
