-- read.sql - chunks of streams and of the log.
--
-- A chunk must not be larger than about 1 MiB, whatever is in it, and that has to be decided by the
-- server: what was sent is in memory. Two ways:
--   *_small  as fast as a plain SELECT. An event whose texts are compressed, or too large for a
--            thousand of them, comes with its data NULL: the chunk ends before it;
--   *_sized  adds up sizes as it goes, and gives events until they reach 1 MiB (is_full, on the
--            last of them, when they did). Half as fast.
--
-- The statements of the log say which server they ran on, as in safe.sql, and in which store there,
-- as one number: what is `safe` was found out in one place, and may not be there yet in another. A
-- *_small one gives nothing in another place.
--
-- What they have in common is in read_functions.sql, which costs nothing, and as text in words.sql:
-- no function can take a page without being called, and pages that a function returns take 7 to 15 %
-- longer; one statement with a branch for each way has no generic plan that is cheap enough to be
-- kept, and is planned every time.

-- Versions $2 to $3 of a stream, at most $4 of them.

-- name: read_stream_forward_small
SELECT id, version, created, name, meta, weir.small_data(data, meta) AS data
  FROM weir.events
 WHERE stream = $1 AND version BETWEEN $2 AND $3
 ORDER BY version LIMIT $4;

-- name: read_stream_forward_sized
SELECT id, version, created, name, meta, data, bytes >= {chunk_bytes} AS is_full
  FROM (SELECT e.*, sum(size) OVER (ORDER BY version ROWS UNBOUNDED PRECEDING) AS bytes
          FROM (SELECT id, version, created, name, meta, data,
                       weir.sent_bytes(data, meta) AS size
                  FROM weir.events AS e
                 WHERE stream = $1 AND version BETWEEN $2 AND $3
                 ORDER BY version LIMIT $4) AS e) AS w
 WHERE bytes - size < {chunk_bytes}
 ORDER BY version;

-- name: read_stream_backward_small
SELECT id, version, created, name, meta, weir.small_data(data, meta) AS data
  FROM weir.events
 WHERE stream = $1 AND version BETWEEN $2 AND $3
 ORDER BY version DESC LIMIT $4;

-- name: read_stream_backward_sized
SELECT id, version, created, name, meta, data, bytes >= {chunk_bytes} AS is_full
  FROM (SELECT e.*, sum(size) OVER (ORDER BY version DESC ROWS UNBOUNDED PRECEDING) AS bytes
          FROM (SELECT id, version, created, name, meta, data,
                       weir.sent_bytes(data, meta) AS size
                  FROM weir.events AS e
                 WHERE stream = $1 AND version BETWEEN $2 AND $3
                 ORDER BY version DESC LIMIT $4) AS e) AS w
 WHERE bytes - size < {chunk_bytes}
 ORDER BY version DESC;

-- The last version, of $2 to $3, that was created at or before $4: versions and times grow
-- together, so it is found half by half. Below $2: none.
-- name: read_stream_until
WITH RECURSIVE halves (low, high) AS (
    SELECT greatest($2::bigint, (SELECT version FROM weir.events
                                  WHERE stream = $1 ORDER BY version LIMIT 1)),
           least($3::bigint, version) + 1
      FROM (SELECT version FROM weir.events
             WHERE stream = $1 ORDER BY version DESC LIMIT 1) AS last
    UNION ALL
    SELECT CASE WHEN e.created <= $4::timestamptz THEN h.middle + 1 ELSE h.low END,
           CASE WHEN e.created <= $4::timestamptz THEN h.high ELSE h.middle END
      FROM (SELECT low, high, low + (high - low) / 2 AS middle FROM halves WHERE low < high) AS h
      JOIN weir.events AS e ON e.stream = $1 AND e.version = h.middle
)
SELECT max(low) - 1 FROM halves;

-- Of the positions $1 to $2, the first that was created at or after $3 and the last at or before
-- $4, half by half; NULL: no bound. Exact as far as times grow with positions: see read.c.
-- name: read_log_times
WITH RECURSIVE since (low, high) AS (
    SELECT $1::bigint, $2::bigint + 1 WHERE $3::timestamptz IS NOT NULL
    UNION ALL
    SELECT CASE WHEN e.created < $3 AND e.id < h.high THEN e.id + 1 ELSE h.low END,
           CASE WHEN e.created < $3 AND e.id < h.high THEN h.high ELSE h.middle END
      FROM (SELECT low, high, low + (high - low) / 2 AS middle FROM since WHERE low < high) AS h
      LEFT JOIN LATERAL (SELECT id, created FROM weir.events WHERE id >= h.middle
                          ORDER BY id LIMIT 1) AS e ON true
), until (low, high) AS (
    SELECT $1::bigint, $2::bigint + 1 WHERE $4::timestamptz IS NOT NULL
    UNION ALL
    SELECT CASE WHEN e.created <= $4 AND e.id < h.high THEN e.id + 1 ELSE h.low END,
           CASE WHEN e.created <= $4 AND e.id < h.high THEN h.high ELSE h.middle END
      FROM (SELECT low, high, low + (high - low) / 2 AS middle FROM until WHERE low < high) AS h
      LEFT JOIN LATERAL (SELECT id, created FROM weir.events WHERE id >= h.middle
                          ORDER BY id LIMIT 1) AS e ON true
)
SELECT {place} AS place,
       coalesce((SELECT max(low) FROM since), $1) AS low,
       coalesce((SELECT max(low) FROM until) - 1, $2) AS high;

-- Positions $1 to $2, at most $3 of them, if this is the place $4.

-- name: read_log_forward_small
SELECT id, version, created, stream, name, meta, weir.small_data(data, meta) AS data
  FROM weir.events
 WHERE id BETWEEN $1 AND $2
   AND {is_this_place}
 ORDER BY id LIMIT $3;

-- name: read_log_backward_small
SELECT id, version, created, stream, name, meta, weir.small_data(data, meta) AS data
  FROM weir.events
 WHERE id BETWEEN $1 AND $2
   AND {is_this_place}
 ORDER BY id DESC LIMIT $3;

-- The same without data and meta, for who wants to know only what there is: positions $1 to $2 that
-- the filter ($5 to $9) may want, at most $3 of them, if this is the place $4.
-- name: read_log_bare
SELECT id, version, created, stream, name
  FROM weir.events
 WHERE id BETWEEN $1 AND $2
   AND weir.is_wanted(name, stream, created, $5, $6, $7, $8, $9)
   AND {is_this_place}
 ORDER BY id LIMIT $3;

-- Of one category, $5.
-- name: read_category_bare
SELECT id, version, created, stream, name
  FROM weir.events
 WHERE split_part(stream, '-', 1) = $5 AND id BETWEEN $1 AND $2
   AND {is_this_place}
 ORDER BY id LIMIT $3;

-- Of some names, $5, at most $3 of each: where one of them has more (cut: its last), the others are
-- given up to there.
-- name: read_names_bare
WITH found AS MATERIALIZED (
    SELECT i.id, i.version, i.created, i.stream, i.name,
           row_number() OVER (PARTITION BY i.name ORDER BY i.id) AS number
      FROM unnest($5::text[]) AS n (name)
     CROSS JOIN LATERAL (SELECT id, version, created, stream, name FROM weir.events
                          WHERE name = n.name AND id BETWEEN $1 AND $2
                          ORDER BY id LIMIT $3) AS i
     WHERE {is_this_place}
)
SELECT f.id, f.version, f.created, f.stream, f.name,
       (SELECT min(id) FROM found WHERE number = $3) AS cut
  FROM found AS f
 WHERE f.id <= coalesce((SELECT min(id) FROM found WHERE number = $3), f.id)
 ORDER BY f.id;

-- The rest read a page of at most 1000 events and give those of them that the filter may want; what
-- is given is decided by the client. Every one has the same parameters:
--   $1 to $2   positions              $5   category, or NULL
--   $3         how many to give       $6   prefix of the stream's name, or NULL
--   $4         names, or NULL         $7   created at or after, or NULL
--   $9         one stream             $8   created at or before, or NULL
-- and the same columns; the first three are also there when nothing is given: the place, how many
-- events the page has, and the last of its positions.

-- From the log itself.
-- name: read_log_forward_sized
WITH page AS MATERIALIZED (
    SELECT {page_columns}
      FROM weir.events AS e
     WHERE e.id BETWEEN $1 AND $2 AND $9::text IS NULL
     ORDER BY e.id LIMIT {chunk_events}
),
{wanted_forward};

-- name: read_log_backward_sized
WITH page AS MATERIALIZED (
    SELECT {page_columns}
      FROM weir.events AS e
     WHERE e.id BETWEEN $1 AND $2 AND $9::text IS NULL
     ORDER BY e.id DESC LIMIT {chunk_events}
),
{wanted_backward};

-- From the index of categories.
-- name: read_category_forward_sized
WITH page AS MATERIALIZED (
    SELECT {page_columns}
      FROM weir.events AS e
     WHERE split_part(e.stream, '-', 1) = $9 AND e.id BETWEEN $1 AND $2
     ORDER BY e.id LIMIT {chunk_events}
),
{wanted_forward};

-- name: read_category_backward_sized
WITH page AS MATERIALIZED (
    SELECT {page_columns}
      FROM weir.events AS e
     WHERE split_part(e.stream, '-', 1) = $9 AND e.id BETWEEN $1 AND $2
     ORDER BY e.id DESC LIMIT {chunk_events}
),
{wanted_backward};

-- From the index of names: as many positions of each, then the first of all.
-- name: read_names_forward_sized
WITH page AS MATERIALIZED (
    SELECT {page_columns}
      FROM (SELECT i.id
              FROM unnest($4::text[]) AS n (name)
             CROSS JOIN LATERAL (SELECT id FROM weir.events
                                  WHERE name = n.name AND id BETWEEN $1 AND $2
                                  ORDER BY id LIMIT {chunk_events}) AS i
             WHERE $9::text IS NULL
             ORDER BY i.id LIMIT {chunk_events}) AS i
      JOIN weir.events AS e ON e.id = i.id
),
{wanted_forward};

-- name: read_names_backward_sized
WITH page AS MATERIALIZED (
    SELECT {page_columns}
      FROM (SELECT i.id
              FROM unnest($4::text[]) AS n (name)
             CROSS JOIN LATERAL (SELECT id FROM weir.events
                                  WHERE name = n.name AND id BETWEEN $1 AND $2
                                  ORDER BY id DESC LIMIT {chunk_events}) AS i
             WHERE $9::text IS NULL
             ORDER BY i.id DESC LIMIT {chunk_events}) AS i
      JOIN weir.events AS e ON e.id = i.id
),
{wanted_backward};

-- From the versions of one stream.
-- name: read_exact_forward_sized
WITH page AS MATERIALIZED (
    SELECT {page_columns}
      FROM weir.events AS e
     WHERE e.stream = $9 AND e.version >= (SELECT version FROM weir.version_from($9, $1))
       AND e.version < (SELECT version FROM weir.version_from($9, $2::bigint + 1))
     ORDER BY e.version LIMIT {chunk_events}
),
{wanted_forward};

-- name: read_exact_backward_sized
WITH page AS MATERIALIZED (
    SELECT {page_columns}
      FROM weir.events AS e
     WHERE e.stream = $9 AND e.version >= (SELECT version FROM weir.version_from($9, $1))
       AND e.version < (SELECT version FROM weir.version_from($9, $2::bigint + 1))
     ORDER BY e.version DESC LIMIT {chunk_events}
),
{wanted_backward};
