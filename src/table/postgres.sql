-- postgres.sql - what the port to tables asks a PostgreSQL database. Results are text.

-- name: postgres_describe
-- $1: the name, its parts in double quotes. One row for each column, in their order; a relation
-- without columns has one row with a NULL name. The type has no length: a cast to varchar(3) would
-- cut what the column itself refuses.
SELECT c.oid, n.nspname, c.relname, c.relkind, a.attname, format_type(a.atttypid, -1),
       a.attnotnull, a.attgenerated <> '' OR a.attidentity = 'a',
       (SELECT k.place
          FROM pg_catalog.pg_index AS i, unnest(i.indkey) WITH ORDINALITY AS k (column_number, place)
         WHERE i.indrelid = c.oid AND i.indisprimary
           AND k.column_number = a.attnum AND k.place <= i.indnkeyatts)
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_attribute AS a
    ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE c.oid = to_regclass($1)
 ORDER BY a.attnum;

-- name: postgres_tables
-- As they would be named: without the schema where the session looks for them anyway.
SELECT CASE WHEN pg_catalog.pg_table_is_visible(c.oid) THEN c.relname::text
            ELSE n.nspname || '.' || c.relname END
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
 ORDER BY 1
 LIMIT 10000;

-- name: postgres_element
-- $1: a type. What its elements are, domains taken for what they are made of; no row when it is no
-- array.
WITH RECURSIVE element AS (
    SELECT e.oid, e.typtype, e.typbasetype
      FROM pg_catalog.pg_type AS t
      JOIN pg_catalog.pg_type AS e ON e.oid = t.typelem
     WHERE t.oid = CAST($1 AS oid) AND e.typdelim = ','
       AND t.typsubscript = 'pg_catalog.array_subscript_handler'::regproc
    UNION ALL
    SELECT b.oid, b.typtype, b.typbasetype
      FROM element AS d
      JOIN pg_catalog.pg_type AS b ON b.oid = d.typbasetype
     WHERE d.typtype = 'd'
)
SELECT oid FROM element WHERE typtype <> 'd';
