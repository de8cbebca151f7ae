-- check.sql - the promises about the log, asked as questions whose every answer is a fault. Each gives
-- one sentence per fault.

-- name: check_versions
SELECT 'stream "' || s.name || '" has ' || e.count || ' events from version ' || e.first || ' to '
    || e.last || ', which should begin at ' || coalesce(t.first, (SELECT version_base FROM weir_store))
FROM weir_streams AS s
JOIN (
    SELECT stream, count(*) AS count, min(version) AS first, max(version) AS last
    FROM weir_events GROUP BY stream
) AS e ON e.stream = s.id
LEFT JOIN weir_truncated AS t ON t.stream = s.id
WHERE e.first <> coalesce(t.first, (SELECT version_base FROM weir_store))
    OR e.count <> e.last - e.first + 1
LIMIT 20;

-- name: check_empty_streams
SELECT 'stream "' || name || '" has no event' FROM weir_streams AS s
WHERE NOT EXISTS (SELECT 1 FROM weir_events AS e WHERE e.stream = s.id)
LIMIT 20;

-- name: check_orphans
SELECT 'event ' || id || ' belongs to no stream' FROM weir_events AS e
WHERE NOT EXISTS (SELECT 1 FROM weir_streams AS s WHERE s.id = e.stream)
LIMIT 20;

-- name: check_closed
SELECT 'stream "' || s.name || '" is marked as ' || CASE WHEN s.closed THEN 'closed' ELSE 'open' END
    || ', but its last event is "' || e.name || '"'
FROM weir_streams AS s
JOIN weir_events AS e ON e.stream = s.id
    AND e.version = (SELECT max(l.version) FROM weir_events AS l WHERE l.stream = s.id)
WHERE s.closed <> (e.name = '$closed')
LIMIT 20;

-- name: check_categories
SELECT 'stream "' || s.name || '" is filed under another category than its name says'
FROM weir_streams AS s
LEFT JOIN weir_categories AS c ON c.id = s.category
WHERE c.name IS NOT CASE instr(s.name, '-')
    WHEN 0 THEN s.name ELSE substr(s.name, 1, instr(s.name, '-') - 1) END
LIMIT 20;

-- name: check_event_categories
SELECT 'event ' || e.id || ' is filed under another category than its stream'
FROM weir_events AS e
JOIN weir_streams AS s ON s.id = e.stream
WHERE e.category <> s.category
LIMIT 20;

-- name: check_order
SELECT 'event ' || id || ' was created before event ' || before || ' or stands before it in its stream'
FROM (
    SELECT id, created, lag(id) OVER w AS before, lag(created) OVER w AS before_created
    FROM weir_events WINDOW w AS (ORDER BY id)
)
WHERE before_created > created
UNION ALL
SELECT 'event ' || e.id || ' comes before version ' || n.version || ' of its stream'
FROM weir_events AS e
JOIN weir_events AS n ON n.stream = e.stream AND n.version = e.version + 1
WHERE n.id <= e.id
LIMIT 20;

-- name: check_json
SELECT 'event ' || id || ' has data or meta that is not JSON' FROM weir_events
WHERE NOT json_valid(data) OR NOT json_valid(meta)
LIMIT 20;

-- name: check_keys
SELECT 'idempotency key "' || key || '" is kept with a damaged fingerprint' FROM weir_keys
WHERE length(fingerprint) <> 32
LIMIT 20;

-- name: check_clock
SELECT 'the store''s clock stands at a time that makes no sense' FROM weir_store
WHERE clock_us < 0 OR created < 0 OR clock_us < created;

-- name: check_journal
PRAGMA main.journal_mode;

-- name: check_integrity
PRAGMA main.integrity_check(20);

-- name: check_objects
SELECT name, sql FROM sqlite_schema WHERE name LIKE 'weir\_%' ESCAPE '\' AND sql IS NOT NULL;

-- name: check_triggers
SELECT name, tbl_name, sql FROM main.sqlite_schema
WHERE type = 'trigger' AND tbl_name LIKE 'weir\_%' ESCAPE '\';

-- name: check_object
SELECT sql FROM main.sqlite_schema WHERE name = ?1;
