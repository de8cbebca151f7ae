-- safe_functions.sql - keeping how far the log is final.
--
-- What must stay true: weir.safe.position is final, with any caller and any argument. All readers
-- begin there, so one position too many is an event that is never read.

-- name: safe_functions
-- Moves the hint towards to_position, as far as it can be proved here and now; gives how far it is.
-- The caller only says that it may be worth a look. It waits for nobody: if the row is locked, it
-- leaves it alone. Two proofs, the cheap one first:
--   * positions that follow each other without a gap are all there;
--   * the rule of safe.sql, in two calls. The first keeps the highest position that it sees (top),
--     and then who holds the store's lock (holders). A transaction that owns a position up to top
--     and has not ended is among them, because it takes the lock before its position. When a later
--     call, by anybody, finds them gone, top is final. If there is no holder at all, one call is
--     enough. A holder that was prepared has another name, and no process: while there is one,
--     nothing is proved. Names mean nothing on another server, so what was kept there is forgotten.
-- No snapshot has a say, for pg_locks has none: a caller may be in any kind of transaction. Events of
-- its own that it has not committed count for it; so does what it writes here, together with them.
-- What is written may be lost with the power, because it can be found out again; so this commit does
-- not wait for the disk.
CREATE OR REPLACE FUNCTION weir.safe_prove(to_position bigint) RETURNS bigint
{as_owner}
{looked_up}
AS $$
DECLARE
    kept record;
    now_server bigint;
    now_top bigint;
    now_holders text[];
    is_prepared boolean;
    proved bigint;
BEGIN
    SELECT s.position, s.top, s.holders, s.server INTO kept
      FROM weir.safe AS s FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND OR kept.position >= to_position THEN
        RETURN kept.position;
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT coalesce(max(i.id) FILTER (WHERE i.id - kept.position = i.number), kept.position)
      INTO proved
      FROM (SELECT e.id, row_number() OVER (ORDER BY e.id) AS number
              FROM (SELECT x.id FROM weir.events AS x WHERE x.id > kept.position
                     ORDER BY x.id LIMIT 10000) AS e) AS i;
    IF proved < to_position THEN
        now_server := weir.server();
        SELECT coalesce(max(e.id), 0) INTO now_top FROM weir.events AS e;
        -- In a statement after that.
        SELECT coalesce(array_agg(l.virtualtransaction), '{}'),
               coalesce(bool_or(l.pid IS NULL), false)
          INTO now_holders, is_prepared
          FROM (SELECT weir.number() AS number) AS s
          JOIN pg_locks AS l
            ON {is_store_lock};
        IF kept.server IS DISTINCT FROM now_server THEN
            kept.top := 0;
        END IF;
        IF NOT is_prepared AND now_holders = '{}' THEN
            proved := greatest(proved, now_top);
        ELSIF NOT is_prepared AND NOT kept.holders && now_holders THEN
            proved := greatest(proved, kept.top);
        END IF;
        IF kept.top <= proved THEN
            kept.top := now_top;
            kept.holders := now_holders;
            kept.server := now_server;
        END IF;
    END IF;
    UPDATE weir.safe AS s
       SET position = proved, top = kept.top, holders = kept.holders, server = kept.server
     WHERE (s.position, s.top, s.server) <> (proved, kept.top, kept.server);
    RETURN proved;
END
$$;

-- As programs of schema 1 call it.
CREATE OR REPLACE FUNCTION weir.safe_advance(to_position bigint) RETURNS void
{as_owner}
AS $$
BEGIN
    PERFORM weir.safe_prove(to_position);
END
$$;
