-- sqlite.sql - what the port to tables asks an SQLite database.

-- name: sqlite_find
-- $1: a name, $2: a schema or NULL. Names mean the same in small and capital letters; without a
-- schema SQLite looks in temp, in main, then in what was attached, in that order.
SELECT t.schema, t.name, t.type
  FROM pragma_table_list AS t
  LEFT JOIN pragma_database_list AS d ON d.name = t.schema
 WHERE t.name = $1 COLLATE NOCASE
   AND ($2 IS NULL OR t.schema = $2 COLLATE NOCASE)
 ORDER BY CASE t.schema WHEN 'temp' THEN -1 ELSE d.seq END
 LIMIT 1;

-- name: sqlite_columns
-- $1: a table's name, $2: its schema.
SELECT name, type, "notnull", pk, hidden
  FROM pragma_table_xinfo($1, $2)
 WHERE hidden <> 1
 ORDER BY cid;

-- name: sqlite_version
-- One larger after every change of a table, an index or a trigger, by whomever.
PRAGMA main.schema_version;

-- name: sqlite_tables
SELECT CASE schema WHEN 'main' THEN name ELSE schema || '.' || name END
  FROM pragma_table_list
 WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'
 ORDER BY 1
 LIMIT 10000;
