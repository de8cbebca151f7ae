-- worker_functions.sql - who works on the store: see WORKERS in store.h.

-- name: worker_functions
-- The one function whose commit need not be durable: what it writes is a hint, and a beat that
-- waits for a flush would cost more than it is worth. Rows are few, those of an hour: none of its
-- statements needs more than a look at all of them, and without an index on the times a beat is a
-- HOT update.
CREATE OR REPLACE FUNCTION weir.worker_beat(
    its_name text, its_host text, its_pid bigint, its_lanes text[], its_reactions bigint[],
    its_numbers bigint[], is_draining boolean, lease_us bigint, kept_us bigint, forget_max bigint,
    its_metrics text)
RETURNS void
{writing}
AS $$
DECLARE
    started bigint := weir.clock_us();
    ends bigint := CASE {lease_from_started} END;
BEGIN
    PERFORM weir.check_names('worker', ARRAY[its_name], true);
    PERFORM weir.check_names('lane', its_lanes, true);
    IF num_nulls(its_host, its_pid, its_lanes, its_reactions, its_numbers, is_draining, lease_us,
                 kept_us, forget_max, its_metrics) > 0
       OR lease_us < -1 OR kept_us < 0 OR forget_max < 0 -- -1: it has ended
       OR its_pid < 0 OR NOT (its_host = '' OR weir.is_text(its_host))
       OR octet_length(its_metrics) > {metrics_bytes} OR strpos(its_metrics, chr(10)) > 0
       OR cardinality(its_reactions) <> cardinality(its_numbers)
       OR array_ndims(its_reactions) > 1 OR array_ndims(its_numbers) > 1
       OR array_ndims(its_lanes) > 1
       OR array_position(its_reactions, NULL) IS NOT NULL
       OR array_position(its_numbers, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'worker "%" says what cannot be kept', its_name
            USING ERRCODE = {error_invalid},
                  HINT = 'Nothing of it may be null, no number is negative, texts have no control '
                         'characters and are not too long, and each reaction has one number.';
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    IF lease_us = 0 THEN
        DELETE FROM weir.workers AS w WHERE w.name = its_name;
    ELSE
        -- Not an upsert alone: that would use up an id each time.
        UPDATE weir.workers AS w
           SET host = its_host, pid = its_pid, lanes = its_lanes, reactions = its_reactions,
               numbers = its_numbers, draining = is_draining, lease_until = ends,
               metrics = its_metrics,
               since = CASE WHEN w.lease_until <= started - kept_us THEN started ELSE w.since END
         WHERE w.name = its_name;
        IF NOT FOUND THEN
            -- DO NOTHING: two beats of one worker at once; the other's will do.
            INSERT INTO weir.workers (name, host, pid, lanes, reactions, numbers, draining, since,
                                      lease_until, metrics)
            VALUES (its_name, its_host, its_pid, its_lanes, its_reactions, its_numbers,
                    is_draining, started, ends, its_metrics)
            ON CONFLICT (name) DO NOTHING;
        END IF;
    END IF;
    -- Whom somebody else is just forgetting, or renewing, is left to them.
    DELETE FROM weir.workers AS w
     WHERE w.id = ANY (ARRAY(SELECT o.id
                               FROM weir.workers AS o
                              WHERE o.lease_until <= started - kept_us
                              LIMIT forget_max
                                FOR UPDATE SKIP LOCKED));
END
$$;
