#!/usr/bin/env bash
# away_test.sh - the program while its server goes away and comes back: what it says, and when; who
# waits, and who ends. Calls have ten minutes (busy=10m), so that whatever is said here was said at
# the first failure. Run by tests/postgres/with-server.
. "$(dirname "$0")/../e2e/tap.sh" || exit 1
cd "$tmp" || exit 1
chmod 755 "$tmp"
unset WEIR_STORE
export PGHOST=$WEIR_TEST_PG_DIR PGUSER=postgres
as_server() { if [ "$(id -u)" = 0 ]; then (cd / && runuser -u "$WEIR_TEST_PG_USER" -- "$@"); else "$@"; fi; }
server_stop() { as_server "$WEIR_TEST_PG_BIN/pg_ctl" -D "$WEIR_TEST_PG_DATA" -m fast -s -w stop; }
server_start() {
    as_server "$WEIR_TEST_PG_BIN/pg_ctl" -D "$WEIR_TEST_PG_DATA" -l "$WEIR_TEST_PG_DIR/log" -s -w start
}
weir() { "$WEIR" "$@"; }
export WEIR_STORE="postgres:///postgres?busy=10m"

ok "init" weir init
ok "append" weir append order-1 Placed '{"n":1}'

# ---- a worker and a follower --------------------------------------------------------------------

"$WEIR" work --on Placed --to mail --run true --name r --from start --log json >work.out 2>work.log &
work=$!
spawned "$work"
"$WEIR" log --follow >follow.out 2>follow.err &
follow=$!
spawned "$follow"
ok "the follower is there" wait_for "the first event" grep -q '"n":1' follow.out
ok "the worker is there" wait_for "the first settle" bash -c "'$WEIR' targets --json | grep -q '\"lag\":0,'"
server_stop
ok "store_away is said although calls still wait" wait_for store_away grep -q '"msg":"store_away"' work.log
# A command that is started now waits, too.
"$WEIR" append order-1 Placed '{"n":2}' >append.out 2>append.err &
append=$!
spawned "$append"
server_start
ok "an append that was begun without a server succeeds" wait "$append"
ok "store_back is said" wait_for store_back grep -q '"msg":"store_back"' work.log
ok "the follower goes on" wait_for "the second event" grep -q '"n":2' follow.out
is "each event once" "$(wc -l <follow.out)" 2
kill -TERM "$follow" "$work"
ok "the follower ends with 0" wait "$follow"
ok "the worker ends with 0" wait "$work"

# A worker that is started without a server says so, and begins when there is one.
server_stop
"$WEIR" work --on Placed --to mail --run true --name r --from start --log json >late.out 2>late.log &
late=$!
spawned "$late"
ok "store_away is said while the worker waits to begin" wait_for store_away grep -q '"msg":"store_away"' late.log
server_start
ok "it begins" wait_for started grep -q '"msg":"started"' late.log
is "each is said once, in order" \
    "$(grep -oE '"msg":"(store_away|store_back|started)"' late.log | tr -d '\n')" \
    '"msg":"store_away""msg":"store_back""msg":"started"'
kill -TERM "$late"
ok "the late worker ends with 0" wait "$late"

# A follower whose calls give up before the server is back goes on as well, and says so.
"$WEIR" log --follow --store 'postgres:///postgres?busy=10ms' >short.out 2>short.err &
short=$!
spawned "$short"
two_events() { [ "$(wc -l <short.out)" = 2 ]; }
ok "the follower is there" wait_for "two events" two_events
server_stop
ok "it says that the server is away" wait_for note grep -q 'waiting for it to come back' short.err
server_start
ok "append" weir append order-1 Placed '{"n":3}'
ok "the follower goes on" wait_for "the third event" grep -q '"n":3' short.out
is "each event once" "$(wc -l <short.out)" 3
is "said once" "$(grep -c 'waiting for it' short.err)" 1
kill -TERM "$short"
ok "the follower ends with 0" wait "$short"

server_stop
status "without a server and without time: exit 1" 1 weir log --store 'postgres:///postgres?busy=1ms'
like "unavailable" "$errout" 'unavailable|could not reach'
server_start

# ---- a locked row -------------------------------------------------------------------------------

psql() { "$WEIR_TEST_PG_BIN/psql" -X -q -A -t -v ON_ERROR_STOP=1 -d postgres "$@"; }
psql -c 'CREATE TABLE jobs (id int PRIMARY KEY, n int); INSERT INTO jobs VALUES (1, 0)'
locked() {
    "$WEIR" lock --table jobs --id 1 --held-exit 9 -- "$@" >lock.out 2>lock.err &
    lock=$!
    spawned "$lock"
    wait_for "the program" test -e begun
}
# The server ends the session while the program runs: the program is ended.
locked sh -c 'touch begun; exec sleep 1000'
psql -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'" >killed
status "lock --table whose connection is lost while its program runs: 75" 75 wait "$lock"
like "and says so" "$(cat lock.err)" 'lost'
# The server is gone when the program has succeeded.
rm begun
locked sh -c 'touch begun; while [ ! -e go ]; do sleep 0.1; done; echo "{\"set\":{\"n\":5}}"'
server_stop
touch go
status "or when it has succeeded: 75" 75 wait "$lock"
server_start
is "nothing was written" "$(psql -c 'SELECT n FROM jobs')" 0

done_testing
