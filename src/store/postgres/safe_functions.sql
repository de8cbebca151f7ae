-- safe_functions.sql - keeping how far the log is final.

-- name: safe_functions
-- A hint for others, written now and then by whoever advanced. It only grows, never names more than
-- there is, and waits for nobody: who finds the row taken leaves it. It may be lost with the power,
-- because everybody can find it out again; so this commit does not wait for the disk.
CREATE OR REPLACE FUNCTION weir.safe_advance(to_position bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM 1 FROM weir.safe WHERE position < to_position FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE weir.safe SET position = to_position
         WHERE position < to_position
           AND EXISTS (SELECT FROM weir.events WHERE id = to_position);
    END IF;
END
$$;
