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

-- constant: verb_unblock 1
-- constant: verb_prioritize 4
-- constant: verb_pause 5
-- constant: verb_resume 6

-- constant: lock_held 1
-- constant: lock_done 2
-- constant: lock_failed 3

-- constant: error_text_bytes 4096
-- constant: output_bytes 1048576
-- constant: metrics_bytes 16384
-- constant: rule_text_bytes 1024

-- constant: status_notfound -6
-- constant: status_lost -11

-- The errors that our functions raise: WR and the status.
-- constant: error_invalid 'WR002'
-- constant: error_conflict 'WR003'
-- constant: error_notfound 'WR006'
-- constant: error_lost 'WR011'
-- constant: error_misuse 'WR018'

-- A function that writes, and that any role may call that was granted it.
-- fragment: writing
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '5s'

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

-- The same, and no join keeps one of its sides, which would mean to read all of it.
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
 WHERE t.lane = of_lane AND t.behind AND NOT t.held AND t.due IS NULL
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
