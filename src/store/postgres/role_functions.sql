-- role_functions.sql - which role may call which function.
--
-- What must stay true:
--   * a role has USAGE of the schema, SELECT on its tables, and EXECUTE on what its kind needs: no
--     right to write a table or to take a position. Functions that write are SECURITY DEFINER, and
--     each must be safe whatever its caller passes;
--   * a function that is not in the list below is called by other functions only, or by the owner.
--     Nothing is for PUBLIC.

-- name: role_functions
-- Gives a role what its kind needs, and takes from it what another kind had. Each kind may do what
-- the ones before it may: a reader looks (and says how far the log is final: weir.safe_prove proves
-- that for itself, and without it each reader would begin at the oldest gap), a writer appends, a worker has reactions, leases and locks,
-- an operator changes what others do.
CREATE OR REPLACE FUNCTION weir.grant_role(to_role text, kind text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kinds CONSTANT text[] := '{reader, writer, worker, operator}';
    place record;
    callable regprocedure;
BEGIN
    IF (kind = ANY (kinds)) IS NOT TRUE THEN
        RAISE EXCEPTION 'a role is granted as %, not as "%"', array_to_string(kinds, ', '), kind
            USING ERRCODE = {error_invalid};
    END IF;
    SELECT c.relnamespace AS id, n.nspname AS name, pg_get_userbyid(c.relowner) AS owner INTO place
      FROM pg_class AS c
      JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.oid = 'weir.store'::regclass;
    IF place.owner = to_role THEN
        RETURN; -- it has every right, and its functions need all of them
    END IF;
    PERFORM pg_advisory_xact_lock({store_lock}, hashtext(place.name));
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', place.name, to_role);
    EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO %I', place.name, to_role);
    EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM %I', place.name, to_role);
    FOR callable IN
        SELECT p.oid::regprocedure
          FROM (VALUES
                   ('reader', '{clock, clock_us, fetch, fetch_small, is_wanted, number, poll}'::text[]),
                   ('reader', '{position_of_time, safe_prove, sent_bytes, server, skip_state}'),
                   ('reader', '{small_data, streams_page, version_base, version_from}'),
                   ('writer', '{append_any, append_batch, append_one, safe_advance}'),
                   ('worker', '{declare, fenced, lease, lock_extend, lock_release}'),
                   ('worker', '{lock_take, once_finish, route, router_lease, settle}'),
                   ('worker', '{settle_with, snapshot_put, turn, worker_beat}'),
                   ('operator', '{lane_pause, once_forget, operate, operate_reset}'),
                   ('operator', '{operate_skip, parked_drop, parked_retry, retire}'),
                   ('operator', '{snapshot_drop}')
               ) AS l (kind, names)
          JOIN pg_proc AS p ON p.pronamespace = place.id AND p.proname = ANY (l.names)
         WHERE array_position(kinds, l.kind) <= array_position(kinds, grant_role.kind)
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', callable, to_role);
    END LOOP;
END
$$;

-- The roles that were granted something, and as what: the most that they may. An upgrade asks this after
-- it has dropped functions that have changed, so those that are looked for here must never be dropped. A role of schema 1 had
-- every function, so it is an operator.
CREATE OR REPLACE FUNCTION weir.granted_roles() RETURNS TABLE (role text, kind text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_get_userbyid(a.grantee)::text,
           CASE max(m.number) WHEN 4 THEN 'operator' WHEN 3 THEN 'worker' WHEN 2 THEN 'writer'
                              ELSE 'reader' END
      FROM pg_class AS c
      JOIN pg_proc AS p ON p.pronamespace = c.relnamespace
      JOIN unnest('{poll, safe_advance, lease, operate}'::name[]) WITH ORDINALITY AS m (name, number)
           ON m.name = p.proname
     CROSS JOIN LATERAL aclexplode(p.proacl) AS a
     WHERE c.oid = 'weir.store'::regclass AND a.privilege_type = 'EXECUTE'
       AND a.grantee NOT IN (0, p.proowner)
     GROUP BY a.grantee
$$;
