-- postgres.sql - what the port to tables asks a PostgreSQL database. Results are text.
--
-- Sessions keep the path of the role, so that names of tables mean what they mean to it. Whatever is
-- called here is therefore written with its schema (store/postgres/store.sql says why).

-- name: postgres_describe
-- $1: the name, its parts in double quotes. One row for each column, in their order; a relation
-- without columns has one row with a NULL name. The type has no length: a cast to varchar(3) would
-- cut what the column itself refuses.
SELECT c.oid, n.nspname, c.relname, c.relkind, a.attname, pg_catalog.format_type(a.atttypid, -1),
       a.attnotnull, a.attgenerated OPERATOR(pg_catalog.<>) ''
           OR a.attidentity OPERATOR(pg_catalog.=) 'a',
       (SELECT k.place
          FROM pg_catalog.pg_index AS i,
               pg_catalog.unnest(i.indkey) WITH ORDINALITY AS k (column_number, place)
         WHERE i.indrelid OPERATOR(pg_catalog.=) c.oid AND i.indisprimary
           AND k.column_number OPERATOR(pg_catalog.=) a.attnum
           AND k.place OPERATOR(pg_catalog.<=) i.indnkeyatts)
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
  LEFT JOIN pg_catalog.pg_attribute AS a
    ON a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.>) 0
   AND NOT a.attisdropped
 WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1)
 ORDER BY a.attnum;

-- name: postgres_tables
-- As they would be named: without the schema where the session looks for them anyway.
SELECT CASE WHEN pg_catalog.pg_table_is_visible(c.oid) THEN c.relname::pg_catalog.text
            ELSE pg_catalog.concat(n.nspname, '.', c.relname) END
  FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
 WHERE c.relkind OPERATOR(pg_catalog.=) ANY ('{r, p}'::pg_catalog."char"[])
   AND n.nspname OPERATOR(pg_catalog.!~) '^pg_'
   AND n.nspname OPERATOR(pg_catalog.<>) 'information_schema'
 ORDER BY 1
 LIMIT 10000;

-- name: postgres_element
-- $1: a type. What its elements are, domains taken for what they are made of; no row when it is no
-- array.
WITH RECURSIVE element AS (
    SELECT e.oid, e.typtype, e.typbasetype
      FROM pg_catalog.pg_type AS t
      JOIN pg_catalog.pg_type AS e ON e.oid OPERATOR(pg_catalog.=) t.typelem
     WHERE t.oid OPERATOR(pg_catalog.=) CAST($1 AS pg_catalog.oid)
       AND e.typdelim OPERATOR(pg_catalog.=) ','
       AND t.typsubscript
           OPERATOR(pg_catalog.=) 'pg_catalog.array_subscript_handler'::pg_catalog.regproc
    UNION ALL
    SELECT b.oid, b.typtype, b.typbasetype
      FROM element AS d
      JOIN pg_catalog.pg_type AS b ON b.oid OPERATOR(pg_catalog.=) d.typbasetype
     WHERE d.typtype OPERATOR(pg_catalog.=) 'd'
)
SELECT oid FROM element WHERE typtype OPERATOR(pg_catalog.<>) 'd';
