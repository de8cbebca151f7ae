-- words.sql - what the statements of this directory have in common, each said once. `{word}` stands
-- for it in the other files (tools/embed_sql.py).
--
-- What must stay true: constants have the value that C gives them (schema.c compares), and what a
-- fragment needs to find where it is put is said beside it.

-- constant: rule_constant 0
-- constant: rule_stream 1
-- constant: rule_category 2
-- constant: rule_name 3
-- constant: rule_work 4
-- Of weir.fetch_any alone: the names of the reaction one by one.
-- constant: rule_names 5

-- constant: verb_unblock 1
-- constant: verb_prioritize 4
-- constant: verb_pause 5
-- constant: verb_resume 6

-- constant: lock_held 1
-- constant: lock_done 2
-- constant: lock_failed 3
-- constant: lock_died 4

-- How a lease ends.
-- constant: end_keep 1
-- constant: end_defer 2
-- constant: end_block 3

-- What an append expects of a stream.
-- constant: expect_any 0
-- constant: expect_none 1
-- constant: expect_exists 2
-- constant: expect_exact 3

-- Flags of an append.
-- constant: append_close 1
-- constant: append_force 2
-- constant: append_dry_run 4
-- constant: append_chain 8
-- constant: append_nowait 16

-- Options of weir.append_any.
-- constant: append_in_order 1
-- constant: append_in_transaction 2

-- What is done with a reserved key.
-- constant: change_reserve 1
-- constant: change_release 2

-- Kinds of names that are locked by their hashes.
-- constant: held_stream 0
-- constant: held_key 1
-- constant: held_reserved 2
-- constant: held_large 3

-- The first halves of advisory locks: of the store's, and of those who listen.
-- constant: store_lock 1465207122
-- constant: listen_lock 1465207123

-- constant: forever 9223372036854775807
-- constant: chunk_events 1000
-- constant: chunk_bytes 1048576

-- constant: error_text_bytes 4096
-- constant: output_bytes 1048576
-- constant: metrics_bytes 16384
-- constant: rule_text_bytes 1024

-- constant: status_conflict -3
-- constant: status_busy -4
-- constant: status_notfound -6
-- constant: status_closed -7
-- constant: status_keyreused -8
-- constant: status_inflight -9
-- constant: status_taken -10
-- constant: status_lost -11
-- constant: status_held -12
-- constant: status_misuse -18

-- The errors that our functions raise: WR and the status.
-- constant: error_invalid 'WR002'
-- constant: error_conflict 'WR003'
-- constant: error_notfound 'WR006'
-- constant: error_lost 'WR011'
-- constant: error_misuse 'WR018'

-- constant: names_hint 'Names have 1 to 512 bytes without control characters and do not begin with $.'

-- A function that any role may call that was granted it, and that has the rights of the owner: one
-- that reads; one that also writes, and has its own time to wait for locks; one that writes.
-- fragment: reading
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp

-- fragment: as_owner
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp

-- fragment: writing
{as_owner}
SET lock_timeout = '5s'

-- How whatever appends begins. What is acknowledged must survive: what commit_durably does, mostly
-- without a call of it.
-- fragment: append_begin
PERFORM pg_advisory_xact_lock_shared({store_lock}, weir.number());
IF current_setting('synchronous_commit') <> 'on' THEN
    PERFORM weir.commit_durably();
END IF;

-- fragment: append_plans
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off

-- What weir.append_any takes, and gives: see there.
-- fragment: append_parameters
append_flags integer[], append_keys text[], append_fingerprints bytea[],
stream_appends integer[], stream_names text[], stream_expects integer[], stream_versions bigint[],
event_streams integer[], event_names text[], event_data json[], event_meta json[],
change_streams integer[], change_keys text[], change_kinds integer[]

-- fragment: append_arguments
append_flags, append_keys, append_fingerprints,
stream_appends, stream_names, stream_expects, stream_versions,
event_streams, event_names, event_data, event_meta,
change_streams, change_keys, change_kinds

-- fragment: append_columns
append_index integer, stream_index integer, status integer, replayed boolean,
first_version bigint, last_version bigint, "position" bigint, created timestamptz, other text

-- fragment: append_rows
RETURNS TABLE ({append_columns})

-- A row of pg_locks, l, is that of somebody who holds the store's lock: s.number is the store's.
-- fragment: is_store_lock
l.locktype = 'advisory' AND l.classid = {store_lock} AND l.objsubid = 2 AND l.granted
AND l.objid = ((s.number::bigint + 4294967296) % 4294967296)::oid
AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())

-- Who holds something, for people to read: shown on terminals and written to logs.
-- fragment: check_holder
IF (by_holder = '' OR weir.is_text(by_holder)) IS NOT TRUE THEN
    PERFORM weir.check_names('holder', ARRAY[by_holder], true);
END IF;

-- How a function's statements are planned: once for a session, perhaps on empty tables, so that every
-- row is found by an index and nothing is read from end to end.
-- fragment: by_index
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off

-- The same for statements without joins.
-- fragment: looked_up
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off

-- The same as by_index, and no join keeps one of its sides, which would mean to read all of it.
-- fragment: by_index_unkept
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off SET jit = off

-- The same, and an order is that of an index: nothing is sorted.
-- fragment: in_index_order
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_material = off SET jit = off

-- fragment: no_scans
SET enable_seqscan = off SET enable_bitmapscan = off

-- When a lease of lease_us ends that begins at the time `started`: the end of a CASE.
-- fragment: lease_from_started
WHEN lease_us > {forever} - started THEN {forever} ELSE started + lease_us

-- k is the lock, or the run of once, with that name, and taken by who says so.
-- fragment: has_its_fence
k.name = its_name AND k.fence = its_fence
AND (its_token = 0 OR k.token = its_token)

-- Target t has something to do, and nobody holds it back: when its time comes; at once. These are the
-- conditions of the indexes that leasing walks.
-- fragment: has_due
t.behind AND NOT t.held AND t.due IS NOT NULL

-- fragment: is_ready
t.behind AND NOT t.held AND t.due IS NULL

-- Routing has blocked t: as weir.is_passed.
-- fragment: is_passed
t.blocked IS NOT NULL AND t.reaction <> 0 AND t.event <> 0 AND t.attempts = 0

-- Nobody has the lease of t, at the time `started`.
-- fragment: is_free
(t.holder IS NULL OR t.lease_until <= started)

-- t has something to do for the reactions in `live`.
-- fragment: has_live_work
coalesce(
    (SELECT true
       FROM weir.subscriptions AS s
      WHERE s.target = t.id AND s.at < s.mark AND s.reaction + 0 = ANY (live)
      LIMIT 1),
    (SELECT true
       FROM weir.parked AS p
      WHERE p.target = t.id AND p.sent_back AND p.reaction + 0 = ANY (live)
      ORDER BY p.target, p.event, p.reaction
      LIMIT 1),
    false)

-- The targets of a lane that can be leased and were not chosen, but for those that wait for a time:
-- what an order and a LIMIT follow.
-- fragment: ready_targets
SELECT t.id
  FROM weir.targets AS t
 WHERE t.lane = of_lane AND {is_ready}
   AND {is_free}
   AND t.id <> ALL (chosen)
   AND {has_live_work}

-- Event e is one that item s of weir.fetch_any wants; p: what its source is.
-- fragment: is_wanted_by_item
((s.names IS NULL AND NOT starts_with(e.name, '$')) OR e.name = ANY (s.names))
AND (p.exact IS NULL OR e.stream = p.exact)
AND (p.prefix IS NULL OR starts_with(e.stream, p.prefix))

-- The same of event x and the one reaction of weir.fetch_small.
-- fragment: is_wanted
((its_names IS NULL AND NOT starts_with(x.name, '$')) OR x.name = ANY (its_names))
AND (exact IS NULL OR x.stream = exact)
AND (prefix IS NULL OR starts_with(x.stream, prefix))

-- Where item u of weir.fetch_small or fetch_any begins in its stream: what was handled last is mostly an
-- event of the stream, or the next one is.
-- fragment: first_version
coalesce(
    (SELECT n.version + (n.id = u.after_id)::integer
       FROM (SELECT x.id, x.stream, x.version
               FROM weir.events AS x
              WHERE x.id >= u.after_id
              ORDER BY x.id
              LIMIT 2) AS n
      WHERE n.stream = w.value
      ORDER BY n.id
      LIMIT 1),
    weir.version_after(w.value, u.after_id))

-- How each statement of weir.fetch_small begins: the events e of items u, which belong to w.value. A
-- subscription that is not there is an error.
-- fragment: small_events_of_items
SELECT u.place::integer - 1, e.id, e.version, e.created, e.stream, e.name,
       weir.small_text(e.data, e.meta, small_bytes),
       weir.small_text(e.meta, e.data, small_bytes), judge
  FROM unnest(item_targets, item_afters, item_up_tos, item_limits)
       WITH ORDINALITY AS u (target, after_id, up_to, most, place)
 CROSS JOIN LATERAL (
       SELECT coalesce((SELECT coalesce(fixed, s.value)
                          FROM weir.subscriptions AS s
                         WHERE s.target = u.target AND s.reaction + 0 = its_reaction
                         LIMIT 1),
                       weir.no_subscription(u.target, its_reaction)) AS value
       OFFSET 0) AS w

-- Which store, on which server: see read.sql.
-- fragment: place
weir.server() + weir.number()

-- fragment: is_this_place
(SELECT {place}) = $4

-- fragment: page_columns
e.id, e.version, e.created, e.stream, e.name, e.meta, e.data

-- What those statements of read.sql do with the page that they have read, in either direction: see
-- their parameters there.
-- fragment: wanted_forward
wanted AS (
    SELECT e.*, sum(size) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) AS bytes
      FROM (SELECT e.*, weir.sent_bytes(data, meta) AS size
              FROM page AS e
             WHERE weir.is_wanted(name, stream, created, $4, $5, $6, $7, $8)
             ORDER BY id LIMIT $3) AS e
)
SELECT {place} AS place,
       p.count, p.last, {page_columns},
       e.bytes >= {chunk_bytes} AS is_full
  FROM (SELECT count(*) AS count, max(id) AS last FROM page) AS p
  LEFT JOIN (SELECT * FROM wanted WHERE bytes - size < {chunk_bytes}) AS e ON true
 ORDER BY e.id

-- fragment: wanted_backward
wanted AS (
    SELECT e.*, sum(size) OVER (ORDER BY id DESC ROWS UNBOUNDED PRECEDING) AS bytes
      FROM (SELECT e.*, weir.sent_bytes(data, meta) AS size
              FROM page AS e
             WHERE weir.is_wanted(name, stream, created, $4, $5, $6, $7, $8)
             ORDER BY id DESC LIMIT $3) AS e
)
SELECT {place} AS place,
       p.count, p.last, {page_columns},
       e.bytes >= {chunk_bytes} AS is_full
  FROM (SELECT count(*) AS count, min(id) AS last FROM page) AS p
  LEFT JOIN (SELECT * FROM wanted WHERE bytes - size < {chunk_bytes}) AS e ON true
 ORDER BY e.id DESC
