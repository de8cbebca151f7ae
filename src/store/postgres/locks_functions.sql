-- locks_functions.sql - named locks and keys of once: see LOCKS and ONCE in store.h.
--
-- A row is somebody's while its state is `lock_held`, and keeps others out while its lease has not ended. Its
-- row lock comes first, and then whatever is decided: the time and the fence are read with the row
-- in hand, so that of two that take a name one after the other the second has the later time and
-- the larger fence. A fence that was taken before the row (in an INSERT that may have to wait) could
-- be smaller than that of somebody who had the name, and gave it back, meanwhile.
-- Fences begin again where a log was cut off. The token tells a lock that was lost with it from the
-- one that somebody else has now; 0 stands for any.

-- name: locks_functions
CREATE OR REPLACE FUNCTION weir.check_lock_lease(lease_us bigint) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF (lease_us >= 0) IS NOT TRUE THEN
        RAISE EXCEPTION 'a lease of % us is none', lease_us USING ERRCODE = {error_invalid};
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION weir.lock_take(
    is_once boolean, its_name text, its_holder text, lease_us bigint)
RETURNS TABLE (taken boolean, holder_now text, fence_now bigint, since_now bigint, until_now bigint,
               state_now integer, exit_status_now bigint, ended_now bigint, output_now bytea,
               token_now bigint)
{writing}
{no_scans}
AS $$
DECLARE
    started bigint;
BEGIN
    PERFORM weir.commit_durably();
    PERFORM weir.check_names('lock', ARRAY[its_name], true);
    PERFORM weir.check_names('holder', array_remove(ARRAY[its_holder], ''), true);
    PERFORM weir.check_lock_lease(lease_us);
    LOOP
        PERFORM FROM weir.locks AS k
         WHERE k.once = is_once AND k.name = its_name
           FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        -- Nobody's: ours to take, or of somebody who was faster.
        INSERT INTO weir.locks (once, name) VALUES (is_once, its_name)
        ON CONFLICT (once, name) DO NOTHING;
    END LOOP;
    started := weir.clock_us();
    UPDATE weir.locks AS k
       SET holder = its_holder, fence = nextval('weir.lock_fences'),
           token = weir.new_token(), since = started,
           lease_until = CASE WHEN lease_us = 0 THEN 0
                              {lease_from_started} END,
           state = {lock_held}, exit_status = 0, ended = 0, output = ''
     WHERE k.once = is_once AND k.name = its_name
       AND NOT (k.state = {lock_done} OR (k.state = {lock_held} AND k.lease_until > started));
    taken := FOUND;
    RETURN QUERY
        SELECT taken, k.holder, k.fence, k.since, k.lease_until, k.state, k.exit_status, k.ended,
               k.output, k.token
          FROM weir.locks AS k
         WHERE k.once = is_once AND k.name = its_name;
END
$$;

CREATE OR REPLACE FUNCTION weir.lock_extend(
    is_once boolean, its_name text, its_fence bigint, its_token bigint, lease_us bigint)
RETURNS boolean
{writing}
{no_scans}
AS $$
DECLARE
    started bigint := weir.clock_us();
BEGIN
    PERFORM weir.commit_durably();
    PERFORM weir.check_lock_lease(lease_us);
    UPDATE weir.locks AS k
       SET lease_until = CASE WHEN k.lease_until = 0 THEN 0
                              {lease_from_started} END
     WHERE k.once = is_once AND {has_its_fence} AND k.state = {lock_held};
    RETURN FOUND;
END
$$;

CREATE OR REPLACE FUNCTION weir.lock_release(
    its_name text, its_fence bigint, its_token bigint)
RETURNS boolean
{writing}
{no_scans}
AS $$
BEGIN
    PERFORM weir.commit_durably();
    DELETE FROM weir.locks AS k
     WHERE NOT k.once AND {has_its_fence};
    RETURN FOUND;
END
$$;

CREATE OR REPLACE FUNCTION weir.once_finish(
    its_name text, its_fence bigint, its_token bigint, its_exit_status bigint, its_output bytea)
RETURNS boolean
{writing}
{no_scans}
AS $$
BEGIN
    PERFORM weir.commit_durably();
    IF (octet_length(its_output) <= {output_bytes} AND its_exit_status IS NOT NULL) IS NOT TRUE THEN
        RAISE EXCEPTION 'a run ends with a status and 0 to % bytes of output', {output_bytes}
            USING ERRCODE = {error_invalid};
    END IF;
    UPDATE weir.locks AS k
       SET state = CASE its_exit_status WHEN 0 THEN {lock_done} ELSE {lock_failed} END, exit_status = its_exit_status,
           ended = weir.clock_us(), output = its_output
     WHERE k.once AND {has_its_fence} AND k.state = {lock_held};
    -- With that fence and not running any more: it was finished before.
    RETURN FOUND OR EXISTS (SELECT
                              FROM weir.locks AS k
                             WHERE k.once AND {has_its_fence});
END
$$;

-- No row: there is no such key. Else taken says whether it was forgotten.
CREATE OR REPLACE FUNCTION weir.once_forget(its_name text)
RETURNS TABLE (taken boolean, holder_now text, fence_now bigint, since_now bigint, until_now bigint)
{writing}
{no_scans}
AS $$
DECLARE
    l record;
BEGIN
    PERFORM weir.commit_durably();
    SELECT k.holder, k.fence, k.since, k.lease_until, k.state INTO l
      FROM weir.locks AS k
     WHERE k.once AND k.name = its_name
       FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    taken := l.state <> {lock_held} OR l.lease_until <= weir.clock_us();
    IF taken THEN
        DELETE FROM weir.locks AS k WHERE k.once AND k.name = its_name;
    END IF;
    RETURN QUERY SELECT taken, l.holder, l.fence, l.since, l.lease_until;
END
$$;
