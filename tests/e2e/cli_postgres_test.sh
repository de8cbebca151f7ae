#!/usr/bin/env bash
# cli_postgres_test.sh - the program on PostgreSQL: every command, the examples of docs/postgres.md and of the help,
# init from many processes, roles, errors that say what to do, passwords that are never shown, a pooler,
# a standby. Run by tests/postgres/with-server.
# shellcheck disable=SC2016 # what bash -c runs expands there
. "$(dirname "$0")/tap.sh" || exit 1
. "$(dirname "$0")/page.sh" || exit 1
cd "$tmp" || exit 1
chmod 755 "$tmp"
unset WEIR_STORE
export PGHOST=$WEIR_TEST_PG_DIR PGUSER=postgres
export PATH=$WEIR_TEST_PG_BIN:$PATH
mkdir bin && ln -s "$WEIR" bin/weir
export PATH=$tmp/bin:$PATH
as_server() { if [ "$(id -u)" = 0 ]; then (cd / && runuser -u "$WEIR_TEST_PG_USER" -- "$@"); else "$@"; fi; }

weir() { "$WEIR" "$@"; }
sql() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }

# ---- docs/postgres.md, as written ---------------------------------------------------------------

page_run "$WEIR_SOURCE/docs/postgres.md"
ok "docs/postgres.md has commands (it has $page_blocks blocks)" test "$page_blocks" -ge 2
is "they leave two events" "$(sql orders -c 'SELECT count(*) FROM weir.events')" 2
count=0
while IFS= read -r query; do
    count=$((count + 1))
    ok "docs/postgres.md: $query" psql -X -v ON_ERROR_STOP=1 -d orders -c "$query"
done < <(sed -n '/^```sql/,/^```/p' "$WEIR_SOURCE/docs/postgres.md" | grep -v '^```')
ok "docs/postgres.md has statements (it has $count)" test "$count" -ge 4

for command in init append read log streams targets status doctor; do
    while IFS= read -r line; do
        ok "weir $command --help: $line" bash -c "$line"
    done < <(weir "$command" --help | sed -n '/^Examples/,$s/^  //p' | grep postgres:)
done

# ---- every command -----------------------------------------------------------------------------

createdb shop
export WEIR_STORE="postgres:///shop?schema=Odd%20one"
for command in "read a" log streams "close a" status doctor targets "log --follow"; do
    # shellcheck disable=SC2086
    status "weir $command without a store is exit status 3" 3 timeout 20 "$WEIR" $command
    like "weir $command: says what to do" "$errout" '"code":"not-found".*weir init'
done
is "none of them made anything" "$(sql shop -c "SELECT count(*) FROM pg_namespace WHERE nspname ~ 'ne'")" 0
ok "init --plan" weir init --plan
printf '%s\n' "$out" >plan.sql
is "makes nothing" "$(sql shop -c "SELECT count(*) FROM pg_namespace WHERE nspname ~ 'ne'")" 0
ok "the plan is SQL that psql runs" psql -X -q -v ON_ERROR_STOP=1 -d shop -f plan.sql
ok "and makes what init makes: doctor has no complaint about it" weir doctor
is "not even a note" "$(grep -c '"rule":"schema"' <<<"$out")" 0
ok "init of what is there" weir init
is "changes nothing" "$out" '{"store":"postgres:///shop?schema=Odd one","schema":3,"created":false,"upgraded":false}'
ok "init --plan of what is up to date" weir init --plan
is "has nothing to do" "$out" ""
ok "append" weir append order-1 OrderPlaced '{"total":40}' --expect none --key k1 --reserve email:a
like "says where it went" "$out" '^\{"stream":"order-1","first":0,"last":0,"id":1,"replayed":false\}$'
ok "append again, with its key" weir append order-1 OrderPlaced '{"total":40}' --expect none --key k1 --reserve email:a
like "is a replay" "$out" '"replayed":true'
status "a conflict is exit status 4" 4 weir append order-1 OrderPaid --expect none
is "and says where the stream is" "$errout" '{"error":{"code":"conflict","message":"conflict on order-1: expected no such stream, it is at 0","stream":"order-1","expected":"none","actual":0}}'
status "a taken key too" 4 weir append order-2 OrderPlaced --reserve email:a
seq 1 2000 | sed 's/.*/{"stream":"bulk-&","name":"Noted","data":{"n":&}}/' >batch.jsonl
ok "a batch of 2,000 lines" weir append --batch batch.jsonl
like "commits them" "$out" '"committed":2000'
ok "read" weir read order-1
is "gives back what was put in" "$(wc -l <<<"$out")" 1
ok "log, filtered" weir log --category bulk --after 1 --limit 3
is "as asked" "$(grep -c '"stream":"bulk-[123]"' <<<"$out")" 3
ok "streams" weir streams --match 'bulk-19*'
ok "status" weir status
like "has a server" "$out" '"server":\{"database":"shop","schema":"Odd one","user":"postgres","standby":false,"pooled":false\}'
like "and the positions" "$out" '"head":2001,"safe":2001,"held_back_by":\[\]'
like "status as text" "$(weir status --text)" $'server +primary, database shop, schema Odd one, user postgres\n'
ok "close" weir close order-1
status "a closed stream refuses" 4 weir append order-1 N
ok "targets: there are none" weir targets
echo 'store: postgres:///shop?schema=Odd%20one' >weir.yaml
ok "store in weir.yaml" env -u WEIR_STORE "$WEIR" read order-1
rm weir.yaml

"$WEIR" log --follow --after 2002 >followed 2>&1 &
spawned $!
wait_for "the follower's connection" bash -c \
    '[ "$(psql -XAtc "SELECT count(*) FROM pg_stat_activity WHERE datname = '"'shop'"'" postgres)" -ge 1 ]'
ok "an append of another process" weir append late-1 Seen
ok "reaches a follower" wait_for "the event" grep -q '"stream":"late-1"' followed
kill -TERM "${tap_pids[-1]}"
wait "${tap_pids[-1]}"
is "which ends with 0" $? 0

PGOPTIONS='-c default_transaction_read_only=on' "$WEIR" read order-1 >/dev/null 2>&1
is "reading needs no right to write" $? 0

# ---- many processes at once --------------------------------------------------------------------

createdb raced
ok "sixteen weir init at once" bash -c 'for i in $(seq 16); do "$WEIR" init --store postgres:///raced >raced.$i 2>&1 & pids="$pids $!"; done; for p in $pids; do wait $p || exit 1; done'
is "exactly one of them has created it" "$(cat raced.? raced.?? | grep -c '"created":true,"upgraded":false')" 1
is "and nobody has upgraded it" "$(cat raced.? raced.?? | grep -c '"created":false,"upgraded":false')" 15
is "leave one store" "$(sql raced -c 'SELECT count(*) FROM weir.store')" 1
ok "eight appends at once that find no store" bash -c 'createdb first; for i in $(seq 8); do "$WEIR" append s-$i N --store postgres:///first >first.$i 2>&1 & pids="$pids $!"; done; for p in $pids; do wait $p || exit 1; done'
is "and one of them says that it made one" "$(cat first.? | grep -c 'created store')" 1
is "are all there" "$(sql first -c 'SELECT count(*) FROM weir.events')" 8

# ---- who holds readers back --------------------------------------------------------------------

export WEIR_STORE=postgres:///first
PGAPPNAME=slow sql first >/dev/null 2>&1 <<'END' &
BEGIN;
SELECT weir.append_one(0, 1000, 'held-1', 0, 0, 'Late', '{}', '{}');
SELECT pg_sleep(4);
COMMIT;
END
spawned $!
wait_for "the open append" bash -c '[ "$(psql -XAtc "SELECT count(*) FROM pg_stat_activity WHERE wait_event = '"'PgSleep'"'" first)" = 1 ]'
ok "an append past one that is not finished" weir append quick-1 Soon
ok "status then" weir status
like "names who holds readers back" "$out" '"safe":8,"held_back_by":\[\{"pid":[0-9]+,[^]]*"application":"slow"'
like "in words, too" "$(weir status --text)" 'slow'
is "the log ends before it" "$(weir log | tail -n 1 | sed 's/.*"id":\([0-9]*\),.*/\1/')" 8
ok "and goes on when it is finished" wait_for "both events" bash -c '[ "$("$WEIR" log --after 8 | wc -l)" = 2 ]'

sql first <<'END'
BEGIN;
SELECT FROM weir.append_one(0, 1000, 'held-2', 0, 0, 'Late', '{}', '{}');
PREPARE TRANSACTION 'left behind';
END
ok "an append past a prepared transaction" weir append quick-2 Soon
ok "status then" weir status
like "names the prepared transaction" "$out" '"safe":10,"held_back_by":\[\{"pid":null,"transaction":"left behind","prepared":true,[^]]*"user":"postgres"'
like "and since when" "$out" '"since":"20[0-9-]+T'
like "in words, too" "$(weir status --text)" 'left behind'
is "the log ends before it" "$(weir log --after 10)" ""
sql first -c "COMMIT PREPARED 'left behind'"
is "and goes on when it is finished" "$(weir log --after 10 | wc -l)" 2
like "nobody is named any more" "$(weir status)" '"head":12,"safe":12,"held_back_by":\[\]'

# ---- numbers past 2^32 -------------------------------------------------------------------------

# Positions, versions, ids of targets and reactions, and fences: each begins just below a power of two,
# so that one answer has numbers from both sides.
large() {
    local base=$1 name=$2
    createdb "$name"
    export WEIR_STORE=postgres:///$name
    weir init >/dev/null
    sql "$name" >/dev/null <<END
SELECT setval('weir.positions', $base - 2), setval('weir.targets_id_seq', $base),
       setval('weir.reactions_id_seq', $base), setval('weir.parked_id_seq', $base);
CREATE OR REPLACE FUNCTION weir.version_base() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS 'SELECT $((base - 2))::bigint';
END
    ok "$name: append" weir append big-1 Grown '{"n":1}' --expect none
    like "$name: says where" "$out" "\"first\":$((base - 2)),\"last\":$((base - 2)),\"id\":$((base - 1)),"
    ok "$name: append with a key" weir append big-1 Grown --expect $((base - 2)) --key k
    ok "$name: again" weir append big-1 Grown --expect $((base - 2)) --key k
    is "$name: the same answer" "$out" "{\"stream\":\"big-1\",\"first\":$((base - 1)),\"last\":$((base - 1)),\"id\":$base,\"replayed\":true}"
    printf '%s\n' '{"stream":"big-1","name":"Grown"}' '{"stream":"big-1","name":"Grown"}' >lines
    ok "$name: a batch" weir append --batch lines
    status "$name: a conflict" 4 weir append big-1 Grown --expect "$base"
    like "$name: has both versions" "$errout" "\"expected\":$base,\"actual\":$((base + 1))"
    is "$name: read from a version" "$(weir read big-1 --from "$base" | grep -o '"version":[0-9]*' | tr '\n' ' ')" \
        "\"version\":$base \"version\":$((base + 1)) "
    is "$name: log after a position" "$(weir log --after "$base" | grep -o '"id":[0-9]*' | tr '\n' ' ')" \
        "\"id\":$((base + 1)) \"id\":$((base + 2)) "
    like "$name: streams" "$(weir streams)" "\"version\":$((base + 1)),"
    like "$name: status" "$(weir status)" "\"head\":$((base + 2)),\"safe\":$((base + 2)),"
    # A target that is behind by one event and was leased for a moment, as a worker would have left it.
    sql "$name" >/dev/null <<END
SELECT weir.declare('r', NULL, '*', 0, '', 0, false, 4);
SELECT weir.route(ARRAY[$((base + 1))], '{1}', '{0}', ARRAY[$((base + 2))], '{t}', '{0}', '{0}', '{0}', '{l}',
                  '{0}', '{big}', '{""}', ARRAY[$base], ARRAY[$((base + 2))], '{}', '{}', '{}', '{}', '{}');
UPDATE weir.targets SET fence = $base;
SELECT weir.lease('l', 'worker', 60000000, 1, 0, 0, '{}', '{}', true, 0);
SELECT weir.settle($((base + 1)), $((base + 1)), 0, ARRAY[$((base + 1))], ARRAY[$((base + 1))], '{}', '{}', '{}', '{}',
                   '{}', true, $((base + 1)), $((base + 2)), 'broken', 3, 0, 0);
END
    ok "$name: targets" weir targets
    like "$name: watermark and mark" "$out" "\"watermark\":$((base + 1)),\"mark\":$((base + 2)),"
    like "$name: the event it is blocked at" "$out" "\"event\":$((base + 2))[,}]"
    like "$name: fence" "$(sql "$name" -c 'SELECT fence FROM weir.targets')" "^$((base + 1))\$"
    like "$name: the router's position" "$(weir status)" "\"reaction\":\"r\",\"routed\":$((base + 2)),\"lag\":0"
    run weir doctor
    is "$name: doctor finds the target that is blocked, and nothing else" \
        "$(grep -o '"level":"finding","rule":"[a-z-]*"' <<<"$out")" '"level":"finding","rule":"blocked"'
}
large $((1 << 31)) past_31

# A position of a log that was cut off, as earlier versions have settled it.
at=$(sql past_31 -c 'SELECT max(id) FROM weir.events')
sql past_31 -c 'UPDATE weir.subscriptions SET at = at + 100, mark = mark + 100' -c "UPDATE weir.targets
    SET blocked = NULL, held = false, error = ''" -c 'SELECT weir.derive(ARRAY(SELECT id FROM weir.targets))' >/dev/null
status "doctor finds a position beyond the log" 1 weir doctor
like "and names the target" "$out" '"rule":"beyond-log","message":"1 target is beyond the end of the log: t; the log ends at'
ok "why" weir why t
like "says it, too" "$out" '"reason":"beyond-log"'
like "and so does the list" "$(weir targets)" '"error":"its position is beyond the end of the log'
ok "a reset repairs it" weir reset t --to $((at - 1)) --yes
ok "and doctor has no complaint" weir doctor

# The same of routing, under a worker that runs. It routes nothing for that reaction, even when the log has grown past it.
timeout -s TERM 300 weir work --name r --on '*' --to t --lane l --run 'cat >>handled; echo >>handled' --log json 2>work.log &
worker=$!
for _ in $(seq 600); do test "$(sql past_31 -c 'SELECT max(at) FROM weir.subscriptions')" = "$at" && break; sleep 0.1; done
sql past_31 -c 'UPDATE weir.reactions SET routed = routed + 10' >/dev/null
status "doctor finds a reaction that is routed beyond the log" 1 weir doctor
like "and names it" "$out" '"rule":"routed-beyond-log","message":"reaction .*r.* is routed up to'
ok "why" weir why t
like "says it of a target" "$out" '"reason":"routed-beyond-log".*reaction r is routed up to'
for list in targets 'reactions ls'; do
    # shellcheck disable=SC2086 # two words
    ok "$list" weir $list
    like "says it of the reaction" "$errout" 'reaction r is routed up to .* beyond the end of the log .*: nothing is routed for it'
done
weir append late N '{"late":0}' >/dev/null
for _ in $(seq 600); do grep -q routed_beyond_log work.log && break; sleep 0.1; done
like "a worker says it" "$(cat work.log)" '"routed_beyond_log","reaction":"r"'
for i in $(seq 12); do weir append late N "{\"late\":$i}" >/dev/null; done
sql past_31 -c "UPDATE weir.reactions SET routed = $at WHERE name = 'r'" >/dev/null
weir append late N '{"late":13}' >/dev/null
for _ in $(seq 600); do grep -q '"late":13' handled && break; sleep 0.1; done
kill "$worker" 2>/dev/null
wait "$worker"
is "C16_what_lies_below_a_reaction_beyond_the_log_is_routed_when_it_is_repaired" \
    "$(grep -o '"late":[0-9]*' handled | sort -u | wc -l)" 14
is "it is said once" "$(grep -c routed_beyond_log work.log)" 1
ok "what doctor says repairs it" weir doctor

large $((1 << 32)) past_32
large $((1 << 53)) past_53

# ---- roles -------------------------------------------------------------------------------------

sql -c 'CREATE ROLE worker LOGIN' postgres
export WEIR_STORE=postgres:///raced
as_worker="postgres://worker@/raced"
status "a role without rights" 1 weir append a N --store "$as_worker"
like "is told what to do" "$errout" 'weir init --grant'
status "nor may it make a store" 1 weir init --store "$as_worker?schema=other"
like "and is told what to do" "$errout" '"detail":"Run weir init as a role that may create a schema'
ok "init --plan --grant" weir init --plan --grant worker
like "prints SQL" "$out" "SELECT weir.grant_role\\('worker', 'worker'\\);"
status "and runs none" 1 weir append a N --store "$as_worker"
ok "init --grant" weir init --grant worker
like "says so" "$out" '"created":false,"upgraded":false,"granted":"worker"'
ok "then it works" weir append a N --store "$as_worker"
status "and cannot change what is there" 1 psql -X -q -U worker -d raced -c "UPDATE weir.events SET name = 'x'"
like "by any means" "$errout" 'permission denied'
ok "nor is init a burden to it: it changes nothing" weir init --store "$as_worker"

status "init --grant of nobody" 1 weir init --grant nobody
like "says what to do" "$errout" 'CREATE ROLE'
status "init --grant of a file" 2 weir init --grant worker --store sqlite:file.db
status "init --adopt of a database" 2 weir init --adopt
is "made no file" "$(ls file.db 2>/dev/null)" ""

# ---- errors, and passwords ---------------------------------------------------------------------

sql postgres -c "CREATE ROLE locked LOGIN PASSWORD 'hunter2-right'"
hba=$WEIR_TEST_PG_DATA/pg_hba.conf
as_server sed -i '1i local all locked scram-sha-256' "$hba"
sql postgres -c 'SELECT pg_reload_conf()' >/dev/null
wait_for "the new pg_hba.conf" bash -c '! PGPASSWORD=x psql -XAtc "SELECT 1" -U locked raced'
weir init --grant locked >/dev/null

# What a failing command says, in both forms; never a password.
says() {
    local name=$1 pattern=$2 form
    shift 2
    for form in --json --text; do
        run "$@" "$form"
        like "$name ($form)" "$rc $errout" "^1 .*$pattern"
        if [[ $out$errout == *hunter2* ]]; then fail "$name ($form): shows a password" "$errout"; else pass "$name ($form): shows no password"; fi
    done
}
says "a server that is not running" 'No such file or directory; Is the server running' weir log --store 'postgres://u:hunter2@/d?host=/nowhere'
says "no listener on a port" 'Connection refused' weir log --store 'postgres://u:hunter2@127.0.0.1:1/d'
says "several hosts" 'refused' weir log --store 'postgres://u:hunter2@127.0.0.1:1,127.0.0.1:2/d?connect_timeout=2'
says "no such database" 'does not exist' weir log --store 'postgres://postgres:hunter2@/nothing'
says "a wrong password in the URL" 'password authentication failed' weir log --store 'postgres://locked:hunter2-wrong@/raced'
says "a wrong password as a parameter" 'password authentication failed' weir log --store 'postgres:///raced?user=locked&password=hunter2-wrong'
says "a wrong PGPASSWORD" 'password authentication failed' env PGPASSWORD=hunter2-wrong "$WEIR" log --store 'postgres://locked@/raced'
says "no password" 'no password supplied' weir log --store 'postgres://locked@/raced'
says "a URL that libpq does not understand" 'not understood' weir log --store 'postgres://u:hunter2%zz@/raced'
says "a bracket that is not closed" 'not understood' weir log --store 'postgres://u:hunter2@[::1/raced'
says "a parameter that nobody knows" 'colour' weir log --store 'postgres://u:hunter2@/raced?colour=red'
says "a slash in a password" 'write %2F' weir log --store 'postgres://u:hunter2/x@h/raced'
says "a scheme that nobody knows" 'begins with none of' weir log --store 'mysql://u:hunter2@h/raced'
says "a schema that cannot be" 'schema' weir log --store 'postgres:///raced?schema=pg_catalog&password=hunter2'
right='postgres://locked:hunter2-right@/raced?password=hunter2-right&sslpassword=hunter2'
for command in status "init" doctor "append a N" "streams" "init --plan"; do
    # shellcheck disable=SC2086
    ok "weir $command with the right password" weir $command --store "$right"
    is "weir $command shows no password" "$(grep -c hunter2 <<<"$out$errout")" 0
done
like "but who and where" "$(weir status --store "$right")" '"store":"postgres://locked:\*\*\*@/raced\?password=\*\*\*'
ok "the right PGPASSWORD" env PGPASSWORD=hunter2-right "$WEIR" status --store 'postgres://locked@/raced'
ok "a note about a new store" weir append a N --store 'postgres://postgres:hunter2@/raced?schema=noted'
like "shows no password" "$errout" '"created store postgres://postgres:\*\*\*@/raced\?schema=noted"'

createdb -E LATIN1 -T template0 -l C old
says "a database with another encoding" 'encoding is not UTF8' weir init --store postgres:///old

# A machine without libpq: SQLite works, PostgreSQL says what to install.
mkdir none && echo 'not a library' >none/libpq.so.5
status "without libpq" 1 env LD_LIBRARY_PATH="$tmp/none" "$WEIR" log --store postgres:///raced
like "it says what to install" "$errout" 'apt-get install libpq5'
ok "SQLite does not care" env LD_LIBRARY_PATH="$tmp/none" "$WEIR" append a N --store sqlite:file.db

sql raced -c "ALTER TABLE weir.events DISABLE TRIGGER events_no_change"
status "doctor of a store that was changed" 1 weir doctor
like "finds it" "$out" '"level":"finding","rule":"schema","message":"trigger events_no_change is not as'
sql raced -c "ALTER TABLE weir.events ENABLE ALWAYS TRIGGER events_no_change"
sql raced -c "UPDATE weir.store SET schema = 9, client_least = 9"
status "a store of a newer version" 1 weir log
like "is refused as such" "$errout" '"code":"newer"'
sql raced -c "UPDATE weir.store SET schema = 3, client_least = 1"

# On a terminal a long check says that it is at work.
cat >terminal.py <<'END'
import os, pty, subprocess, sys
master, slave = pty.openpty()
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=slave)
os.close(slave)
try:
    while data := os.read(master, 4096):
        sys.stdout.buffer.write(data)
except OSError:
    pass
sys.exit(child.wait())
END
sql raced -c 'BEGIN; LOCK TABLE weir.events; SELECT pg_sleep(3)' >/dev/null &
spawned $!
wait_for "the lock" bash -c '[ "$(psql -XAtc "SELECT count(*) FROM pg_locks WHERE mode = '"'AccessExclusiveLock'"' AND granted" raced)" -ge 1 ]'
ok "doctor of a store that takes its time" python3 terminal.py "$WEIR" doctor --text
like "shows how long it has been at it" "$out" 'reading the whole store, 1 s'

# ---- backup and restore: the lines that are printed, for real ----------------------------------

createdb kept
sql kept -c 'CREATE ROLE gone LOGIN'
weir init --grant gone --as writer --store postgres:///kept >/dev/null
weir append a N --store postgres:///kept >/dev/null
ok "the line for pg_dump" bash -c 'weir backup kept.dump --store postgres:///kept --text >line && sh line'
dropdb kept
sql postgres -c 'DROP ROLE gone'
createdb kept
ok "the line for pg_restore" weir restore kept.dump --store postgres:///kept --text
like "says that the roles must exist" "$errout" 'must exist before'
printf '%s\n' "$out" >line
status "without them it does nothing" 1 sh line
like "and says whom it misses" "$errout" 'role "gone" does not exist'
is "nothing at all" "$(sql kept -c "SELECT count(*) FROM pg_namespace WHERE nspname = 'weir'")" 0
sql kept -c 'CREATE ROLE gone LOGIN'
ok "with them it restores" sh line
ok "over a store as well" sh line
is "the event is there" "$(weir read a --store postgres:///kept | wc -l)" 1
ok "who was granted it appends" env PGUSER=gone "$WEIR" append a N --store postgres:///kept
is "and no more" "$(sql kept -c "SELECT has_function_privilege('gone', 'weir.log_end()', 'EXECUTE')")" f
run weir doctor --store postgres:///kept
is "doctor finds the rights as they were" "$(grep -c '"level":"finding"' <<<"$out")" 0

# ---- a pooler ----------------------------------------------------------------------------------

pooler=$(mktemp -d /tmp/weir-pool.XXXXXX)
surroundings_end() {
    [ -e "$pooler/pid" ] && kill "$(cat "$pooler/pid")"
    [ -n "$standby" ] && as_server pg_ctl -D "$standby/data" -m immediate stop >/dev/null 2>&1
    rm -rf "$pooler" ${standby:+"$standby"}
    tap_cleanup
}
standby=
trap surroundings_end EXIT
cat >"$pooler/ini" <<END
[databases]
* = host=$WEIR_TEST_PG_DIR user=postgres
[pgbouncer]
listen_addr =
unix_socket_dir = $pooler
auth_type = any
pool_mode = transaction
default_pool_size = 4
logfile = $pooler/log
pidfile = $pooler/pid
END
chmod -R a+rwX "$pooler"
bouncer=$(PATH=$PATH:/usr/sbin command -v pgbouncer)
as_server "$bouncer" -q -d "$pooler/ini" >/dev/null 2>&1
wait_for "pgbouncer" psql -X -h "$pooler" -p 6432 -d raced -c 'SELECT 1'
pooled="postgres:///raced?host=$pooler&port=6432"
ok "append through PgBouncer in transaction mode" weir append pooled-1 N --store "$pooled"
ok "read through it" weir read pooled-1 --store "$pooled"
like "status says so" "$(weir status --text --store "$pooled")" 'through a pooler'
run weir doctor --store "$pooled"
like "doctor notes the pooler" "$out" '"level":"note","rule":"pooler"'
like "and that notifications do not arrive" "$out" '"level":"note","rule":"wake-ups".*direct='
run weir doctor --store "$pooled&direct=$WEIR_TEST_PG_DIR:5432"
is "with direct= they do" "$(grep -c wake-ups <<<"$out")" 0

# ---- a standby ---------------------------------------------------------------------------------

standby=$(as_server mktemp -d /tmp/weir-standby.XXXXXX)
as_server pg_basebackup -D "$standby/data" -h "$WEIR_TEST_PG_DIR" -U postgres -R -c fast >/dev/null 2>&1
as_server sh -c "printf '%s\n' \"unix_socket_directories = '$standby'\" 'port = 5432' 'hot_standby_feedback = on' >>'$standby/data/postgresql.auto.conf'"
as_server pg_ctl -D "$standby/data" -l "$standby/log" -w -t 30 start >/dev/null 2>&1
wait_for "the standby" psql -X -h "$standby" -d raced -c 'SELECT 1'
ok "reading from a standby" weir read a --store "postgres:///raced?host=$standby"
# What it replays may hold locks that an append waits for, and gives up: busy.
not_busy() { ! weir append a N --store "postgres:///raced?host=$standby" 2>&1 | grep -q '"busy"'; }
wait_for "it to hold no lock" not_busy
status "appending to it" 1 weir append a N --store "postgres:///raced?host=$standby"
like "says what to do" "$errout" 'target_session_attrs=read-write'
status "a lock on it" 1 weir lock a --store "postgres:///raced?host=$standby" -- touch ran
like "would be its own" "$errout" 'this server is a standby: its locks are its own'
is "and nothing runs" "$(ls ran 2>/dev/null)" ""
run weir doctor --store "postgres:///raced?host=$standby"
like "doctor says that it is one" "$out" '"level":"note","rule":"standby"'
like "and could not compare" "$out" '"level":"note","rule":"schema","message":"tables and functions were not compared'
run weir doctor
like "doctor of the primary warns of it" "$out" '"level":"note","rule":"standbys"'
ok "both hosts in one URL find the primary" weir append a N \
    --store "postgres:///raced?host=$standby,$WEIR_TEST_PG_DIR&port=5432,5432&target_session_attrs=read-write"

done_testing
