-- check_server.sql - what surrounds a store: settings of the server, those who hold it up, its tables'
-- state. Every statement is a short read of catalogs and statistics.

-- name: server_settings
-- As this session has them, so with what the role and the database set.
SELECT s.name, s.setting
FROM pg_catalog.pg_settings AS s
WHERE s.name IN ('autovacuum', 'data_checksums', 'full_page_writes', 'fsync', 'synchronous_commit',
    'synchronous_standby_names', 'track_counts')
ORDER BY s.name;

-- name: server_isolation
-- What a session gets that does not ask: what the role, the database or both set for those who use the
-- store, or else the server's default. Rows: value, where it is set.
WITH chosen AS (
    SELECT
        substr(c.entry, strpos(c.entry, '=') + 1) AS value,
        concat_ws(' in ',
            CASE WHEN s.setrole <> 0 THEN format('set for role %I', pg_get_userbyid(s.setrole)) END,
            CASE WHEN s.setdatabase <> 0 THEN format('set for database %I', current_database()) END
        ) AS place
    FROM pg_catalog.pg_db_role_setting AS s
    CROSS JOIN LATERAL unnest(s.setconfig) AS c (entry)
    WHERE s.setdatabase IN (0, (SELECT d.oid FROM pg_catalog.pg_database AS d
                                WHERE d.datname = current_database()))
        AND (s.setrole = 0 OR has_table_privilege(s.setrole, 'weir.store'::regclass, 'SELECT'))
        AND starts_with(c.entry, 'default_transaction_isolation=')
)
SELECT c.value, c.place FROM chosen AS c WHERE c.value <> 'read committed'
UNION ALL
SELECT s.reset_val, 'the server''s default'
FROM pg_catalog.pg_settings AS s
WHERE s.name = 'default_transaction_isolation'
    AND s.reset_val <> 'read committed'
    AND NOT EXISTS (SELECT FROM chosen);

-- name: server_rights
-- $1: the name of the schema. Finds rights that weir init --grant gives to nobody: more than SELECT on
-- a table or a sequence, EXECUTE for everybody, CREATE in the schema.
-- Rows: which role, which right, on what.
SELECT
    CASE r.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(r.grantee)::text END,
    string_agg(DISTINCT r.privilege_type, ', '),
    r.place
FROM (
    SELECT a.grantee, a.privilege_type, format('%I.%I', n.nspname, c.relname) AS place
    FROM pg_catalog.pg_namespace AS n
    JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid
    CROSS JOIN LATERAL aclexplode(c.relacl) AS a
    WHERE n.nspname = $1 AND a.grantee <> c.relowner AND a.privilege_type <> 'SELECT'
        AND c.relkind IN ('r', 'S')
    UNION ALL
    SELECT 0, 'EXECUTE', 'functions of ' || quote_ident(n.nspname)
    FROM pg_catalog.pg_namespace AS n
    JOIN pg_catalog.pg_proc AS p ON p.pronamespace = n.oid
    CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
    WHERE n.nspname = $1 AND a.grantee = 0 AND p.prosecdef
    UNION ALL
    SELECT a.grantee, a.privilege_type, 'schema ' || quote_ident(n.nspname)
    FROM pg_catalog.pg_namespace AS n
    CROSS JOIN LATERAL aclexplode(n.nspacl) AS a
    WHERE n.nspname = $1 AND a.grantee <> n.nspowner AND a.privilege_type = 'CREATE'
) AS r
GROUP BY r.grantee, r.place
ORDER BY 1, 3
LIMIT 100;

-- name: server_path
-- Who else may create something in a schema of the path that the role has by itself, superusers apart.
-- Rows: which role, which schema, what takes the right away.
WITH chosen AS MATERIALIZED (
    SELECT set_config('search_path', s.reset_val, true) AS path
    FROM pg_catalog.pg_settings AS s
    WHERE s.name = 'search_path'
), rights AS (
    SELECT n.nspname, a.grantee
    FROM chosen
    -- Only after the path was set: it is set by what stands before THEN.
    CROSS JOIN LATERAL unnest(CASE WHEN chosen.path IS NOT NULL THEN current_schemas(false) END)
        AS p (name)
    JOIN pg_catalog.pg_namespace AS n ON n.nspname = p.name
    CROSS JOIN LATERAL aclexplode(n.nspacl) AS a
    WHERE a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner
        AND a.grantee <> (SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user)
        AND NOT EXISTS (
            SELECT FROM pg_catalog.pg_roles AS r WHERE r.oid = a.grantee AND r.rolsuper
        )
)
SELECT DISTINCT
    w.who,
    quote_ident(r.nspname),
    format('REVOKE CREATE ON SCHEMA %I FROM %s', r.nspname, w.who)
FROM rights AS r
CROSS JOIN LATERAL (
    SELECT CASE r.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(r.grantee)) END
) AS w (who)
ORDER BY 2, 1
LIMIT 100;

-- name: server_facts
-- A standby; may this role see what others do; how many standbys are attached.
SELECT
    pg_is_in_recovery(),
    pg_has_role('pg_read_all_stats', 'USAGE'),
    (SELECT count(*) FROM pg_catalog.pg_stat_replication)::bigint;

-- name: server_old_transactions
-- $1: how long is long, in microseconds; $2: how many transactions are many. Whoever keeps dead rows
-- of this database alive: who; since when and for how many microseconds (NULL: not known); age in
-- transactions; what ends it.
SELECT
    h.who,
    h.since,
    (extract(epoch FROM clock_timestamp() - h.since) * 1000000)::bigint,
    h.age,
    h.cure
FROM (
    SELECT
        format('process %s (%s)', a.pid, concat_ws(', ',
            CASE WHEN a.application_name <> '' THEN 'application ' || a.application_name END,
            'user ' || a.usename, a.state)) AS who,
        a.xact_start AS since,
        greatest(age(a.backend_xmin), age(a.backend_xid))::bigint AS age,
        format('SELECT pg_terminate_backend(%s)', a.pid) AS cure
    FROM pg_catalog.pg_stat_activity AS a
    WHERE a.datname = current_database()
        AND a.pid <> pg_backend_pid()
        AND a.backend_type = 'client backend'
        AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
        AND a.xact_start < clock_timestamp() - $1 * interval '1 microsecond'
    UNION ALL
    SELECT
        format('the prepared transaction %L of %s', p.gid, p.owner),
        p.prepared,
        age(p.transaction)::bigint,
        format('COMMIT PREPARED %L or ROLLBACK PREPARED %L', p.gid, p.gid)
    FROM pg_catalog.pg_prepared_xacts AS p
    WHERE p.database = current_database()
        AND p.prepared < clock_timestamp() - $1 * interval '1 microsecond'
    UNION ALL
    SELECT
        format('the replication slot %I%s', s.slot_name,
            CASE WHEN s.active THEN '' ELSE ', which nobody uses,' END),
        NULL,
        age(s.xmin)::bigint,
        format('SELECT pg_drop_replication_slot(%L)', s.slot_name)
    FROM pg_catalog.pg_replication_slots AS s
    WHERE age(s.xmin) >= $2
    UNION ALL
    SELECT
        format('the standby %s with hot_standby_feedback', r.application_name),
        NULL,
        age(r.backend_xmin)::bigint,
        'end the long query on the standby'
    FROM pg_catalog.pg_stat_replication AS r
    WHERE age(r.backend_xmin) >= $2
        AND NOT EXISTS (
            SELECT FROM pg_catalog.pg_replication_slots AS s WHERE s.active_pid = r.pid
        )
) AS h
ORDER BY h.since NULLS LAST, h.who;

-- name: server_safe_kept
-- $1: how long is long, in microseconds. Who has locked the row of weir.safe: who, which row, since
-- when and for how many microseconds, what ends it. Whoever this role may not see is left out.
SELECT
    h.who,
    h.place,
    h.since,
    (extract(epoch FROM clock_timestamp() - h.since) * 1000000)::bigint,
    h.cure
FROM (
    SELECT
        CASE WHEN p.gid IS NOT NULL THEN format('the prepared transaction %L of %s', p.gid, p.owner)
            ELSE format('process %s (%s)', a.pid, concat_ws(', ',
                CASE WHEN a.application_name <> '' THEN 'application ' || a.application_name END,
                'user ' || a.usename, a.state))
        END AS who,
        'weir.safe'::text AS place,
        coalesce(p.prepared, a.xact_start) AS since,
        CASE WHEN p.gid IS NOT NULL
            THEN format('COMMIT PREPARED %L or ROLLBACK PREPARED %L', p.gid, p.gid)
            ELSE format('SELECT pg_terminate_backend(%s)', a.pid)
        END AS cure
    FROM weir.safe AS s
    JOIN pg_catalog.pg_locks AS l
        ON l.locktype = 'transactionid' AND l.granted AND l.mode = 'ExclusiveLock'
            AND l.transactionid = s.xmax
    LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
    LEFT JOIN pg_catalog.pg_prepared_xacts AS p ON p.transaction = l.transactionid
    WHERE l.pid IS DISTINCT FROM pg_backend_pid()
) AS h
WHERE h.since < clock_timestamp() - $1 * interval '1 microsecond';

-- name: server_tables
-- $1: the name of the schema. Rows that are dead and still there, and whether vacuuming was turned off
-- for that table.
SELECT
    format('%I.%I', t.schemaname, t.relname),
    t.n_dead_tup,
    t.n_live_tup,
    pg_relation_size(t.relid),
    coalesce('autovacuum_enabled=false' = ANY (c.reloptions)
        OR 'autovacuum_enabled=off' = ANY (c.reloptions), false)
FROM pg_catalog.pg_stat_user_tables AS t
JOIN pg_catalog.pg_class AS c ON c.oid = t.relid
WHERE t.schemaname = $1
ORDER BY t.relname;
