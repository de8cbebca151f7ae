-- check_schema.sql - what is in the store's schema, beside what this version would make.
--
-- The model is made by running the same SQL as weir init with pg_temp in the place of the schema, in a
-- transaction that is rolled back: it needs the right to make temporary tables and nothing else, and
-- nobody else ever sees it. The comparison is made here, so that both sides are described by the same
-- server in the same words. Names of schemas are taken out of the descriptions.
--
-- What operators may change is not compared: storage parameters, statistics targets, owners, grants,
-- tablespaces.

-- name: check_temporary
-- Whether a model can be made here. A session behind a pooler may have temporary tables of somebody
-- else, which would be taken for ours.
SELECT
    pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY')
    AND NOT pg_catalog.pg_is_in_recovery()
    AND pg_catalog.current_setting('transaction_read_only') = 'off'
    AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_class AS c WHERE c.relnamespace = pg_catalog.pg_my_temp_schema()
    )
    AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = pg_catalog.pg_my_temp_schema()
    );

-- name: check_model
-- $1: the name of the schema. Rows: kind, name, definition as it should be (NULL: this version makes
-- no such thing), definition as it is (NULL: missing), the schema as an identifier. Tables, columns
-- and functions that are not ours are nobody's fault; a column or a trigger on a table of ours is
-- told, because it changes what we do.
WITH spaces AS (
    SELECT
        n.oid,
        n.oid = pg_catalog.pg_my_temp_schema() AS model,
        pg_catalog.quote_ident(n.nspname) || '.' AS prefix,
        -- as schema.c writes it into functions
        CASE
            WHEN n.oid = pg_catalog.pg_my_temp_schema() THEN 'pg_temp.'
            WHEN n.nspname = 'weir' THEN 'weir.'
            ELSE '"' || n.nspname || '".'
        END AS written
    FROM pg_catalog.pg_namespace AS n
    WHERE n.nspname = $1 OR n.oid = pg_catalog.pg_my_temp_schema()
), relations AS (
    SELECT s.model, s.prefix, c.*
    FROM spaces AS s
    JOIN pg_catalog.pg_class AS c ON c.relnamespace = s.oid
), ours AS (
    SELECT r.relname FROM relations AS r WHERE r.model AND r.relkind = 'r'
), described AS (
    SELECT
        r.model,
        CASE r.relkind WHEN 'r' THEN 'table' WHEN 'S' THEN 'sequence' ELSE 'type' END AS kind,
        r.relname::text AS name,
        concat_ws(', ', 'there',
            CASE WHEN r.relpersistence = 'u' THEN 'unlogged' END,
            CASE WHEN r.relrowsecurity THEN 'with row security' END,
            CASE WHEN r.relhasrules THEN 'with rules' END) AS definition
    FROM relations AS r
    WHERE r.relkind IN ('r', 'S', 'c')
    UNION ALL
    SELECT
        r.model,
        'view',
        r.relname::text,
        md5(replace(replace(pg_get_viewdef(r.oid), r.prefix, ''), 'pg_temp.', ''))
    FROM relations AS r
    WHERE r.relkind = 'v'
    UNION ALL
    SELECT
        r.model,
        'column',
        r.relname || '.' || a.attname,
        concat_ws(' ',
            replace(replace(format_type(a.atttypid, a.atttypmod), r.prefix, ''), 'pg_temp.', ''),
            CASE WHEN a.attnotnull THEN 'NOT NULL' END,
            CASE WHEN a.attidentity <> '' THEN 'IDENTITY ' || a.attidentity::text END,
            CASE WHEN a.attgenerated <> '' THEN 'GENERATED' END,
            (SELECT 'COLLATE ' || l.collname
             FROM pg_catalog.pg_collation AS l
             WHERE l.oid = a.attcollation AND l.collname <> 'default'),
            (SELECT 'DEFAULT ' || replace(pg_get_expr(d.adbin, d.adrelid), r.prefix, '')
             FROM pg_catalog.pg_attrdef AS d
             WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum))
    FROM relations AS r
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = r.oid
    WHERE r.relkind IN ('r', 'c') AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT
        r.model,
        'constraint',
        c.conname::text,
        concat_ws(' ', r.relname,
            replace(replace(pg_get_constraintdef(c.oid), r.prefix, ''), 'pg_temp.', ''))
    FROM relations AS r
    JOIN pg_catalog.pg_constraint AS c ON c.conrelid = r.oid
    UNION ALL
    SELECT
        r.model,
        'index',
        r.relname::text,
        replace(replace(pg_get_indexdef(r.oid), ' ON ' || r.prefix, ' ON '), ' ON pg_temp.', ' ON ')
    FROM relations AS r
    WHERE r.relkind = 'i'
    UNION ALL
    SELECT
        r.model,
        'trigger',
        t.tgname::text,
        concat_ws(' ',
            replace(replace(pg_get_triggerdef(t.oid), r.prefix, ''), 'pg_temp.', ''),
            CASE WHEN t.tgenabled <> 'O' THEN 'enabled ' || t.tgenabled::text END)
    FROM relations AS r
    JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = r.oid AND NOT t.tgisinternal
    UNION ALL
    SELECT
        s.model,
        'function',
        concat(p.proname, '(',
            replace(replace(pg_get_function_identity_arguments(p.oid), s.prefix, ''),
                'pg_temp.', ''),
            ')'),
        md5(concat_ws(' ',
            -- each store has numbers of its own
            CASE WHEN p.proname IN ('number', 'version_base')
                THEN regexp_replace(p.prosrc, '-?[0-9]+', 'N')
                ELSE replace(p.prosrc, s.written, '') END,
            replace(replace(pg_get_function_result(p.oid), s.prefix, ''), 'pg_temp.', ''),
            p.prolang, p.prosecdef, p.provolatile, p.proretset,
            -- quoted if whoever made it had quote_all_identifiers on
            replace(array_to_string(p.proconfig, ' '), '"', '')))
    FROM spaces AS s
    JOIN pg_catalog.pg_proc AS p ON p.pronamespace = s.oid
)
SELECT kind, name, m.definition, f.definition, pg_catalog.quote_ident($1)
FROM (SELECT d.kind, d.name, d.definition FROM described AS d WHERE d.model) AS m
FULL JOIN (SELECT d.kind, d.name, d.definition FROM described AS d WHERE NOT d.model) AS f
    USING (kind, name)
WHERE m.definition IS DISTINCT FROM f.definition
    AND (m.definition IS NOT NULL
        OR kind = 'trigger'
        OR (kind = 'column' AND split_part(name, '.', 1) IN (SELECT o.relname FROM ours AS o)))
ORDER BY kind, name;

-- name: check_indexes
-- $1: the name of the schema. Indexes that no query uses: left over from a CREATE or REINDEX
-- CONCURRENTLY that failed. One that is being built right now is not left over.
SELECT format('%I.%I', n.nspname, c.relname), c.relname::text ~ '_cc(new|old)[0-9]*$'
FROM pg_catalog.pg_index AS i
JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1
    AND NOT (i.indisvalid AND i.indisready AND i.indislive)
    AND NOT EXISTS (
        SELECT
        FROM pg_catalog.pg_stat_progress_create_index AS p
        WHERE p.index_relid = i.indexrelid OR p.relid = i.indrelid
    )
ORDER BY 1;

-- name: check_sequences
-- A backend that keeps positions or fences back hands them out long after later ones; one that cycles
-- or counts otherwise would give one twice.
SELECT s.seqcache, s.seqincrement, s.seqcycle, c.relname, c.relname = 'positions'
FROM pg_catalog.pg_sequence AS s
JOIN pg_catalog.pg_class AS c ON c.oid = s.seqrelid
WHERE s.seqrelid IN (to_regclass('weir.positions'), to_regclass('weir.lock_fences'))
    AND (s.seqcache <> 1 OR s.seqincrement <> 1 OR s.seqcycle)
ORDER BY c.relname;
