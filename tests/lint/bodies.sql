-- Claims inside functions. These are bodies already: no variant puts them into another one.

-- case: a function that claims
-- skip: function, cte
CREATE OR REPLACE FUNCTION claim_job(worker text) RETURNS SETOF jobs LANGUAGE plpgsql AS $$
DECLARE
    job jobs%ROWTYPE;
BEGIN
    SELECT * INTO job FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        PERFORM pg_sleep(1);
        RETURN;
    END IF;
    UPDATE jobs SET status = 'running', worker = claim_job.worker WHERE id = job.id;
    RETURN NEXT job;
END;
$$;

-- case: a function that forgets the lock
-- skip: function, cte
CREATE FUNCTION claim_job() RETURNS bigint LANGUAGE plpgsql AS $function$
DECLARE
    job_id bigint;
BEGIN
    SELECT id INTO STRICT job_id FROM jobs -- expect: no-row-lock
     WHERE status = 'pending' ORDER BY id LIMIT 1;
    UPDATE jobs SET status = 'running' WHERE id = job_id;
    RETURN job_id;
END
$function$;

-- case: a loop over rows, and a call for each
-- skip: function, cte
CREATE PROCEDURE drain() LANGUAGE plpgsql AS $$
DECLARE
    r record;
BEGIN
    <<rows>>
    FOR r IN SELECT id FROM jobs WHERE status = 'pending' -- expect: no-order, no-limit
               FOR UPDATE SKIP LOCKED LOOP
        IF CASE WHEN r.id > 5 THEN true ELSE false END THEN
            PERFORM http_get('https://example.org'); -- expect: work-under-lock
        ELSE
            RAISE NOTICE 'FOR UPDATE SKIP LOCKED';
        END IF;
        UPDATE jobs SET status = 'done' WHERE id = r.id;
    END LOOP rows;
END
$$;

-- case: a procedure commits
-- skip: function, cte
CREATE PROCEDURE one() LANGUAGE plpgsql AS $$
DECLARE
    job bigint;
BEGIN
    SELECT id INTO job FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED;
    UPDATE jobs SET status = 'running' WHERE id = job;
    COMMIT;
    PERFORM http_get('https://example.org');
    UPDATE jobs SET status = 'done' WHERE id = job;
END
$$;

-- case: RETURN QUERY
-- skip: function, cte
CREATE FUNCTION take(n integer) RETURNS SETOF jobs LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY UPDATE jobs SET status = 'running'
     WHERE id IN (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT n FOR UPDATE SKIP LOCKED) -- expect: limit-not-kept
    RETURNING *;
END
$$;

-- case: a cursor
-- skip: function, cte
CREATE FUNCTION walk() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    c CURSOR FOR SELECT id FROM jobs WHERE status = 'pending' LIMIT 5 FOR UPDATE SKIP LOCKED; -- expect: no-order
BEGIN
    OPEN c;
    FETCH c INTO job;
    UPDATE jobs SET status = 'running' WHERE CURRENT OF c;
END
$$;

-- case: a body in SQL
-- skip: function, cte
CREATE FUNCTION take() RETURNS SETOF jobs LANGUAGE sql AS $_$
    UPDATE jobs SET status = 'running'
     WHERE id IN (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED) -- expect: limit-not-kept
    RETURNING *;
$_$;

-- case: a body without quotes
-- skip: function, cte
CREATE FUNCTION take() RETURNS SETOF jobs LANGUAGE sql
BEGIN ATOMIC
    SELECT CASE WHEN true THEN 1 END;
    UPDATE jobs SET status = 'running'
     WHERE id IN (SELECT id FROM jobs WHERE status = 'pending' ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED) -- expect: limit-not-kept
    RETURNING *;
END;
SELECT 1;

-- case: a body in plain quotes
-- skip: function, cte
CREATE FUNCTION take() RETURNS SETOF jobs LANGUAGE sql AS '
    UPDATE jobs SET status = ''running''
     WHERE id IN (SELECT id FROM jobs WHERE status = ''pending'' ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED)
    RETURNING *;
'; -- expect-at: 3 limit-not-kept

-- case: a block
-- skip: function, cte
DO $do$
BEGIN
    EXECUTE $sql$ SELECT 'what is a string is not read' FOR UPDATE SKIP LOCKED $sql$;
    PERFORM id FROM jobs WHERE status = 'pending' LIMIT 1 FOR UPDATE SKIP LOCKED; -- expect: no-order
    UPDATE jobs SET status = 'running' WHERE id = 1;
END
$do$ LANGUAGE plpgsql;

-- case: a body in another language
-- skip: function, cte
CREATE FUNCTION take() RETURNS integer LANGUAGE plpython3u AS $$
plpy.execute("SELECT id FROM jobs LIMIT 1 FOR UPDATE SKIP LOCKED")  # it's not SQL
$$;

-- case: a key that a body makes
-- skip: function, cte
CREATE FUNCTION pay() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    idempotency_key text := 'pay-' || gen_random_uuid(); -- expect: key-changes
BEGIN
    idempotency_key := 'pay-' || clock_timestamp(); -- expect: key-changes
    idempotency_key := 'pay-' || 42;
END
$$;
