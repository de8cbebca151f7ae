#!/usr/bin/env bash
# cli_path_test.sh - Weir's own SQL calls nothing that another role has put in the way: every command, with a decoy
# for every function, operator, type and relation of pg_catalog, which raises an error and counts that it was met.
# Run by tests/postgres/with-server. With "pooler": through PgBouncer in transaction mode, where the role's path has to
# be set instead, as doctor says.
. "$(dirname "$0")/tap.sh" || exit 1
cd "$tmp" || exit 1
chmod 755 "$tmp"
export PGHOST=$WEIR_TEST_PG_DIR PGUSER=postgres PATH=$WEIR_TEST_PG_BIN:$PATH
weir() { "$WEIR" "$@"; }
sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 -d path "$@"; }

# Decoys of the same types, in a schema that the owner's path has before pg_catalog: whatever is looked up by that
# path meets one. $1: the schema; $2: which operand types operators have ("" for all).
decoys() {
    sql -v place="$1" -v operands="$2" <<'SQL' 2>"$tmp/decoys" || diag "$(tail -3 "$tmp/decoys")"
SET search_path = pg_catalog;
SET client_min_messages = error;
CREATE SCHEMA :"place";
CREATE SEQUENCE :"place".met;
SELECT set_config('decoys.place', :'place', false), set_config('decoys.operands', :'operands', false);
DO $do$
DECLARE
    place text := quote_ident(current_setting('decoys.place'));
    operands text[] := string_to_array(nullif(current_setting('decoys.operands'), ''), ',');
    body text := 'BEGIN PERFORM pg_catalog.nextval(' || quote_literal(place || '.met')
        || '); RAISE EXCEPTION ''decoy %L was met''; END';
    x record;
    made integer := 0;
BEGIN
    FOR x IN SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS arguments,
                    (SELECT string_agg(CASE WHEN p.provariadic <> 0 AND a.place = p.pronargs THEN 'VARIADIC ' ELSE '' END
                                || replace(format_type(a.type, NULL), '"any"', 'anyelement'), ', ' ORDER BY a.place)
                       FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (type, place)) AS types,
                    CASE WHEN p.prorettype IN ('record'::regtype, 'internal'::regtype, 'trigger'::regtype)
                         THEN 'integer' ELSE format_type(p.prorettype, NULL) END AS result
               FROM pg_proc AS p WHERE p.pronamespace = 'pg_catalog'::regnamespace
    LOOP
        BEGIN
            EXECUTE format('CREATE FUNCTION %s.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', place, x.proname,
                           replace(x.types, 'VARIADIC anyelement', 'VARIADIC anyarray'), x.result,
                           replace(body, '%L', x.proname));
            made := made + 1;
        EXCEPTION WHEN OTHERS THEN NULL; -- of types that such functions cannot have: nobody calls those by hand
        END;
    END LOOP;
    FOR x IN SELECT o.oid, o.oprname, format_type(o.oprleft, NULL) AS l, format_type(o.oprright, NULL) AS r,
                    o.oprleft, format_type(o.oprresult, NULL) AS result
               FROM pg_operator AS o WHERE o.oprnamespace = 'pg_catalog'::regnamespace
                AND (operands IS NULL OR format_type(o.oprright, NULL) = ANY (operands))
    LOOP
        BEGIN
            EXECUTE format('CREATE FUNCTION %s.operator_%s(%s%s) RETURNS %s LANGUAGE plpgsql AS %L', place, x.oid,
                           CASE WHEN x.oprleft <> 0 THEN x.l || ', ' ELSE '' END, x.r, x.result,
                           replace(body, '%L', 'operator ' || x.oprname));
            EXECUTE format('CREATE OPERATOR %s.%s (%s RIGHTARG = %s, FUNCTION = %s.operator_%s)', place, x.oprname,
                           CASE WHEN x.oprleft <> 0 THEN 'LEFTARG = ' || x.l || ',' ELSE '' END, x.r, place, x.oid);
            made := made + 1;
        EXCEPTION WHEN OTHERS THEN NULL;
        END;
    END LOOP;
    FOR x IN SELECT c.relname FROM pg_class AS c
              WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v') LOOP
        BEGIN
            EXECUTE format('CREATE VIEW %s.%I AS SELECT * FROM pg_catalog.%I WHERE %s.pg_backend_pid() > 0', place,
                           x.relname, x.relname, place);
            made := made + 1;
        EXCEPTION WHEN OTHERS THEN NULL;
        END;
    END LOOP;
    FOR x IN SELECT t.typname FROM pg_type AS t
              WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typname IN ('text', 'oid', 'name', 'json', 'regclass', 'regproc', 'timestamptz', 'int8', 'bytea') LOOP
        EXECUTE format('CREATE DOMAIN %s.%I AS pg_catalog.%I CHECK (%s.pg_backend_pid() > 0)', place, x.typname,
                       x.typname, place);
        made := made + 1;
    END LOOP;
    PERFORM set_config('decoys.made', made::text, false);
END
$do$;
GRANT USAGE ON SCHEMA :"place" TO PUBLIC;
GRANT ALL ON ALL SEQUENCES IN SCHEMA :"place" TO PUBLIC;
SELECT current_setting('decoys.made');
SQL
}
met() { sql -c "SELECT is_called FROM $1.met"; }

createdb path
sql -c 'CREATE ROLE shop LOGIN SUPERUSER'
made=$(decoys decoys '' | tail -1)
ok "there are thousands of decoys ($made)" test "$made" -gt 3000
made=$(decoys few 'name,oid,"char",smallint,regproc' | tail -1)
ok "and a few operators among others ($made)" test "$made" -gt 2500
sql -c "DO \$\$ DECLARE f regprocedure; BEGIN
    FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'few'::regnamespace
        AND proname IN ('clock_timestamp', 'count', 'row_number') LOOP EXECUTE 'DROP ROUTINE ' || f; END LOOP; END \$\$"
# A pooler keeps sessions that have the path from before.
path_set() {
    sql -c "ALTER ROLE shop SET search_path = $1" \
        -c "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'shop'" >/dev/null
}
path_set 'decoys, pg_catalog'
not_ok "a statement of the role meets them" psql -X -q -U shop -d path -c 'SELECT 1 + 1'
is "which is counted" "$(met decoys)" t
sql -c "SELECT setval('decoys.met', 1, false)" >/dev/null
is "and forgotten" "$(met decoys)" f

level=note
if [ "${1:-}" = pooler ]; then
    level=finding
    command -v pgbouncer >/dev/null || { diag "no pgbouncer"; done_testing; exit; }
    cat >bouncer.ini <<INI
[databases]
path = host=$PGHOST dbname=path
[pgbouncer]
listen_addr =
unix_socket_dir = $tmp
listen_port = 6432
auth_type = any
pool_mode = transaction
logfile = $tmp/bouncer.log
pidfile = $tmp/bouncer.pid
ignore_startup_parameters = extra_float_digits
INI
    sed -i 's|^path = .*|& user=shop|' bouncer.ini
    as=()
    if [ "$(id -u)" = 0 ]; then chmod 777 "$tmp"; as=(setpriv --reuid nobody --clear-groups); fi
    "${as[@]}" pgbouncer bouncer.ini >/dev/null 2>&1 &
    spawned $!
    wait_for "the pooler" psql -X -q -h "$tmp" -p 6432 -U shop -d path -c 'SHOW server_version'
    path_set pg_catalog
    export WEIR_STORE="postgres://shop@/path?host=$tmp&port=6432&direct=$PGHOST:5432"
else
    export WEIR_STORE=postgres://shop@/path
fi

command_ok() { ok "$*" timeout 60 "$WEIR" "$@"; }
command_ok init
sql -c 'CREATE ROLE someone LOGIN'
command_ok init --grant someone --as operator
command_ok append order-1 Placed '{"n":1}' --expect none
command_ok append order-1 Placed '{"n":2}' --key one
command_ok append order-1 Placed '{"n":2}' --key one
command_ok append order-2 Placed '{"n":3}' --reserve email-1
printf '%s\n' '{"stream":"order-3","name":"Placed","data":{}}' '{"stream":"order-4","name":"Placed","data":{}}' >batch.jsonl
ok "append of many" timeout 60 "$WEIR" append --batch batch.jsonl
command_ok close order-2
command_ok read order-1
command_ok read order-1 --from 1 --limit 1
command_ok log
command_ok log --name Placed --since 2020-01-01
command_ok log --category order --limit 2
command_ok streams
command_ok streams --match 'order-*'
command_ok status
command_ok work --on Placed --to 'mail-{stream}' --run true --name mail --from start --until-idle
status "a handler that fails" 1 timeout 60 "$WEIR" work --on Placed --to 'bad-{stream}' --run 'exit 1' --name bad \
    --from start --retries 0 --until-idle
for command in targets 'targets --blocked' 'reactions ls' 'parked ls' 'why bad-order-1' why locks 'once --list' 'status --metrics' \
    'pause bad-order-1' 'resume bad-order-1' 'pause --lane default' 'resume --lane default' 'prioritize 5 bad-order-1' \
    'unblock bad-order-1' 'skip bad-order-1 --yes' 'reset mail-order-1 --to start --yes' 'lock job -- true' 'once job -- true' \
    'once job -- true' 'once --forget job --yes' 'reactions retire bad'; do
    # shellcheck disable=SC2086 # words of a command
    command_ok $command
done
run timeout 60 "$WEIR" doctor
is "doctor finds nothing but what the handler left" "$(grep -o '"level":"finding","rule":"[a-z-]*"' <<<"$out" | sort -u | grep -v 'blocked\|parked\|durability')" ''
ok "follow" timeout 60 "$WEIR" log --follow --limit 2
is "C56_no_decoy_of_another_role_is_called" "$(met decoys)" f

# Tables of the user's are found, and compared, as the role's path says; what Weir asks the catalogue is not. A claim is
# about columns whose operators may be the user's own, so it sees that path as well.
path_set 'few, pg_catalog, mine'
sql -c 'CREATE SCHEMA mine' -c "CREATE TABLE mine.jobs (id bigint PRIMARY KEY, status text, claimed_by text, claimed_at timestamptz, locked_until timestamptz)" \
    -c "INSERT INTO mine.jobs SELECT i, 'new' FROM generate_series(1, 5) AS i"
for more in --dry-run --sql ''; do
    # shellcheck disable=SC2086
    command_ok claim --table jobs --where "status = 'new'" --set status=taken --lease 5m $more
done
ok "a program for each row" timeout 60 "$WEIR" claim --table jobs --where "status = 'new'" --set status=taken --lease 5m \
    --run true --done status=done
status "a table that is not there" 1 timeout 60 "$WEIR" claim --table jubs --where "status = 'new'" --set status=taken
like "is not taken for another one" "$errout" 'jobs'
status "a row held by a transaction" 0 timeout 60 "$WEIR" claim --table jobs --where "status = 'done'" --hold --run true
ok "so many for each value" timeout 60 "$WEIR" claim --table jobs --where "status = 'done'" --set status=again --lease 5m \
    --max-per claimed_by=1
is "C56_no_decoy_is_called_about_a_table" "$(met few)" f

# Who may put something there is told.
path_set 'mine, public'
sql -c 'GRANT CREATE ON SCHEMA mine TO someone' \
    -c 'GRANT CREATE ON SCHEMA public TO PUBLIC'
run timeout 60 "$WEIR" doctor
like "doctor names a role" "$out" "\"level\":\"$level\",\"rule\":\"path\".*REVOKE CREATE ON SCHEMA mine FROM someone"
like "and everybody" "$out" 'REVOKE CREATE ON SCHEMA public FROM PUBLIC'
sql -c 'REVOKE CREATE ON SCHEMA mine FROM someone' -c 'REVOKE CREATE ON SCHEMA public FROM PUBLIC'
run timeout 60 "$WEIR" doctor
is "until that is taken away" "$(grep '"rule":"path"' <<<"$out")" ''

done_testing
